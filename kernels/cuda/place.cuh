// Where one chunk of one value head lies in the tensors, the gates' ratios, and who does what.
#pragma once

#include <cstdint>

#include "kernels/sm80/exponential.cuh"
#include "kernels/variant.hpp"

namespace gdn {

struct Place {
  int token;   // first token of the chunk
  int length;  // tokens of the chunk; in a chain, of the sequence from here on
  int head;    // value head
  int query_head;
  int query_heads, value_heads;

  // The place `chunks` further on in the sequence, of which `length` is all that is left.
  __device__ Place after(int chunks) const {
    Place next = *this;
    next.token += chunks * chunk_tokens;
    next.length -= chunks * chunk_tokens;
    return next;
  }

  __device__ int query_stride() const { return query_heads * head_dim; }
  __device__ int value_stride() const { return value_heads * head_dim; }
  __device__ int inverse_stride() const { return value_heads * chunk_tokens; }

  // Where the chunk's first row is in q and k, in v and output, in A; row i in g, raw_g and beta,
  // of which there are fewer than 2^31 where what belongs to them, 900 bytes each, is on a device.
  __device__ std::int64_t query() const { return row(query_heads, query_head) * head_dim; }
  __device__ std::int64_t value() const { return row(value_heads, head) * head_dim; }
  __device__ std::int64_t inverse() const { return row(value_heads, head) * chunk_tokens; }
  __device__ int gate(int i) const { return (token + i) * value_heads + head; }

 private:
  __device__ std::int64_t row(int heads, int own) const {
    return std::int64_t{token} * heads + own;
  }
};

__device__ inline Place place_of(const Chunk& chunk, int head, int query_heads, int value_heads) {
  return {chunk.token, chunk.length, head, head / (value_heads / query_heads),
          query_heads, value_heads};
}

// exp(g_later − g_earlier), never above 1: what is left at a later token of the same chunk.
__device__ inline float decay(float later, float earlier) {
  return sm80::exponential(later - earlier);
}

// Which of four warps with unequal work this one is, dealt so that the busiest of the CTAs that
// share a multiprocessor fall to different schedulers (a warp's is its number modulo 4).
__device__ inline int dealt_warp() { return (threadIdx.x / 32 + blockIdx.x / 4) % 4; }

}  // namespace gdn
