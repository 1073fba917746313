// Numbers of fp16 that share a power of two, their unit: each has 11 bits where bf16 has 8, and how
// large they are is left to the unit.
#pragma once

#include <cuda_fp16.h>

#include "kernels/sm80/mma.cuh"

namespace gdn::sm80 {

// As Left, Right and RightPair, of fp16.
struct alignas(16) HalfLeft {
  std::uint32_t x[4];
};
struct HalfRight {
  std::uint32_t x[2];
};
struct alignas(16) HalfRightPair {
  HalfRight tile[2];
};

__device__ inline std::uint32_t bits_of(__half2 pair) {
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ inline std::uint32_t pack_halves(float low, float high) {
  return bits_of(__floats2half2_rn(low, high));
}
__device__ inline __half2 halves_of(std::uint32_t pair) {
  return reinterpret_cast<const __half2&>(pair);
}
__device__ inline float2 unpack_halves(std::uint32_t pair) {
  return __half22float2(halves_of(pair));
}
__device__ inline std::uint32_t product_of_halves(std::uint32_t a, std::uint32_t b) {
  return bits_of(__hmul2(halves_of(a), halves_of(b)));
}

// The unit of numbers of which `largest` is the largest magnitude. In units that is in [2^14,
// 2^15), half of what fp16 ends at, and what is 2^28 times smaller still has all its bits. Nothing
// is divided by less than 2^-126.
__device__ inline float unit_of(float largest) {
  const std::uint32_t exponent = max(__float_as_uint(largest) >> 23, 15U);
  return __uint_as_float((exponent - 14) << 23);
}
// 1/unit, of a power of two.
__device__ inline float inverse_of(float unit) {
  return __uint_as_float((254U << 23) - __float_as_uint(unit));
}

// The largest magnitudes in rows g and g + 8 of Sums side by side, for the whole warp.
template <int sums>
__device__ float2 largest_of_rows(const Sum (&d)[sums]) {
  float2 largest = {};
#pragma unroll
  for (int n = 0; n < sums; ++n) {
    largest.x = max(largest.x, max(fabsf(d[n].x[0]), fabsf(d[n].x[1])));
    largest.y = max(largest.y, max(fabsf(d[n].x[2]), fabsf(d[n].x[3])));
  }
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    largest.x = max(largest.x, __shfl_xor_sync(~0U, largest.x, lanes));
    largest.y = max(largest.y, __shfl_xor_sync(~0U, largest.y, lanes));
  }
  return largest;
}

// The same of blocks side by side, in units.
template <int blocks>
__device__ float2 largest_of_rows(const HalfLeft (&a)[blocks]) {
  __half2 rows[2] = {};  // the largest in even columns and in odd ones
#pragma unroll
  for (int k = 0; k < blocks; ++k) {
#pragma unroll
    for (int x = 0; x < 4; ++x) rows[x % 2] = __hmax2(rows[x % 2], __habs2(halves_of(a[k].x[x])));
  }
  __half2 largest = __hmax2(__lows2half2(rows[0], rows[1]), __highs2half2(rows[0], rows[1]));
#pragma unroll
  for (int lanes = 1; lanes < 4; lanes *= 2) {
    largest = __hmax2(largest, __shfl_xor_sync(~0U, largest, lanes));
  }
  return __half22float2(largest);
}

// [16 × 16] of two neighbouring Sums. Where its register `zero` would be 0, that is known before.
template <int zero = 4>
__device__ HalfLeft half_left(const Sum (&d)[2]) {
  HalfLeft a;
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const float* of = d[x / 2].x + x % 2 * 2;
    a.x[x] = x == zero ? 0 : pack_halves(of[0], of[1]);
  }
  return a;
}
// The transpose of a HalfLeft: the same registers.
__device__ inline HalfRightPair right(const HalfLeft& a) {
  return {{{a.x[0], a.x[2]}, {a.x[1], a.x[3]}}};
}

// d += a b. PTX ISA, "Multiply-and-Accumulate Instruction: mma", m16n8k16 with .f16.
__device__ inline void mma(Sum& d, const HalfLeft& a, const HalfRight& b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}
// The same for 16 columns, which are two Sums.
__device__ inline void mma(Sum* d, const HalfLeft& a, const HalfRightPair& b) {
  mma(d[0], a, b.tile[0]);
  mma(d[1], a, b.tile[1]);
}

// [16 × 16] of which `d` has columns 0–7 and 8–15, its rows times `inverse`, and back.
__device__ inline HalfLeft half_left(const Sum* d, float2 inverse) {
  HalfLeft a;
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const float* of = d[x / 2].x + x % 2 * 2;
    const float factor = x % 2 == 0 ? inverse.x : inverse.y;
    a.x[x] = pack_halves(of[0] * factor, of[1] * factor);
  }
  return a;
}
// Times a power of two.
__device__ inline HalfLeft scaled(const HalfLeft& a, float factor) {
  const __half2 both = __float2half2_rn(factor);
  HalfLeft b;
#pragma unroll
  for (int x = 0; x < 4; ++x) b.x[x] = bits_of(__hmul2(halves_of(a.x[x]), both));
  return b;
}
__device__ inline void sums_of(const HalfLeft& a, float2 unit, Sum* d) {
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const float2 pair = unpack_halves(a.x[x]);
    float* to = d[x / 2].x + x % 2 * 2;
    const float factor = x % 2 == 0 ? unit.x : unit.y;
    to[0] = pair.x * factor, to[1] = pair.y * factor;
  }
}

}  // namespace gdn::sm80
