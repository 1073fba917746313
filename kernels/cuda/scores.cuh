// P = tril(QKᵀ ∘ exp(g_i − g_j)), in blocks of 16 × 16.
#pragma once

#include "kernels/cuda/place.cuh"
#include "kernels/sm80/opaque.cuh"
#include "kernels/sm80/tile.cuh"

namespace gdn::sm80 {

// The block [i … i + 15][j … j + 15] of P = tril(QKᵀ ∘ exp(g_i − g_j)) from that of QKᵀ.
__device__ inline Left gated_scores(const Sum& low, const Sum& high, const float* g, int i, int j) {
  const int row = i + threadIdx.x % 32 / 4, column = j + threadIdx.x % 4 * 2;
  Left p;
#pragma unroll
  for (int x = 0; x < 4; ++x) {
    const int later = row + x % 2 * 8, earlier = column + x / 2 * 8;
    const float* score = (x < 2 ? low : high).x + x % 2 * 2;
    const float gate = g[later];
    const float2 before = *reinterpret_cast<const float2*>(g + earlier);
    p.x[x] = pack(earlier <= later ? score[0] * decay(gate, before.x) : 0,
                  earlier + 1 <= later ? score[1] * decay(gate, before.y) : 0);
  }
  return p;
}

// The lower triangle of P by `warps` warps, each of which takes some of its ten blocks.
template <int warps>
struct Scores {
  static constexpr int count = (10 + warps - 1) / warps;
  Left p[count];

  // Blocks are numbered by rows: (0, 0), (1, 0), (1, 1), (2, 0) …
  static __device__ int row(int n) { return n < 1 ? 0 : n < 3 ? 1 : n < 6 ? 2 : 3; }
  static __device__ int column(int n) { return n - row(n) * (row(n) + 1) / 2; }
  static __device__ int block(int b) { return threadIdx.x / 32 + b * warps; }

  // Where warps have several blocks none of them branches: one that has fewer makes the last block
  // again, and does not put it.
  template <class Tile>
  __device__ void make(Tile& Q, Tile& K, const float* g) {
    if (count == 1 && block(0) >= 10) return;
    Sum score[count][2] = {};
#pragma unroll
    for (int k = 0; k < head_dim; k += 16) {
#pragma unroll
      for (int b = 0; b < count; ++b) {
        const int n = min(block(b), 9);
        mma(score[b], left_of(Q, 16 * row(n), k), right_of_transposed(K, k, 16 * column(n)));
      }
    }
#pragma unroll
    for (int b = 0; b < count; ++b) {
      const int n = min(block(b), 9);
      p[b] = gated_scores(score[b][0], score[b][1], g, 16 * row(n), 16 * column(n));
    }
  }
  template <class Tile>
  __device__ void put(Tile& P) const {
#pragma unroll
    for (int b = 0; b < count; ++b) {
      const int n = opaque(block(b));  // 1024 threads have no registers to keep addresses in
      if ((b + 1) * warps <= 10 || n < 10) store_left(P, 16 * row(n), 16 * column(n), p[b]);
    }
  }
};

}  // namespace gdn::sm80
