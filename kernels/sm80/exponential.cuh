// The exponential that the gates need: one multiplication and one instruction.
#pragma once

namespace gdn::sm80 {

inline constexpr float log2_e = 1.4426950408889634F;

// 2^x to 2^-22, 0 where the result would be subnormal.
// PTX ISA, "Floating Point Instructions: ex2".
__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// e^x to 2^-22 for small |x|, 0 where the result would be subnormal.
__device__ inline float exponential(float x) { return power_of_2(x * log2_e); }

}  // namespace gdn::sm80
