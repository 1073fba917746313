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

// The gates of one chunk for kernels that divide by γ where it is worth it. There γ' stands for γ,
// which is held at e^−64 and above: 1/γ' leaves ten digits of range to what it multiplies, and what
// γ' is too much by is a 10^28th of what it multiplies.
struct RatioGates {  // 1,280 bytes, [token]; tokens beyond the end repeat the last one's g
  static constexpr float least = -64;

  float g[chunk_tokens];
  float inverse[chunk_tokens];   // 1/γ'
  float residual[chunk_tokens];  // −β γ', 0 beyond the end: nothing is written there
  float fade[chunk_tokens];      // exp(g_C − g)
  float output[chunk_tokens];    // scale · γ'

  __device__ float gamma_C() const { return sm80::exponential(g[chunk_tokens - 1]); }
  // Whether γ' is γ in all of the chunk.
  __device__ bool exact() const { return g[chunk_tokens - 1] >= least; }
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
    gates.inverse[token] = sm80::exponential(-held);
    gates.residual[token] = -beta * gamma;
    gates.fade[token] = decay(last_g, g);
    gates.output[token] = output_scale * gamma;
  }
};

}  // namespace gdn
