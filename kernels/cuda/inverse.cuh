// A = (I + N)⁻¹ of a chunk by one warpgroup, from KKᵀ in its accumulators to A in bf16 as wgmma
// takes it, with mma.sync on blocks of 16 × 16:
//   N    = strictly_lower(B · exp(g_i − g_j) ∘ KKᵀ)                               put_system
//   D_w  = (I + N_ww)⁻¹                       by substitution, in fp32            invert_diagonal
//   A_ww = D_w,  A_wj = −(Σ_{j < m <= w} A_wm N_mj) D_j   from right to left      solve_row
// Warp w has block row w of all of them, and reads blocks of N and D of the rows above.
//
// Precision: what a product takes is split into two bf16, 16 bits in all, and three of the four
// products of halves are taken. One bf16 or fp16 pass is as good on ordinary keys, but where all
// keys of a head are equal and β is near 2 terms of either sign nearly cancel. Substitution, not a
// series, inverts the diagonal blocks for the same reason.
//
// What rounding takes from A stays in registers, for a chunk that is ill-conditioned (variant.hpp).
// Whether it is one is known when all warps have their rows.
//
// Where things stand while a chunk's A is being made, in blocks of 16 × 16 (w > j):
//   tile A   (w, j) A_wj, (w, w) D_w: their upper halves, which are A. Above the diagonal 0
//   tile P   (w, j) N_wj's upper half, (j, w) its lower half, (w, w) D_w's lower half. P' comes
//            after that, and replaces all of it
//   diagonal N_ww transposed, then D_w transposed, in fp32: each warp its own
#pragma once

#include "kernels/cuda/gates.cuh"
#include "kernels/cuda/roles.cuh"
#include "kernels/sm80/tile.cuh"
#include "kernels/sm90/matrix.cuh"
#include "kernels/sm90/tile.cuh"

namespace gdn::sm90 {

using sm80::Left;
using sm80::RightPair;
using sm80::SplitLeft;
using sm80::Sum;

struct Inverse {
  static constexpr int block = 16, blocks = chunk_tokens / block;
  using Square = NarrowTile<chunk_tokens, chunk_tokens>;  // as State takes it

  struct Diagonal {              // 5,136 bytes
    float x[blocks][block][20];  // [w][column][row]: rows lie apart, so that lanes do not collide
    float squares[blocks];       // of what block row w has near the diagonal (ill_conditioned)
  };
  using Row = SplitLeft[blocks];  // of A: [e] is block (w, w − e)

  Square& A;
  Tile<chunk_tokens, chunk_tokens>& P;
  Diagonal& diagonal;
  float squares = 0;  // of what this lane has near the diagonal, as they count

  // The blocks above the diagonal of A are 0 from here on: nothing writes there.
  static __device__ void clear_above(Square& A) {
#pragma unroll
    for (int j = 1; j < blocks; ++j) {
      if (j > warp()) put_left(A, block * warp(), block * j, Left{});
    }
  }

  // Block row w of N from that of KKᵀ. `ratios`: exp(g_i − g_j) is γ'_i/γ'_j (gates.exact()).
  template <bool ratios>
  __device__ void put_system(const Sum (&kk)[chunk_tokens / 8], const RatioGates& gates,
                             const float* beta) {
    const int w = sm80::opaque(warp()), lane = sm80::opaque(sm90::lane());
    const int i = block * w + lane / 4;
    const float2 g = {gates.g[i], gates.g[i + 8]}, b = {beta[i], beta[i + 8]};
    const float2 residual = {-gates.residual.at(i), -gates.residual.at(i + 8)};
#pragma unroll
    for (int j = 0; j < blocks; ++j) {
      if (j > w) continue;
      Sum n[2];
#pragma unroll
      for (int x = 0; x < 4; ++x) {  // x % 2: which eight rows, x / 2: which eight columns
        const float2 of = gates.ratio_or_gate<ratios>(lane % 4, j, x / 2);
        const float gate = x % 2 ? g.y : g.x, write = x % 2 ? b.y : b.x;
        const float row = x % 2 ? residual.y : residual.x;
        const float2 factor = ratios ? float2{row * of.x, row * of.y}
                                     : float2{write * decay(gate, of.x), write * decay(gate, of.y)};
        const float* products = kk[2 * j + x / 2].x + x % 2 * 2;
        n[x / 2].x[x % 2 * 2] = products[0] * factor.x;
        n[x / 2].x[x % 2 * 2 + 1] = products[1] * factor.y;
      }
      if (j == w) {
        put_diagonal(n, w, lane);
      } else {
        const SplitLeft both = split(n);
        put_left(P, block * w, block * j, both.high);
        put_left(P, block * j, block * w, both.low);
      }
    }
  }

  __device__ void put_diagonal(const Sum (&n)[2], int w, int lane) {
    auto& x = diagonal.x[w];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int row = lane / 4 + e / 2 * 8, column = half * 8 + lane % 4 * 2 + e % 2;
        x[column][row] = row > column ? n[half].x[e] : 0;
      }
    }
  }

  // D_w in place of N_ww, a column a lane (lanes 16–31 repeat 0–15); and returns it.
  __device__ SplitLeft invert_diagonal() {
    const int w = sm80::opaque(warp()), lane = sm80::opaque(sm90::lane());
    auto& n = diagonal.x[w];
    __syncwarp();
    const int column = lane % block;
    float x[block];
#pragma unroll
    for (int i = 0; i < block; ++i) x[i] = i == column ? 1.0F : 0.0F;
#pragma unroll
    for (int m = 0; m < block - 1; ++m) {
      if (m % 3 == 0) __syncwarp();  // or all of N_ww would be brought to registers at once
#pragma unroll
      for (int i = (m + 1) / 4 * 4; i < block; i += 4) {
        const float4 of = *reinterpret_cast<const float4*>(&n[m][i]);
        if (i > m) x[i] -= of.x * x[m];
        if (i + 1 > m) x[i + 1] -= of.y * x[m];
        if (i + 2 > m) x[i + 2] -= of.z * x[m];
        if (i + 3 > m) x[i + 3] -= of.w * x[m];
      }
    }
    __syncwarp();
    if (lane < block) {
#pragma unroll
      for (int i = 0; i < block; i += 4) {
        *reinterpret_cast<float4*>(&n[column][i]) = {x[i], x[i + 1], x[i + 2], x[i + 3]};
      }
    }
    __syncwarp();
    Sum d[2];
    const int i = lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int j = half * 8 + lane % 4 * 2;
      d[half] = {n[j][i], n[j + 1][i], n[j][i + 8], n[j + 1][i + 8]};
    }
    squares = squares_of(d);
    const SplitLeft D = split(d);
    put_left(A, block * w, block * w, D.high);
    put_left(P, block * w, block * w, D.low);
    return D;
  }

  static __device__ float squares_of(const Sum (&d)[2]) {
    return sm80::squares_of(d[0]) + sm80::squares_of(d[1]);
  }
  __device__ void put_squares() {
#pragma unroll
    for (int lanes = 1; lanes < 32; lanes *= 2) squares += __shfl_xor_sync(~0U, squares, lanes);
    if (lane() == 0) diagonal.squares[warp()] = squares;
  }
  // When all warps have their rows of A.
  __device__ bool ill_conditioned() const {
    float below = -chunk_tokens;  // without the diagonal itself
    for (const float of : diagonal.squares) below += of;
    return below > most_squares;
  }

  // d + small += a B, of which B's halves stand at [rows][columns] of two tiles.
  static __device__ void multiply(Sum (&d)[2], Sum (&small)[2], const SplitLeft& a,
                                  const RightPair& high, const RightPair& low) {
    sm80::mma(small, a.low, high);
    sm80::mma(small, a.high, low);
    sm80::mma(d, a.high, high);
  }

  // Block row w of A, of which D_w is there already. All of N and D is there.
  __device__ void solve_row(Row& a) {
    const int w = sm80::opaque(warp());
#pragma unroll
    for (int e = 1; e < blocks; ++e) {
      if (e > w) continue;
      if (e == 2) put_squares();  // beside products
      const int j = w - e;
      Sum d[2] = {}, small[2] = {};
#pragma unroll
      for (int m = 0; m < e; ++m) {
        multiply(d, small, a[m], sm80::right_of(P, block * (w - m), block * j),
                 sm80::right_of(P, block * j, block * (w - m)));
      }
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        sm80::add(d[n], small[n]);
        sm80::scale(d[n], -1.0F);
        small[n] = {};
      }
      const SplitLeft sum = split(d);
      d[0] = d[1] = {};
      multiply(d, small, sum, sm80::right_of(A, block * j, block * j),
               sm80::right_of(P, block * j, block * j));
      sm80::add(d[0], small[0]), sm80::add(d[1], small[1]);
      if (e == 1) squares -= (w % 2 == 1 ? 0.5F : 0) * squares_of(d);
      a[e] = split(d);
      put_left(A, block * w, block * j, a[e].high);
    }
    if (w < 2) put_squares();
  }

  // The low halves of block row w, and 0 above the diagonal.
  static __device__ void put_low(const Row& a, Tile<chunk_tokens, chunk_tokens>& low) {
    const int w = sm80::opaque(warp());
#pragma unroll
    for (int e = 0; e < blocks; ++e) {
      if (e > w) {
        put_left(low, block * w, block * e, Left{});
      } else {
        put_left(low, block * w, block * (w - e), a[e].low);
      }
    }
  }
};

}  // namespace gdn::sm90
