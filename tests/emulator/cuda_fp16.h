// Stand-in for CUDA's header of this name.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/emulator/cuda_runtime.h"

struct __half {
  std::uint16_t bits;
};
struct alignas(4) __half2 {
  __half x, y;
};

// The numbers between two powers of two, 2^e and the next, are multiples of 2^(e - 10), and those
// below 2^-14 of 2^-24.
inline __half __float2half_rn(float x) {
  const auto sign = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16 & 0x8000);
  const float size = std::fabs(x);
  const auto with_sign = [&](long bits) { return __half{static_cast<std::uint16_t>(sign | bits)}; };
  if (std::isnan(x)) return {0x7FFF};
  if (size >= 65520) return with_sign(0x7C00);
  const int e = std::max(size > 0 ? std::ilogb(size) : -14, -14);
  return with_sign(((e + 14L) << 10) + std::lrint(std::ldexp(size, 10 - e)));
}
inline float __half2float(__half x) {
  const int e = x.bits >> 10 & 31, rest = x.bits & 1023;
  const float size =
      e < 31      ? std::ldexp(static_cast<float>(e > 0 ? 1024 + rest : rest), std::max(e, 1) - 25)
      : rest == 0 ? std::numeric_limits<float>::infinity()
                  : std::numeric_limits<float>::quiet_NaN();
  return x.bits >> 15 != 0 ? -size : size;
}
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half2 __float2half2_rn(float x) { return __floats2half2_rn(x, x); }
inline float2 __half22float2(__half2 x) { return {__half2float(x.x), __half2float(x.y)}; }
inline __half2 __lows2half2(__half2 x, __half2 y) { return {x.x, y.x}; }
inline __half2 __highs2half2(__half2 x, __half2 y) { return {x.y, y.y}; }
inline __half2 __hmul2(__half2 x, __half2 y) {
  return __floats2half2_rn(__half2float(x.x) * __half2float(y.x),
                           __half2float(x.y) * __half2float(y.y));
}
inline __half2 __habs2(__half2 x) {
  const auto without_sign = [](__half x) {
    return __half{static_cast<std::uint16_t>(x.bits & 0x7FFF)};
  };
  return {without_sign(x.x), without_sign(x.y)};
}
// The larger one; what is not a number does not count.
inline __half2 __hmax2(__half2 x, __half2 y) {
  const auto larger = [](__half x, __half y) {
    return std::isnan(__half2float(y)) || __half2float(x) > __half2float(y) ? x : y;
  };
  return {larger(x.x, y.x), larger(x.y, y.y)};
}
