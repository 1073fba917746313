// The residual form in one kernel, for rungs 3 to 5: S and V̂ never leave the multiprocessor.
//   P = tril(QKᵀ ∘ exp(g_i − g_j))                Scores
//   R = V − Γ K S                                 multiply_state, residual
//   V̂ = A B R                                     multiply_lower
//   O = scale (Γ Q S + P V̂)                       multiply_state, multiply_lower
//   S' = γ_C S + Kᵀ diag(exp(g_C − g)) V̂          update_state
// A CTA takes `width` values of a head and is serial over its chunks. With a warp for 16 values all
// that a warp needs of S, R and V̂ is in its registers; with two or four warps for the same 16
// values they hand fragments to each other in shared memory.
//
// A chunk, and what orders it (*: among the warps of the same values, where there are several):
//   inputs and S are there ─► P, in registers; K S; R ─*─► V̂
//   ─ everybody has read A and R ─► P over A, V̂ over R
//   ─ everybody has written them ─► Q S, P V̂, O goes out; S' ─*─► S over the old one
#pragma once

#include <type_traits>
#include <utility>

#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/scores.cuh"

namespace gdn::sm80 {

template <int width, int threads_, int stages>
struct FusedChain {
  static constexpr const char* name = width == head_dim ? "wide" : "fused";
  static constexpr int threads = threads_;
  static constexpr int blocks_per_processor = 1;
  static constexpr int warps = threads / 32, value_blocks = width / 16;
  static constexpr int unroll = stages > 1 ? 8 : 2;          // of the copies: see load_rows
  static constexpr int ahead = stages > 1 ? stages - 1 : 1;  // chunks that are loaded ahead

  using Share = sm80::Share<(warps > value_blocks ? warps / value_blocks : 1)>;
  static_assert(warps >= value_blocks);
  using Input = ChunkInput<width>;

  // Barriers by what they wait for; `exchange` is the first of one for each 16 values.
  enum Event { everybody, exchange };

  struct Arguments {
    Tensors tensors;
    int query_heads, value_heads;
  };

  struct NoState {};
  struct StateFragments {
    Left x[value_blocks][head_dim / 16][32];  // [value / 16][key / 16][lane]
  };
  struct Shared {
    Input input[stages];
    std::conditional_t<(Share::split > 1), StateFragments, NoState> state;  // Sᵀ, rounded
  };

  static __device__ void meet(const Share& share) {
    if constexpr (Share::split > 1) barrier<32 * Share::split>(exchange + share.block);
  }

  // Shows this warp's keys of S to the others of its values.
  static __device__ void put_state(const Share& share, const State<Share>& S, Shared& shared) {
    if constexpr (Share::split > 1) {
#pragma unroll
      for (int k = 0; k < Share::key_blocks; ++k) {
        shared.state.x[share.block][share.part * Share::key_blocks + k][threadIdx.x % 32] =
            left(S[2 * k], S[2 * k + 1]);
      }
    }
  }

  // One chunk.
  static __device__ void step(const Share& share, Shared& shared, Input& input, State<Share>& S,
                              BFloat16* output, const Place& at) {
    const int lane = opaque(threadIdx.x % 32);
    const auto state_at = [&](int k) {
      if constexpr (Share::split > 1) return shared.state.x[share.block][k][lane];
      return left(S[2 * k], S[2 * k + 1]);
    };
    const ChunkGates& gates = input.gates;

    Scores<warps> P;
    P.make(input.Q, input.K, gates.g);
    Values<Share> KS = {};
    multiply_state(share, state_at, input.K, KS);
    const Spread<Share> R = residual(share, gates, input.V, KS);
    R.put(share, input.V);
    meet(share);  // R is there
    Values<Share> value = {};
    multiply_lower(
        share, [&](int j) { return R.at(share, input.V, j); }, input.A, value);
    const Spread<Share> V = rounded<Share>(value);
    __syncthreads();  // A and R are no longer read
    P.put(input.A);
    V.put(share, input.V);
    __syncthreads();  // P and V̂ are there
    const auto value_at = [&](int i) { return V.at(share, input.V, i); };
    Values<Share> o = {};
    multiply_state(share, state_at, input.Q, o);
    scale_tokens(share, o, gates.gamma);
    multiply_lower(share, value_at, input.A, o);
#pragma unroll
    for (int i = 0; i < Share::token_blocks; ++i) {
      scale(o[2 * i], output_scale);
      scale(o[2 * i + 1], output_scale);
      store_transposed(output + at.value() + share.value(), at.value_stride(), at.length,
                       share.token(i), left(o[2 * i], o[2 * i + 1]));
    }
    const auto faded_at = [&](int i) { return scale_tokens(value_at(i), gates.fade, 16 * i); };
    update_state(share, gates.gamma_C(), faded_at, input.K, S);
    meet(share);  // S is no longer read
    put_state(share, S, shared);
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const Tensors& x = arguments.tensors;
    const auto chain = ChainOf<width>::of_block(x, arguments.query_heads, arguments.value_heads);
    TokenGates gates;
    gates.read(x, chain.at);
    for (int stage = 0; stage < ahead; ++stage) {
      load_chunk<threads, unroll>(shared.input[stage], x, chain.at.after(stage), chain.first_value);
    }
    gates.write(shared.input[0].gates);
    gates.read(x, chain.at.after(1));
    const Share share = Share::of_warp();
    State<Share> S = {};
    if (x.initial_state) {
      for_each_element(share, S, chain.first_value,
                       [&](float& s, int i) { s = x.initial_state[chain.corner() + i]; });
    }
    put_state(share, S, shared);
    int stage = 0;
    for (Place at = chain.at; at.length > 0; at = at.after(1)) {
      wait_copies<ahead - 1>();
      __syncthreads();  // this chunk is there, and the one before no longer read
      if constexpr (stages > 1) {
        const int free_stage = stage == 0 ? stages - 1 : stage - 1;
        load_chunk<threads, unroll>(shared.input[free_stage], x, at.after(ahead),
                                    chain.first_value);
      }
      step(Share::of_warp(), shared, shared.input[stage], S, x.output + chain.first_value, at);
      if constexpr (stages == 1) {
        __syncthreads();  // the input is no longer read
        load_chunk<threads, unroll>(shared.input[0], x, at.after(1), chain.first_value);
      }
      stage = stage + 1 == stages ? 0 : stage + 1;
      gates.write(shared.input[stage].gates);
      gates.read(x, at.after(2));
    }
    for_each_element(share, S, chain.first_value,
                     [&](float& s, int i) { x.final_state[chain.corner() + i] = s; });
  }
};

template <int width, int threads, int stages>
Instance fused_instance(std::vector<Knob> knobs) {
  using Kernel = FusedChain<width, threads, stages>;
  return {.knobs = std::move(knobs),
          .stages = {stage_of<Kernel>()},
          .workspace_bytes = nullptr,
          .setup = [](const Problem& problem, const Tensors& tensors, void*) {
            return launcher<Kernel>(
                std::int64_t{head_dim / width} * problem.sequences() * problem.value_heads,
                {tensors, problem.query_heads, problem.value_heads});
          }};
}

}  // namespace gdn::sm80
