// The output of every chunk from the state before it and its new values, both through memory:
//   P = tril(QKᵀ ∘ exp(g_i − g_j))                                                     scores
//   O = scale (Γ Q S + P V̂)                                                            outputs
// One CTA of four warps takes a chunk and a value head. Warp w makes rows 16w … of P and, of the
// transpose Oᵀ, rows 32w … (columns of values): Sᵀ and V̂ᵀ are left operands that lie in memory as
// fragments and go straight to registers, Q and P are right operands from shared memory.
//
// Bytes a chunk and head: S 32 KiB, V̂ 16, O 16, q and k 32 once a query head; 590 MB and 140 µs at
// 4.3 TB/s for 8192 tokens, 16 query and 64 value heads. Tensor cores: ~1900 cycles.
#pragma once

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scores.cuh"
#include "kernels/sm80/tile.cuh"

namespace gdn::sm80 {

inline std::int64_t chunks_and_heads(const Problem& problem) {
  return static_cast<std::int64_t>(problem.chunks().size()) * problem.value_heads;
}

// What the kernels of a chunked form hand on through memory, as fragments: 32 lanes side by side,
// 16 bytes each, so that every access of a warp is 512 bytes in a row.
struct Handover {
  Left* S;      // [chunk][head][value / 16][key / 16][lane]    Sᵀ before the chunk
  Left* value;  // [chunk][head][value / 16][token / 16][lane]  V̂ᵀ

  static constexpr std::int64_t state_size = 8 * 8 * 32, value_size = 8 * 4 * 32;  // fragments

  static std::int64_t bytes(std::int64_t chunks_and_heads) {
    return chunks_and_heads * (state_size + value_size) * static_cast<std::int64_t>(sizeof(Left));
  }
  static Handover at(void* workspace, std::int64_t chunks_and_heads) {
    auto* S = static_cast<Left*>(workspace);
    return {S, S + chunks_and_heads * state_size};
  }
};

struct ChunkOutput {
  static constexpr const char* name = "chunk_output";
  static constexpr int threads = 128;
  static constexpr int blocks_per_processor = 3;

  struct Arguments {
    Tensors tensors;
    Handover chain;
    int query_heads, value_heads;
  };

  struct Shared {                    // 41,216 bytes
    Tile<chunk_tokens, head_dim> Q;  // 16,384  [token][key]
    union {
      Tile<chunk_tokens, head_dim> K;  // 16,384  [token][key]
      Tile<chunk_tokens, head_dim> O;  //         [token][value], once P is made
    };
    Tile<chunk_tokens, chunk_tokens> P;  //  8,192  [i][j], blocks up to the diagonal
    float g[chunk_tokens];               //    256
  };

  static __device__ void scores(Shared& s, int warp) {
    Sum p[8] = {};  // [token j / 8]
#pragma unroll
    for (int k = 0; k < head_dim; k += 16) {
      const Left q = left_of(s.Q, 16 * warp, k);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        if (j <= warp) mma(p + 2 * j, q, right_of_transposed(s.K, k, 16 * j));
      }
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j > warp) continue;
      store_left(s.P, 16 * warp, 16 * j,
                 gated_scores(p[2 * j], p[2 * j + 1], s.g, 16 * warp, 16 * j));
    }
  }

  // Oᵀ rows 32 warp …: o[block of 16][token / 8].
  // V̂ᵀ takes the registers that S no longer needs.
  static __device__ void outputs(Shared& s, const Left (&S)[2][8], const Left* values,
                                 Sum (&o)[2][8]) {
    const int t = threadIdx.x % 4;
    Left value[2][4];  // [block of 16][token / 16]
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      if (k % 2 == 1) {
        value[0][k / 2] = values[k / 2 * 32];
        value[1][k / 2] = values[(4 + k / 2) * 32];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const RightPair q = right_of_transposed(s.Q, 16 * k, 16 * i);
        mma(o[0] + 2 * i, S[0][k], q);
        mma(o[1] + 2 * i, S[1][k], q);
      }
    }
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const float2 g = *reinterpret_cast<const float2*>(s.g + 8 * n + 2 * t);
      const float2 gamma = {exponential(g.x), exponential(g.y)};
      scale_columns(o[0][n], gamma);
      scale_columns(o[1][n], gamma);
    }
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = j; i < 4; ++i) {
        const RightPair p = right_of_transposed(s.P, 16 * j, 16 * i);
        mma(o[0] + 2 * i, value[0][j], p);
        mma(o[1] + 2 * i, value[1][j], p);
      }
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& s) {
    const Tensors& x = arguments.tensors;
    const int warp = dealt_warp(), lane = threadIdx.x % 32;
    const Place at =
        place_of(x.chunks[blockIdx.x / arguments.value_heads], blockIdx.x % arguments.value_heads,
                 arguments.query_heads, arguments.value_heads);
    load<threads>(s.Q, x.q + at.query(), at.query_stride(), at.length);
    load<threads>(s.K, x.k + at.query(), at.query_stride(), at.length);
    commit_copies();
    const Left* states = arguments.chain.S + blockIdx.x * Handover::state_size + warp * 2 * 8 * 32;
    const Left* values =
        arguments.chain.value + blockIdx.x * Handover::value_size + warp * 2 * 4 * 32;
    Left S[2][8];  // [block of 16][key / 16]
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int k = 0; k < 8; ++k) S[m][k] = states[(m * 8 + k) * 32 + lane];
    }
    if (threadIdx.x < chunk_tokens) {
      s.g[threadIdx.x] = x.g[at.gate(min(static_cast<int>(threadIdx.x), at.length - 1))];
    }
    wait_copies<0>();
    __syncthreads();
    scores(s, warp);
    __syncthreads();  // P is there, K is no longer read
    Sum o[2][8] = {};
    outputs(s, S, values + lane, o);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        scale(o[m][n], output_scale);
        const int token = 8 * n + lane / 4, column = 32 * warp + 16 * m + lane % 4 * 2;
        s.O.pair(token, column) = transposed(pack(o[m][n].x[0], o[m][n].x[1]));
        s.O.pair(token, column + 8) = transposed(pack(o[m][n].x[2], o[m][n].x[3]));
      }
    }
    __syncthreads();
    store<threads>(x.output + at.value(), at.value_stride(), at.length, s.O);
  }
};

static_assert(sizeof(ChunkOutput::Shared) <= 48 * 1024);

}  // namespace gdn::sm80
