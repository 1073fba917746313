// The gates of one chunk as the kernels of the chain use them, and how they are brought in.
#pragma once

#include "kernels/cuda/place.cuh"
#include "kernels/sm80/mma.cuh"

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

// The gates of one chunk for kernels that divide by γ where it is worth it, and that need not have
// the state S itself, but S/u, where u is the product of the γ_C of chunks since it was S. Then γ̃ =
// u γ is to S/u what γ is to S. There γ' stands for γ̃, which is held at e^−48 and above: what γ' is
// too much by is a 10^21st of what it multiplies, S/u and what is added to that.
struct RatioGates {                    // 1,552 bytes; tokens beyond the end repeat the last one's g
  static constexpr float least = -48;  // of log γ'
  static constexpr float least_unit = -24;  // of log u
  static constexpr float most = 80;         // of the log of what a score is multiplied by

  // Of the chunk, and asked for at once.
  struct alignas(16) Whole {
    float factor;  // of S/u, for it to be S behind the chunk: γ̃_C; or 1: it stays S/u
    unsigned ill_conditioned;  // whether it is
    float inverse_factor;      // maybe infinite in a steep chunk, which has no use for it
    float unit;  // where A is folded: u behind the chunk, if S shall be there and not S/u; else 1
  };

  float g[chunk_tokens];  // log γ̃
  ColumnVector inverse;   // 1/γ'
  ColumnVector
      residual;  // −β γ', or −β where A is folded; 0 beyond the end, where nothing is written
  ColumnVector fade;    // of what a token adds to S: reach/γ̃; to S/u: 1/γ̃
  ColumnVector output;  // scale · γ'
  Whole whole;

  // What a folded A has of a token's gates (variant.hpp), but in a gentle chunk: F and G. The
  // state's u is in neither.
  static constexpr float least_of_gentle = -48;  // of the log of γ_C
  static __device__ float row(float g, float last) { return sm80::exponential(reach(g, last) - g); }
  static __device__ float column(float g) { return sm80::exponential(max(g, least)); }
  // Its element on the diagonal. Rounding would take as much from all that the token writes and
  // erases, and what is multiplied by it would be rounded once more. So its column is that much
  // smaller for the element to be a power of 2, and `residual` makes good for it. Not where there
  // is a low half.
  static __device__ float diagonal(float g, float last) {
    return sm80::exponential(reach(g, last) - g + max(g, least));
  }
  // 1 … 2, by which they are multiplied: the mantissa of that element.
  static __device__ float excess(float g, float last) {
    return __uint_as_float((__float_as_uint(diagonal(g, last)) & 0x7FFFFF) | 0x3F800000);
  }

  // Whether γ' is γ̃ in all of the chunk; else it is steep.
  __device__ bool exact() const { return g[chunk_tokens - 1] >= least; }
  // log γ̃_C, of which `fade` makes exp(g_C − g); or more, where P' could not make good for so
  // little: e^−80 behind a token of log γ̃ down to −48, at most e^−32 of what it writes.
  static __device__ float reach(float log_gamma, float last) {
    return max(last, min(log_gamma - least, 0.F) - most);
  }
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

// The factors of QKᵀ in P' where there is S behind the chunk, exp(g_i − g_j)/(γ'_i fade_j), of two
// rows i: `first`, and that 8 further on. They are at most e^80 for j up to i, and all the same but
// in a steep chunk. For other j they may be infinite: who calls cuts these away, bit by bit. They
// stand in registers as far as there are, or the compiler would read them again behind each store.
template <bool steep>
struct ScoreFactors {
  float all;
  __device__ ScoreFactors(const RatioGates&, const RatioGates::Whole& whole, int)
      : all(whole.inverse_factor) {}
  // Of this row and columns 16 i + 8 half + 2 t and the next.
  __device__ float2 operator()(int, int, int, int) const { return {all, all}; }
};
template <>
struct ScoreFactors<true> {
  const RatioGates& gates;
  float last, later[2];  // min(log γ̃_i + 48, 0), which is log γ̃_i/γ'_i
  __device__ ScoreFactors(const RatioGates& gates, const RatioGates::Whole&, int first)
      : gates(gates),
        last(gates.g[chunk_tokens - 1]),
        later{min(gates.g[first] - RatioGates::least, 0.F),
              min(gates.g[first + 8] - RatioGates::least, 0.F)} {}
  __device__ float2 operator()(int row, int t, int i, int half) const {
    const float2 g = gates.ratio_or_gate<false>(t, i, half);
    return {sm80::exponential(later[row] - RatioGates::reach(g.x, last)),
            sm80::exponential(later[row] - RatioGates::reach(g.y, last))};
  }
};

// Of the token of a thread what RatioGates has of it, and of the chunk, before there is a place.
struct RatioToken {
  float g, inverse, residual, fade, output;
  RatioGates::Whole whole;

  // By the threads of the chunk's tokens alone: to ask again takes registers that Load has not.
  template <bool folded = false>
  __device__ void put(RatioGates& to) const {
    const int token = static_cast<int>(threadIdx.x);
    to.g[token] = g;
    to.inverse.at(token) = inverse;
    to.residual.at(token) = residual;
    if (!folded) to.fade.at(token) = fade;
    to.output.at(token) = output;
    if (token == 0) to.whole = whole;
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
    const int own = at.gate(min(token, end));
    g = x.g[own];
    last_g = x.g[at.gate(end)];
    beta = token <= end ? x.beta[own] : 0;
  }
  __device__ void write(ChunkGates& gates) const {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= chunk_tokens) return;
    gates.g[token] = g;
    gates.beta[token] = beta;
    gates.gamma[token] = sm80::exponential(g);
    gates.fade[token] = decay(last_g, g);
  }
  // What RatioGates has of the token, in a chunk before which there is S/u, and behind it S, or S/u
  // still. `log_u` is at least least_unit, and so it must be with this chunk's, where there is S/u
  // behind it.
  __device__ RatioToken ratios(float log_u = 0, bool is_S_behind = true) const {
    const float log_gamma = log_u + g, last = log_u + last_g;
    const float held = max(log_gamma, RatioGates::least);
    const float gamma = sm80::exponential(held), inverse = sm80::exponential(-held);
    const float log_factor = is_S_behind ? last : 0;
    return {
        log_gamma,
        inverse,
        -beta * gamma,
        is_S_behind ? sm80::exponential(RatioGates::reach(log_gamma, last) - log_gamma) : inverse,
        output_scale * gamma,
        {sm80::exponential(log_factor), 0, sm80::exponential(-log_factor), 1}};
  }
  // The same where A is folded: of a gentle chunk, of which S/u is multiplied by e^log_unit behind.
  __device__ RatioToken gentle_ratios(float log_u, float log_unit) const {
    return folded_ratios(log_u + g, 1, 0, {1, 0, 1, sm80::exponential(log_unit)});
  }
  // And of another one. There is S behind it, and `factor` for its own γ_C, whatever u is.
  __device__ RatioToken other_ratios(float log_u, bool is_split) const {
    return folded_ratios(log_u + max(g, RatioGates::least),
                         is_split ? 1 : RatioGates::excess(g, last_g), g,
                         {sm80::exponential(last_g), is_split, sm80::exponential(-last_g),
                          sm80::exponential(log_u)});
  }

 private:
  __device__ RatioToken folded_ratios(float log_gamma, float of_residual, float g,
                                      const RatioGates::Whole& whole) const {
    const float x = sm80::log2_e * log_gamma;
    return {g,    sm80::power_of_2(-x), of_residual * -beta, 0, output_scale * sm80::power_of_2(x),
            whole};
  }
};

}  // namespace gdn
