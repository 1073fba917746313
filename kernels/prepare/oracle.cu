// The fp64 recurrence, token by token (form 1 of kernels/README.md):
//   S ← α S;  S ← S + β kᵀ (v − k S);  o = scale · q S                                      step
//
// Columns of S do not meet, so a column is the work of eight lanes that hold 16 of its rows each: a
// warp has four columns, a CTA 16, a head eight CTAs. k S and q S are sums within a lane, then over
// three shuffles, always in the same order.
//
// Tokens are serial: ~1000 cycles each (two reductions, 32 conversions, 64 fp64 operations a lane;
// the next token's rows are on their way), 20 ms for 32768 tokens on any number of heads up to
// ~100.
#include "kernels/cuda/launch.cuh"
#include "kernels/prepare/oracle.hpp"

namespace gdn {
namespace gpu {

struct Oracle {
  static constexpr const char* name = "oracle";
  static constexpr int threads = 128;
  static constexpr int blocks_per_processor = 4;
  static constexpr int slices = 8, rows = head_dim / slices;  // of a column; of a slice
  static constexpr int columns = threads / slices;            // of a CTA

  struct Arguments {
    Tensors tensors;
    int query_heads, value_heads;
    double* output;
    double* state;
  };
  struct Shared {};

  struct Token {       // as it comes from memory
    uint4 q[2], k[2];  // this lane's 16 rows
    BFloat16 v;
    float raw_g, beta;
  };

  static __device__ double to_double(BFloat16 x) {
    return __uint_as_float(static_cast<unsigned>(x.bits) << 16);
  }

  static __device__ void widen(const uint4 (&packed)[2], double (&x)[rows]) {
    const auto* pairs = reinterpret_cast<const unsigned*>(packed);
#pragma unroll
    for (int i = 0; i < rows / 2; ++i) {
      x[2 * i] = __uint_as_float(pairs[i] << 16);
      x[2 * i + 1] = __uint_as_float(pairs[i] & 0xFFFF'0000u);
    }
  }

  static __device__ double dot(const double (&x)[rows], const double (&S)[rows]) {
    double sum = 0;
#pragma unroll
    for (int i = 0; i < rows; ++i) sum = fma(x[i], S[i], sum);
#pragma unroll
    for (int step = 1; step < slices; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
    return sum;
  }

  static __device__ double step(const Token& token, double (&S)[rows]) {
    double k[rows], q[rows];
    widen(token.k, k);
    widen(token.q, q);
    const double alpha = exp(static_cast<double>(token.raw_g));
#pragma unroll
    for (double& x : S) x *= alpha;
    const double change = token.beta * (to_double(token.v) - dot(k, S));
#pragma unroll
    for (int i = 0; i < rows; ++i) S[i] = fma(k[i], change, S[i]);
    return dot(q, S) / sqrt(static_cast<double>(head_dim));
  }

  static __device__ void run(const Arguments& arguments, Shared&) {
    const Tensors& x = arguments.tensors;
    const int slice = threadIdx.x % slices;
    const int column = blockIdx.x % (head_dim / columns) * columns + threadIdx.x / slices;
    const int chain = blockIdx.x / (head_dim / columns);  // sequence and head
    const int head = chain % arguments.value_heads, sequence = chain / arguments.value_heads;
    const int query_head = head / (arguments.value_heads / arguments.query_heads);
    const std::int64_t first = x.offsets[sequence], end = x.offsets[sequence + 1];

    const auto read = [&](std::int64_t t) {
      const std::int64_t key = (t * arguments.query_heads + query_head) * head_dim + slice * rows;
      const std::int64_t value = t * arguments.value_heads + head;
      const auto* q = reinterpret_cast<const uint4*>(x.q + key);
      const auto* k = reinterpret_cast<const uint4*>(x.k + key);
      return Token{{q[0], q[1]},
                   {k[0], k[1]},
                   x.v[value * head_dim + column],
                   x.raw_g[value],
                   x.beta[value]};
    };

    const std::int64_t corner = (chain * std::int64_t{head_dim} + slice * rows) * head_dim + column;
    double S[rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      S[i] = x.initial_state ? x.initial_state[corner + i * head_dim] : 0.0;
    }
    Token token = {};
    if (first < end) token = read(first);
    for (std::int64_t t = first; t < end; ++t) {
      const Token next = t + 1 < end ? read(t + 1) : token;
      const double o = step(token, S);
      if (slice == 0) {
        arguments.output[(t * arguments.value_heads + head) * head_dim + column] = o;
      }
      token = next;
    }
#pragma unroll
    for (int i = 0; i < rows; ++i) arguments.state[corner + i * head_dim] = S[i];
  }
};

}  // namespace gpu

void enqueue_oracle(const Problem& problem, const Tensors& tensors, double* output, double* state,
                    Stream stream) {
  const std::int64_t chains = std::int64_t{problem.sequences()} * problem.value_heads;
  launcher<gpu::Oracle>(chains * (head_dim / gpu::Oracle::columns),
                        {tensors, problem.query_heads, problem.value_heads, output, state})(stream);
}

}  // namespace gdn
