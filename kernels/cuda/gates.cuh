// The gates of one chunk as the kernels of the chain use them, and how they are brought in.
#pragma once

#include "kernels/cuda/place.cuh"

namespace gdn {

struct ChunkGates {  // 1,024 bytes, [token]; tokens beyond the end repeat the last one's g
  float g[chunk_tokens];
  float beta[chunk_tokens];   // 0 beyond the end: nothing is written there
  float gamma[chunk_tokens];  // exp(g)
  float fade[chunk_tokens];   // exp(g_C − g)

  __device__ float gamma_C() const { return gamma[chunk_tokens - 1]; }
};

// A number of each token, so that what a lane needs for its columns of products (tokens 8 n + 2 t
// and the next, of all n, with t = lane % 4) stands side by side: it comes 16 bytes at a time, and
// shared memory is read half as often as for pairs.
struct ColumnVector {  // 320 bytes
  float4 x[4][5];      // [t][n / 2]; the last is there to keep lanes from colliding

  __device__ float& at(int token) {
    return reinterpret_cast<float*>(x[token / 2 % 4])[token / 8 * 2 + token % 2];
  }
  __device__ float at(int token) const { return const_cast<ColumnVector*>(this)->at(token); }
  // Tokens 16 i + 2 t, the next, and those 8 further on.
  __device__ const float4& columns(int t, int i) const { return x[t][i]; }
};

// The gates of one chunk for kernels that divide by γ where it is worth it. There γ' stands for γ,
// which is held at e^−64 and above: 1/γ' leaves ten digits of range to what it multiplies, and what
// γ' is too much by is a 10^28th of what it multiplies.
struct RatioGates {  // 1,552 bytes; tokens beyond the end repeat the last one's g
  static constexpr float least = -64;

  float g[chunk_tokens];
  ColumnVector inverse;   // 1/γ'
  ColumnVector residual;  // −β γ', 0 beyond the end: nothing is written there
  ColumnVector fade;      // exp(g_C − g)
  ColumnVector output;    // scale · γ'
  bool ill_conditioned;

  __device__ float gamma_C() const { return sm80::exponential(g[chunk_tokens - 1]); }
  // Whether γ' is γ in all of the chunk.
  __device__ bool exact() const { return g[chunk_tokens - 1] >= least; }
  // Of tokens 16 i + 8 half + 2 t and the next: 1/γ' where that is exact, else g.
  template <bool exact>
  __device__ float2 ratio_or_gate(int t, int i, int half) const {
    if constexpr (exact) {
      const float4& both = inverse.columns(t, i);
      return half == 0 ? float2{both.x, both.y} : float2{both.z, both.w};
    } else {
      return *reinterpret_cast<const float2*>(g + 16 * i + 8 * half + 2 * t);
    }
  }
};

// The gates of a chunk in registers, a token a thread: read a chunk before they are written for all
// to see, so that the memory's latency is not waited for.
struct TokenGates {
  float g = 0, beta = 0, last_g = 0;

  // `at` is the chunk, as long as the rest of its sequence; behind the end nothing is read.
  __device__ void read(const Tensors& x, const Place& at) {
    const int token = static_cast<int>(threadIdx.x), end = min(at.length, chunk_tokens) - 1;
    if (end < 0 || token >= chunk_tokens) return;
    g = x.g[at.gate(min(token, end))];
    last_g = x.g[at.gate(end)];
    beta = token <= end ? x.beta[at.gate(token)] : 0;
  }
  __device__ void write(ChunkGates& gates) const {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= chunk_tokens) return;
    gates.g[token] = g;
    gates.beta[token] = beta;
    gates.gamma[token] = sm80::exponential(g);
    gates.fade[token] = decay(last_g, g);
  }
  __device__ void write(RatioGates& gates) const {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= chunk_tokens) return;
    const float held = max(g, RatioGates::least), gamma = sm80::exponential(held);
    gates.g[token] = g;
    gates.inverse.at(token) = sm80::exponential(-held);
    gates.residual.at(token) = -beta * gamma;
    gates.fade.at(token) = decay(last_g, g);
    gates.output.at(token) = output_scale * gamma;
  }
};

}  // namespace gdn
