// The 16-bit brain float on the host: storage and the two conversions, nothing else.
#pragma once

#include <bit>
#include <cstdint>

namespace gdn {

// Upper half of an IEEE-754 binary32. Layout-compatible with CUDA's __nv_bfloat16.
struct BFloat16 {
  std::uint16_t bits;
};

constexpr float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

// Round to nearest even; every NaN becomes the quiet NaN 0x7FFF, as the hardware's cvt.rn.bf16.f32
// does.
constexpr BFloat16 to_bfloat16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7FFF'FFFFu) > 0x7F80'0000u) return {0x7FFF};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

}  // namespace gdn
