// The residual form on Hopper with a warpgroup for each thing that is owned, for rungs 6 and 7.
//
// clang-format off
//   role    registers  owns and computes
//   Load       40      the ring of inputs: Q, K, V, A by the copy engine, gates by itself; the short
//                      chunk at a sequence's end by plain copies, as the engine would read on
//   State     200      S, in accumulators         S' = γ_C S + Kᵀ diag(exp(g_C − g)) V̂
//   Value     136      R and V̂, in V's place      R = V − Γ K S;  V̂ = A B R;  faded V̂
//   Output    136      P; O, in V's place         P = tril(QKᵀ ∘ exp(g_i − g_j))
//                                                 O = scale (Γ Q S + P V̂)
// clang-format on
//
// A CTA takes `width` values of a head and is serial over its chunks. All operands are in shared
// memory, S rounded to bf16.
//
// What orders a chunk ("A ─ e ─► B": A arrives at event e, B waits for it):
//   Load ─ full ─► everybody                  the inputs are there
//   State ─ StateForValue ─► Value            S is there: K S, R, V̂
//   State ─ StateForOutput ─► Output          S is there: Q S
//   Output ─ StateReadByOutput ─► State       Q S is done: S may be overwritten
//   Value ─ FadedReady ─► State               faded V̂ is there (and so K S is done): S'
//   Value ─ ValueReady ─► Output              V̂ is there: P V̂, and O goes out
//   State, Output ─ free ─► Load              the inputs may be overwritten
// The rest follows: State reads faded V̂ before it publishes the S that Value needs for the next
// one, and Value is done with the inputs before Output is. tests/protocol_test.cpp goes through all
// interleavings of this order, and takes each of these away.
#pragma once

#include <utility>

#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/roles.cuh"
#include "kernels/cuda/scores.cuh"
#include "kernels/sm90/barrier.cuh"
#include "kernels/sm90/matrix.cuh"
#include "kernels/sm90/tensor_map.hpp"
#include "kernels/sm90/tile.cuh"
#include "kernels/sm90/tma.cuh"
#include "kernels/sm90/warpgroup.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace gdn::sm90 {

using sm80::left;
using sm80::left_of;

// What State waits for before a product: `joint`, until the chunk's output is stored as well;
// `split`, until the faded V̂ is there and nothing else.
enum class Order { joint, split };

template <Order order, int width, int stages, bool beta_in_a>
struct SpecializedChain {
  static constexpr const char* name = order == Order::split ? "split_barrier" : "warp_specialized";
  static constexpr int threads = 512;
  static constexpr int blocks_per_processor = 1;

  // Of V's, S's and faded V̂'s tiles, which are whole panels: with 32 values half of a panel is
  // idle, and the copy engine brings twice as much of V as is used.
  static constexpr int columns = width < panel_columns ? panel_columns : width;

  enum Role { Load, State, Value, Output };  // by warpgroup
  // Numbered barriers, by what has happened when they open.
  enum Event {
    StateForValue = 1,  // S is in shared memory: State to Value
    StateForOutput,     //                        State to Output
    StateReadByOutput,  // and may be overwritten: Output to State
    FadedReady,         // faded V̂ is there (joint: and the output is stored)
    ValueReady,  // V̂ is there; one for even and one for odd chunks, as Value may be a chunk ahead
    ValueReadyOdd,
    ValueGroup,  // among the warps of a role
    OutputGroup,
  };

  struct Arguments {
    CUtensorMap q, k, v, A;
    Tensors tensors;
    int query_heads, value_heads;
  };

  struct Input {                         // 57,344 bytes with 128 values, else 49,152
    Tile<chunk_tokens, head_dim> Q, K;   // 16,384 each  [token][key]
    Tile<chunk_tokens, columns> V;       // 16,384 or 8,192  V → B R → V̂ → O  [token][value]
    Tile<chunk_tokens, chunk_tokens> A;  //  8,192  [i][j]
  };
  // 175,104 bytes with 128 values; with fewer 134,144 with two stages, 184,320 with three.
  struct Shared {
    Input input[stages];
    Tile<head_dim, columns> S;           // 32,768 or 16,384  [key][value]
    Tile<chunk_tokens, columns> faded;   // 16,384 or 8,192  [token][value]
    Tile<chunk_tokens, chunk_tokens> P;  //  8,192  [i][j]
    ChunkGates gates[stages];            //  1,024 each
    PhaseBarrier full[stages], free[stages];
  };

  static constexpr std::uint32_t input_bytes = sizeof(Input);
  static constexpr int warps_that_free = 8;  // of State and Output: Value is done before Output is

  // ---- Load

  static __device__ void load(const Arguments& arguments, Shared& shared,
                              const sm80::ChainOf<width>& chain) {
    const Tensors& x = arguments.tensors;
    TokenGates gates;
    gates.read(x, chain.at);
    Turn<stages> turn;
    for (Place at = chain.at; at.length > 0; at = at.after(1)) {
      Input& input = shared.input[turn.stage];
      PhaseBarrier& full = shared.full[turn.stage];
      jitter();
      shared.free[turn.stage].wait(turn.parity ^ 1);  // at once in the first round
      gates.write(shared.gates[turn.stage]);
      gates.read(x, at.after(1));
      const bool whole = has_engine && at.length >= chunk_tokens;
      if (!whole) {  // the copy engine knows no end of a sequence
        load_plainly<128, head_dim>(input.Q, x.q + at.query(), at.query_stride(), at.length);
        load_plainly<128, head_dim>(input.K, x.k + at.query(), at.query_stride(), at.length);
        load_plainly<128, width>(input.V, x.v + at.value() + chain.first_value, at.value_stride(),
                                 at.length);
        load_plainly<128, chunk_tokens>(input.A, x.A + at.inverse(), at.inverse_stride(),
                                        at.length);
        sm80::commit_copies();
        sm80::wait_copies<0>();
        publish_to_async();
        full.arrive();
      } else if (threadIdx.x == 0) {
        full.arrive_and_expect(input_bytes);
        for (int panel = 0; panel < 2; ++panel) {
          load_box(input.K.panel(panel), arguments.k, 64 * panel, at.query_head, at.token, full);
        }
        for (int panel = 0; panel < columns / 64; ++panel) {
          load_box(input.V.panel(panel), arguments.v, chain.first_value + 64 * panel, at.head,
                   at.token, full);
        }
        load_box(input.A.x, arguments.A, 0, at.head, at.token, full);
        for (int panel = 0; panel < 2; ++panel) {
          load_box(input.Q.panel(panel), arguments.q, 64 * panel, at.query_head, at.token, full);
        }
      } else {
        full.arrive();
      }
      turn.next();
    }
  }

  // ---- State

  // Visits this thread's pairs of S with their places, from that of its first on.
  template <class Float, class Visit>
  static __device__ void for_each_pair(Sum (&S)[2][width / 8], Float* first, Visit visit) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < width / 8; ++n) {
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          visit(S[m][n].x[2 * row], S[m][n].x[2 * row + 1],
                first + (64 * m + 8 * row) * head_dim + 8 * n);
        }
      }
    }
  }

  static __device__ void publish_state(Shared& shared, const Sum (&S)[2][width / 8]) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < width / 16; ++n) {
        put_left(shared.S, 64 * m + 16 * warp(), 16 * n, left(S[m][2 * n], S[m][2 * n + 1]));
      }
    }
    publish_to_async();
    arrive<256>(StateForValue);
    arrive<256>(StateForOutput);
  }

  static __device__ void state(const Arguments& arguments, Shared& shared,
                               const sm80::ChainOf<width>& chain) {
    const Tensors& x = arguments.tensors;
    const std::int64_t own =
        chain.corner() + (16 * warp() + lane() / 4) * head_dim + chain.first_value + lane() % 4 * 2;
    Sum S[2][width / 8] = {};
    if (x.initial_state) {
      for_each_pair(S, x.initial_state + own, [](float& low, float& high, const float* from) {
        const float2 pair = *reinterpret_cast<const float2*>(from);
        low = pair.x, high = pair.y;
      });
    }
    int left_over = chain.at.length;
    if (left_over > 0) publish_state(shared, S);
    Turn<stages> turn;
    while (left_over > 0) {
      Input& input = shared.input[turn.stage];
      shared.full[turn.stage].wait(turn.parity);
      const float gamma_C = shared.gates[turn.stage].gamma_C();
#pragma unroll
      for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < width / 8; ++n) scale(S[m][n], gamma_C);
      }
      jitter();
      sync<order == Order::joint ? 384 : 256>(FadedReady);
      products_begin();
#pragma unroll
      for (int k = 0; k < chunk_tokens; k += 16) {
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          multiply<Major::mn, Major::mn>(S[m], input.K.mn_major(64 * m, k),
                                         shared.faded.mn_major(0, k), true);
        }
      }
      products_commit();
      products_wait<0>();
      release(shared.free[turn.stage]);
      left_over -= chunk_tokens;
      jitter();
      sync<256>(StateReadByOutput);
      if (left_over > 0) publish_state(shared, S);
      turn.next();
    }
    for_each_pair(S, x.final_state + own, [](float low, float high, float* to) {
      *reinterpret_cast<float2*>(to) = {low, high};
    });
  }

  // ---- Value

  static __device__ void value(Shared& shared, int length) {
    const int row = 16 * warp() + lane() / 4;
    Turn<stages> turn;
    for (int chunk = 0; chunk * chunk_tokens < length; ++chunk, turn.next()) {
      Input& input = shared.input[turn.stage];
      const ChunkGates& gates = shared.gates[turn.stage];
      shared.full[turn.stage].wait(turn.parity);
      const float gamma[2] = {gates.gamma[row], gates.gamma[row + 8]};
      const float fade[2] = {gates.fade[row], gates.fade[row + 8]};
      const float beta[2] = {beta_in_a ? 1 : gates.beta[row], beta_in_a ? 1 : gates.beta[row + 8]};
      if constexpr (beta_in_a) {  // A B in A's place
#pragma unroll
        for (int k = 0; k < chunk_tokens; k += 16) {
          const auto* factor = reinterpret_cast<const float2*>(gates.beta + k) + lane() % 4;
          put_left(input.A, 16 * warp(), k,
                   scale_columns(left_of(input.A, 16 * warp(), k), factor[0], factor[4]));
        }
      }
      jitter();
      sync<256>(StateForValue);
      Sum d[width / 8];
      products_begin();
#pragma unroll
      for (int k = 0; k < head_dim; k += 16) {
        multiply<Major::k, Major::mn>(d, input.K.k_major(0, k), shared.S.mn_major(0, k), k > 0);
      }
      products_commit();
      products_wait<0>();
      jitter();
#pragma unroll
      for (int n = 0; n < width / 16; ++n) {
        Left v = left_of(input.V, 16 * warp(), 16 * n);
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // i % 2: which eight rows, i / 2: which eight columns
          const float2 pair = sm80::unpack(v.x[i]);
          const float* ks = d[2 * n + i / 2].x + i % 2 * 2;
          v.x[i] = sm80::pack(beta[i % 2] * (pair.x - gamma[i % 2] * ks[0]),
                              beta[i % 2] * (pair.y - gamma[i % 2] * ks[1]));
        }
        put_left(input.V, 16 * warp(), 16 * n, v);
      }
      publish_to_async();
      sync<128>(ValueGroup);  // R is there
      jitter();
      products_begin();
#pragma unroll
      for (int k = 0; k < chunk_tokens; k += 16) {
        multiply<Major::k, Major::mn>(d, input.A.k_major(0, k), input.V.mn_major(0, k), k > 0);
      }
      products_commit();
      products_wait<0>();
#pragma unroll
      for (int n = 0; n < width / 16; ++n) {
        Sum low = d[2 * n], high = d[2 * n + 1];
#pragma unroll
        for (int i = 0; i < 4; ++i) low.x[i] *= fade[i / 2], high.x[i] *= fade[i / 2];
        put_left(shared.faded, 16 * warp(), 16 * n, left(low, high));
      }
      publish_to_async();
      arrive<order == Order::joint ? 384 : 256>(FadedReady);
      jitter();
      sync<128>(ValueGroup);  // R is no longer read
#pragma unroll
      for (int n = 0; n < width / 16; ++n) {
        put_left(input.V, 16 * warp(), 16 * n, left(d[2 * n], d[2 * n + 1]));
      }
      publish_to_async();
      arrive<256>(ValueReady + chunk % 2);
    }
  }

  // ---- Output

  static __device__ void output(const Arguments& arguments, Shared& shared,
                                const sm80::ChainOf<width>& chain) {
    const int row = 16 * warp() + lane() / 4, thread = threadIdx.x % 128;
    Turn<stages> turn;
    int odd = 0;
    for (Place at = chain.at; at.length > 0; at = at.after(1), turn.next(), odd ^= 1) {
      Input& input = shared.input[turn.stage];
      const ChunkGates& gates = shared.gates[turn.stage];
      shared.full[turn.stage].wait(turn.parity);
      const float gamma[2] = {gates.gamma[row], gates.gamma[row + 8]};
      Sum p[chunk_tokens / 8];
      products_begin();
#pragma unroll
      for (int k = 0; k < head_dim; k += 16) {
        multiply<Major::k, Major::k>(p, input.Q.k_major(0, k), input.K.k_major(0, k), k > 0);
      }
      products_commit();
      products_wait<0>();
#pragma unroll
      for (int j = 0; j < chunk_tokens; j += 16) {
        put_left(shared.P, 16 * warp(), j,
                 sm80::gated_scores(p[j / 8], p[j / 8 + 1], gates.g, 16 * warp(), j));
      }
      jitter();
      sync<256>(StateForOutput);
      Sum o[width / 8];
      products_begin();
#pragma unroll
      for (int k = 0; k < head_dim; k += 16) {
        multiply<Major::k, Major::mn>(o, input.Q.k_major(0, k), shared.S.mn_major(0, k), k > 0);
      }
      products_commit();
      products_wait<0>();
      arrive<256>(StateReadByOutput);
#pragma unroll
      for (int n = 0; n < width / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) o[n].x[i] *= gamma[i / 2];
      }
      publish_to_async();
      jitter();
      sync<256>(ValueReady + odd);  // P is there as well
      products_begin();
#pragma unroll
      for (int k = 0; k < chunk_tokens; k += 16) {
        multiply<Major::k, Major::mn>(o, shared.P.k_major(0, k), input.V.mn_major(0, k), true);
      }
      products_commit();
      products_wait<0>();
      sync<128>(OutputGroup);  // V̂ and P are no longer read
#pragma unroll
      for (int n = 0; n < width / 16; ++n) {
        scale(o[2 * n], output_scale);
        scale(o[2 * n + 1], output_scale);
        put_left(input.V, 16 * warp(), 16 * n, left(o[2 * n], o[2 * n + 1]));
      }
      sync<128>(OutputGroup);  // O is there
      jitter();
      constexpr int units = width / 8;
      BFloat16* to = arguments.tensors.output + at.value() + chain.first_value;
#pragma unroll
      for (int i = thread; i < chunk_tokens * units; i += 128) {
        if (i / units < at.length) {
          *reinterpret_cast<uint4*>(to + std::int64_t{i / units} * at.value_stride() +
                                    i % units * 8) = input.V.unit(i / units, i % units * 8);
        }
      }
      publish_to_async();
      release(shared.free[turn.stage]);
      if constexpr (order == Order::joint) arrive<384>(FadedReady);
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < stages; ++stage) {
        shared.full[stage].initialise(128);
        shared.free[stage].initialise(warps_that_free);
      }
      publish_barriers();
      prefetch(arguments.q);
      prefetch(arguments.k);
      prefetch(arguments.v);
      prefetch(arguments.A);
    }
    __syncthreads();
    const auto chain = sm80::ChainOf<width>::of_block(arguments.tensors, arguments.query_heads,
                                                      arguments.value_heads);
    switch (threadIdx.x / 128) {
      case Load:
        give_registers<40>();
        load(arguments, shared, chain);
        break;
      case State:
        take_registers<200>();
        state(arguments, shared, chain);
        break;
      case Value:
        take_registers<136>();
        value(shared, chain.at.length);
        break;
      default:
        take_registers<136>();
        output(arguments, shared, chain);
    }
  }
};

static_assert(sizeof(SpecializedChain<Order::split, 128, 2, false>::Shared) == 175104 &&
              sizeof(SpecializedChain<Order::split, 64, 2, false>::Shared) == 134144 &&
              sizeof(SpecializedChain<Order::split, 32, 3, false>::Shared) == 184320);

template <Order order, int width, int stages, bool beta_in_a>
Instance specialized_instance(std::vector<Knob> knobs) {
  using Kernel = SpecializedChain<order, width, stages, beta_in_a>;
  return {.knobs = std::move(knobs),
          .stages = {stage_of<Kernel>()},
          .workspace_bytes = nullptr,
          .setup =
              [](const Problem& problem, const Tensors& x, void*) {
                const std::int64_t tokens = problem.tokens();
                const int query_heads = problem.query_heads, value_heads = problem.value_heads;
                return launcher<Kernel>(
                    std::int64_t{head_dim / width} * problem.sequences() * value_heads,
                    {tensor_map(x.q, tokens, query_heads, head_dim, chunk_tokens),
                     tensor_map(x.k, tokens, query_heads, head_dim, chunk_tokens),
                     tensor_map(x.v, tokens, value_heads, head_dim, chunk_tokens),
                     tensor_map(x.A, tokens, value_heads, chunk_tokens, chunk_tokens), x,
                     query_heads, value_heads});
              },
          .obstacle = ""};
}

}  // namespace gdn::sm90
