// The products of the residual form (form 4 of kernels/README.md) as warps share them.
//
// Everything is transposed: a warp keeps 16 rows of Sᵀ, which are columns of values, in fp32
// accumulators. Rows of Sᵀ, Rᵀ, V̂ᵀ and Oᵀ are left operands, which accumulators become by a
// conversion alone; K, Q, A and P are right operands, from shared memory. So where a warp has its
// values to itself (`split` = 1), nothing of the chain leaves its registers. Where several warps
// share the same values, each has a part of the keys in S and a part of the tokens in R, V̂ and O,
// and fragments pass among them through shared memory (Spread, below).
#pragma once

#include "kernels/cuda/gates.cuh"
#include "kernels/sm80/barrier.cuh"
#include "kernels/sm80/tile.cuh"

namespace gdn::sm80 {

// What a warp has of a chunk: 16 values, with `split` − 1 other warps.
template <int split_>
struct Share {
  static constexpr int split = split_;
  static constexpr int key_blocks = head_dim / 16 / split;        // of 16 keys, in S
  static constexpr int token_blocks = chunk_tokens / 16 / split;  // of 16 tokens, in R, V̂ and O

  int block;  // of 16 values
  int part;   // 0 … split − 1

  static __device__ Share of_warp() {
    const int warp = opaque(threadIdx.x / 32);
    return {warp / split, split == 1 ? 0 : warp % split};
  }
  __device__ int value() const { return 16 * block; }
  __device__ int key(int k) const { return 16 * (part * key_blocks + k); }
  __device__ int token_block(int i) const { return part * token_blocks + i; }
  __device__ int token(int i) const { return 16 * token_block(i); }
};

template <class Share>
using State = Sum[2 * Share::key_blocks];  // Sᵀ: [key / 8]
template <class Share>
using Values = Sum[2 * Share::token_blocks];  // of Rᵀ, V̂ᵀ or Oᵀ: [token / 8]

// Fragments [token / 16] of Rᵀ or V̂ᵀ for every warp that shares their values. One warp alone keeps
// them in registers; else they pass through the places in `tile` [token][value] of the very
// elements that they are made of.
template <class Share>
struct Spread {
  Left own[Share::token_blocks];

  template <class Tile>
  __device__ void put(const Share& share, Tile& tile) const {
    if constexpr (Share::split > 1) {
      __syncwarp();  // other lanes have read from here what theirs are made of
#pragma unroll
      for (int i = 0; i < Share::token_blocks; ++i) {
        tile.fragment(share.token(i), share.value()) = own[i];
      }
    }
  }
  template <class Tile>
  __device__ Left at(const Share& share, Tile& tile, int i) const {
    if constexpr (Share::split > 1) return tile.fragment(16 * i, share.value());
    return own[i];
  }
};

// d += Sᵀ Xᵀ for this share's tokens. X is K or Q; `state(k)` is the fragment of keys 16k ….
template <class Share, class StateAt, class Tile>
__device__ void multiply_state(const Share& share, StateAt state, Tile& X, Values<Share>& d) {
#pragma unroll
  for (int k = 0; k < head_dim / 16; ++k) {
    const Left s = state(k);
#pragma unroll
    for (int i = 0; i < Share::token_blocks; ++i) {
      mma(d + 2 * i, s, right_of_transposed(X, 16 * k, share.token(i)));
    }
  }
}

// d += Xᵀ Mᵀ for this share's tokens, with M lower triangular: A or P. `left(j)` is the fragment of
// tokens 16j ….
template <class Share, class LeftAt, class Tile>
__device__ void multiply_lower(const Share& share, LeftAt left, Tile& M, Values<Share>& d) {
#pragma unroll
  for (int j = 0; j < chunk_tokens / 16; ++j) {
    if (j > share.token_block(Share::token_blocks - 1)) continue;
    const Left x = left(j);
#pragma unroll
    for (int i = 0; i < Share::token_blocks; ++i) {
      if (j > share.token_block(i)) continue;
      mma(d + 2 * i, x, right_of_transposed(M, 16 * j, share.token(i)));
    }
  }
}

// B R = B (V − Γ K S), of which `KS` is the product.
template <class Share, class Tile>
__device__ Spread<Share> residual(const Share& share, const ChunkGates& gates, Tile& V,
                                  const Values<Share>& KS) {
  const int t = threadIdx.x % 4;
  Spread<Share> R;
#pragma unroll
  for (int i = 0; i < Share::token_blocks; ++i) {
    const auto* gamma = reinterpret_cast<const float2*>(gates.gamma + share.token(i)) + t;
    const auto* beta = reinterpret_cast<const float2*>(gates.beta + share.token(i)) + t;
    const Left v = left_of_transposed(V, share.value(), share.token(i));
#pragma unroll
    for (int x = 0; x < 4; ++x) {  // x / 2: which eight tokens, x % 2: which eight values
      const float2 value = unpack(v.x[x]), g = gamma[x / 2 * 4], b = beta[x / 2 * 4];
      const float* ks = KS[2 * i + x / 2].x + x % 2 * 2;
      R.own[i].x[x] = pack(b.x * (value.x - g.x * ks[0]), b.y * (value.y - g.y * ks[1]));
    }
  }
  return R;
}

// The same values as fragments.
template <class Share>
__device__ Spread<Share> rounded(const Values<Share>& d) {
  Spread<Share> all;
#pragma unroll
  for (int i = 0; i < Share::token_blocks; ++i) all.own[i] = left(d[2 * i], d[2 * i + 1]);
  return all;
}

// Each token's values times its factor.
template <class Share>
__device__ void scale_tokens(const Share& share, Values<Share>& d, const float* factor) {
#pragma unroll
  for (int i = 0; i < Share::token_blocks; ++i) {
    const auto* f = reinterpret_cast<const float2*>(factor + share.token(i)) + threadIdx.x % 4;
    scale_columns(d[2 * i], f[0]);
    scale_columns(d[2 * i + 1], f[4]);
  }
}
// The same for a fragment whose tokens begin at `first`.
__device__ inline Left scale_tokens(const Left& a, const float* factor, int first) {
  const auto* f = reinterpret_cast<const float2*>(factor + first) + threadIdx.x % 4;
  return scale_columns(a, f[0], f[4]);
}

// S' = γ_C S + Kᵀ V̂, with `left(i)` the fragments of faded V̂ᵀ, for this share's keys.
template <class Share, class LeftAt, class Tile>
__device__ void update_state(const Share& share, float gamma_C, LeftAt left, Tile& K,
                             State<Share>& S) {
#pragma unroll
  for (int n = 0; n < 2 * Share::key_blocks; ++n) scale(S[n], gamma_C);
#pragma unroll
  for (int i = 0; i < chunk_tokens / 16; ++i) {
    const Left x = left(i);
#pragma unroll
    for (int k = 0; k < Share::key_blocks; ++k) {
      mma(S + 2 * k, x, right_of(K, 16 * i, share.key(k)));
    }
  }
}

// Visits this lane's elements of Sᵀ with their places in a state [dk][dv] whose values begin at
// `first_value`.
template <class Share, class Visit>
__device__ void for_each_element(const Share& share, State<Share>& S, int first_value,
                                 Visit visit) {
  const int key = share.key(0) + threadIdx.x % 4 * 2;
  const int value = first_value + share.value() + threadIdx.x % 32 / 4;
#pragma unroll
  for (int n = 0; n < 2 * Share::key_blocks; ++n) {
#pragma unroll
    for (int x = 0; x < 4; ++x) {
      visit(S[n].x[x], (key + 8 * n + x % 2) * head_dim + value + x / 2 * 8);
    }
  }
}

// What a chunk needs of memory: `width` values of a head.
template <int width>
struct StateInput {
  Tile<chunk_tokens, head_dim> K;      // [token][key]
  Tile<chunk_tokens, width> V;         // [token][value]
  Tile<chunk_tokens, chunk_tokens> A;  // [i][j]
  ChunkGates gates;
};
template <int width>
struct ChunkInput : StateInput<width> {
  Tile<chunk_tokens, head_dim> Q;  // [token][key]
};

// Enqueues a chunk's copies, by all `threads` threads of a CTA. `at` is the chunk, as long as the
// rest of its sequence: at the end of that and behind it nothing but 0 comes.
template <int threads, int unroll = 8, class Input>
__device__ void load_chunk(Input& input, const Tensors& x, const Place& at, int first_value) {
  load<threads, unroll>(input.K, x.k + at.query(), at.query_stride(), at.length);
  load<threads, unroll>(input.V, x.v + at.value() + first_value, at.value_stride(), at.length);
  load<threads, unroll>(input.A, x.A + at.inverse(), at.inverse_stride(), at.length);
  if constexpr (requires { input.Q; }) {
    load<threads, unroll>(input.Q, x.q + at.query(), at.query_stride(), at.length);
  }
  commit_copies();
}

// The chain that a CTA serves: a head of a sequence, `width` of its values.
template <int width>
struct ChainOf {
  static constexpr int slices = head_dim / width;  // CTAs a head

  int sequence;
  int first_value;
  Place at;  // of the first chunk, as long as the sequence

  // Of the head's state in initial_state and final_state, for a chain of_block.
  static __device__ std::int64_t corner() {
    return blockIdx.x / slices * std::int64_t{head_dim * head_dim};
  }

  static __device__ ChainOf of_block(const Tensors& x, int query_heads, int value_heads) {
    const int chain = blockIdx.x / slices, sequence = chain / value_heads;
    const int token = x.offsets[sequence], length = x.offsets[sequence + 1] - token;
    return {sequence, static_cast<int>(blockIdx.x % slices) * width,
            place_of({sequence, 0, token, length}, chain % value_heads, query_heads, value_heads)};
  }
};

}  // namespace gdn::sm80
