// The exponential that the gates need: one multiplication and one instruction.
#pragma once

namespace gdn::sm80 {

// e^x to 2^-22 for small |x|, 0 where the result would be subnormal.
// PTX ISA, "Floating Point Instructions: ex2".
__device__ inline float exponential(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634F));
  return y;
}

}  // namespace gdn::sm80
