// Matrix fragments of one warp and the products on them: mma.sync, ldmatrix, movmatrix.
//
// Lane 4·g + t of a warp holds, of each matrix, the elements named here. A register of bf16 holds
// two neighbours of a row, the left one in its lower half.
//   Left   [16 × 16]  x[0]: row g, columns 2t 2t+1;  x[1]: row g+8;
//                     x[2], x[3]: the same, columns + 8
//   Right  [16 × 8]   x[0]: rows 2t 2t+1 of column g;  x[1]: rows + 8
//   Sum    [16 × 8]   fp32. x[0] x[1]: row g, columns 2t 2t+1;  x[2] x[3]: row g+8
// Hence two neighbouring Sums are a Left by a conversion alone (`left`), and the rows of two Sums
// are the columns of a RightPair (`right`): products follow one another in registers.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace gdn::sm80 {

struct alignas(16) Left {
  std::uint32_t x[4];
};
struct Right {
  std::uint32_t x[2];
};
struct alignas(16) RightPair {
  Right tile[2];  // columns 0–7 and 8–15
};
struct Sum {
  float x[4];
};

// ---- bf16 pairs

__device__ inline std::uint32_t pack(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const std::uint32_t&>(pair);
}
__device__ inline float2 unpack(std::uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xFFFF'0000u)};
}
__device__ inline std::uint32_t scaled(std::uint32_t pair, float2 factor) {
  const float2 x = unpack(pair);
  return pack(x.x * factor.x, x.y * factor.y);
}

// ---- between fragments

// [16 × 16] of which `low` and `high` are columns 0–7 and 8–15.
__device__ inline Left left(const Sum& low, const Sum& high) {
  return {pack(low.x[0], low.x[1]), pack(low.x[2], low.x[3]), pack(high.x[0], high.x[1]),
          pack(high.x[2], high.x[3])};
}
// The transpose of the same [16 × 16].
__device__ inline RightPair right(const Sum& low, const Sum& high) {
  return {{{pack(low.x[0], low.x[1]), pack(high.x[0], high.x[1])},
           {pack(low.x[2], low.x[3]), pack(high.x[2], high.x[3])}}};
}
// The transpose of a Left: the same registers.
__device__ inline RightPair right(const Left& a) { return {{{a.x[0], a.x[2]}, {a.x[1], a.x[3]}}}; }

// A block [16 × 16] as the sum of two of bf16: 16 bits of its 24.
struct SplitLeft {
  Left high, low;
};
// Of two neighbouring Sums. Where register `zero` of the Left would be 0, that is known before.
template <int zero = 4>
__device__ SplitLeft split(const Sum (&d)[2]) {
  SplitLeft a;
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    if (x == zero) {
      a.high.x[x] = a.low.x[x] = pack(0, 0);
      continue;
    }
    const float* of = d[x / 2].x + x % 2 * 2;
    a.high.x[x] = pack(of[0], of[1]);
    const float2 high = unpack(a.high.x[x]);
    a.low.x[x] = pack(of[0] - high.x, of[1] - high.y);
  }
  return a;
}

// Columns times factors: `low` for columns 2t 2t+1, `high` for those + 8.
__device__ inline Left scale_columns(const Left& a, float2 low, float2 high) {
  return {scaled(a.x[0], low), scaled(a.x[1], low), scaled(a.x[2], high), scaled(a.x[3], high)};
}
// Rows times factors: `low` for rows 2t 2t+1, `high` for those + 8.
__device__ inline RightPair scale_rows(const RightPair& b, float2 low, float2 high) {
  return {{{scaled(b.tile[0].x[0], low), scaled(b.tile[0].x[1], high)},
           {scaled(b.tile[1].x[0], low), scaled(b.tile[1].x[1], high)}}};
}
__device__ inline void scale_columns(Sum& d, float2 factor) {
  d.x[0] *= factor.x, d.x[1] *= factor.y, d.x[2] *= factor.x, d.x[3] *= factor.y;
}
__device__ inline void scale(Sum& d, float factor) {
  for (float& x : d.x) x *= factor;
}
__device__ inline void add(Sum& d, const Sum& a) {
  for (int i = 0; i < 4; ++i) d.x[i] += a.x[i];
}
// Of this lane's elements.
__device__ inline float squares_of(const Sum& d) {
  return d.x[0] * d.x[0] + d.x[1] * d.x[1] + d.x[2] * d.x[2] + d.x[3] * d.x[3];
}

// ---- products

// d += a b. PTX ISA, "Multiply-and-Accumulate Instruction: mma", m16n8k16 with .bf16.
__device__ inline void mma(Sum& d, const Left& a, const Right& b) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "r"(b.x[0]), "r"(b.x[1]));
}
// The same for 16 columns, which are two Sums.
__device__ inline void mma(Sum* d, const Left& a, const RightPair& b) {
  mma(d[0], a, b.tile[0]);
  mma(d[1], a, b.tile[1]);
}

// ---- four 8 × 8 matrices of bf16 out of shared memory; lane l gives the address there of row l %
// 8 of matrix l / 8. PTX ISA, "Warp-level matrix load instruction: ldmatrix".

__device__ inline void ldmatrix(std::uint32_t (&x)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row));
}
__device__ inline void ldmatrix_transposed(std::uint32_t (&x)[4], std::uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
               : "r"(row));
}

// An 8 × 8 matrix of bf16, row g in lanes 4g … 4g+3, transposed.
// PTX ISA, "Warp-level matrix transpose instruction: movmatrix".
__device__ inline std::uint32_t transposed(std::uint32_t pair) {
  std::uint32_t x;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(x) : "r"(pair));
  return x;
}

}  // namespace gdn::sm80
