// The X form on Hopper: the chain of register_chain.cuh, of which no more than two products wait
// for each other. 64 values a CTA.
//
// clang-format off
//   role    registers  owns and computes, for each chunk
//   Load       40      as in the W form
//   Store      40      as in the W form
//   Keys      128      X  = Aᵀ diag(1/γ') K
//   Scores    128      P' = tril(Q Kᵀ ∘ 1/γ'_j) A
//   State     216      (S/u)ᵀ in accumulators:
//                        R  = (K S/u)ᵀ − Vᵀ/γ'       the accumulator starts at −Vᵀ/γ'
//                        W  = −β γ' R                which is (B (V − Γ K S))ᵀ
//                        (S'/u)ᵀ = (S/u)ᵀ + W X
//                        O  = scale γ' ((S/u)ᵀ Qᵀ + W P'ᵀ)
// clang-format on
//
// B stands with R, and not with X and P' as in form 5 of kernels/README.md: there it is a factor
// that R has to be given anyway, and State has none for W. u and γ' are as there. Where there is S
// itself behind a chunk, X has `fade` for 1/γ'; P' has 1/γ'_j in any case, or exp(g_i − g_j)/γ'_i
// where γ' is not γ̃ in all of the chunk. X's factor is one of Aᵀ, which comes out of shared memory
// as an operand in registers.
//
// What orders a chunk ("A ─ e ─► B": A arrives at event e, B waits for it):
//   Load ─ full ─► Keys, Scores, State       the inputs are there
//   Keys ─ x_full ─► State                   X is there
//   Scores ─ scores_full ─► State            P' is there
//   State ─ free ─► Load                     the inputs but V may be overwritten, and then X and P'
// and Store's as in the W form. Keys and Scores each go through all chunks, a part of each: were
// they to take turns at chunks, each would miss phases of `full`. State waits for X where S' needs
// it, and for P' beside S', before O of the next chunk needs it.
// tests/protocol_test.cpp goes through all interleavings of this order, and takes each of these
// away.
//
// What of a chunk State has under way at once: W P' of the chunk before and K S | S is rounded, O
// of the chunk before goes out | Q S | S is scaled where it is, R is rounded | S' | the next R
// starts.
//
// Bytes: those of the W form with 64 values. Predicted, by register_state.cu's figures: W P' 168, K
// S 336, Q S 336, S' 296, and some 110 until what S' has made is rounded: 1250 cycles for a State
// alone. Keys takes some 600 and Scores 800, so that they are ahead of it. All of them together
// want the tensor cores for 1536, a fifth more than the W form: 1650 to 1750 cycles, 0.95 to 1.0 µs
// a chunk, where the W form was measured at 1.13 to 1.19. With 128 values the tensor cores would
// be wanted for 2432, 128 more than by the W form, whose two chains fill each other's gaps there:
// nothing to be won.
// Measured (H200, graph timing): 1.32 to 1.37 µs a chunk, a sixth more than the W form, and in
// segments short_tail_state 13.8 where the W form had 13.2. Three groups that issue products at
// once wait for each other. Not to be had: W P' right behind S', before that is waited for. ptxas
// takes the rounding of S for a read of registers under way, and issues the products one by one.
#pragma once

#include "kernels/cuda/register_chain.cuh"

namespace gdn::sm90 {

struct XChain : RegisterChain<64, 3, false> {
  using Base = RegisterChain<64, 3, false>;
  static constexpr const char* form = "x";
  static constexpr int threads = 128 * 4, state_registers = 216;
  enum Role { LoadAndStore, Scores, State, Keys };  // by warpgroup

  struct Shared : Base::Shared {             // 229,376 bytes
    Tile<chunk_tokens, head_dim> X[stages];  // 16,384 each  [token][key]
    PhaseBarrier x_full[stages];
  };

  // ---- Keys

  static __device__ void keys(Shared& shared, const Segment& segment) {
    Turn<stages> turn;
    for (int round = 0; round < segment.end - segment.first; ++round, turn.next()) {
      Input& input = shared.input[turn.stage];
      jitter();
      shared.full[turn.stage].wait(turn.parity);
      Left a[chunk_tokens / 16];  // this warp's 16 rows of Aᵀ diag(fade)
      const Factors fade(shared.gates[round % gates_slots].fade);
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        a[j] = sm80::scale_columns(sm80::left_of_transposed(input.A, 16 * warp(), 16 * j),
                                   fade.of[2 * j], fade.of[2 * j + 1]);
      }
      Sum x[head_dim / 8];
      products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply<Major::mn>(x, a[j], input.K.mn_major(0, 16 * j), j > 0);
      }
      products_commit();
      products_wait<0>();
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        put_left(shared.X[turn.stage], 16 * warp(), 16 * k, left(x[2 * k], x[2 * k + 1]));
      }
      publish_to_async();
      release(shared.x_full[turn.stage]);
    }
  }

  // ---- Scores

  static __device__ void scores(Shared& shared, const Segment& segment) {
    Turn<stages> turn;
    for (int round = 0; round < segment.end - segment.first; ++round, turn.next()) {
      Input& input = shared.input[turn.stage];
      const RatioGates& gates = shared.gates[round % gates_slots];
      jitter();
      shared.full[turn.stage].wait(turn.parity);
      if (round >= segment.first_output - segment.first) {
        Sum p[chunk_tokens / 8];
        products_begin();
#pragma unroll
        for (int k = 0; k < head_dim; k += 16) {
          multiply<Major::k, Major::k>(p, input.Q.k_major(0, k), input.K.k_major(0, k), k > 0);
        }
        products_commit();
        products_wait<0>();
        Left gated[chunk_tokens / 16];
        if (gates.exact()) {
          gate<true>(gated, p, gates);
        } else {
          gate<false>(gated, p, gates);
        }
        products_begin();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          multiply<Major::mn>(p, gated[j], input.A.mn_major(0, 16 * j), j > 0);
        }
        products_commit();
        products_wait<0>();
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          put_left(shared.P[turn.stage], 16 * warp(), 16 * j, left(p[2 * j], p[2 * j + 1]));
        }
        publish_to_async();
      }
      release(shared.scores_full[turn.stage]);
    }
  }

  // This warp's 16 rows of tril(QKᵀ ∘ exp(g_i − g_j)/γ'_i), from those of QKᵀ.
  template <bool exact>
  static __device__ void gate(Left (&gated)[chunk_tokens / 16],
                              const Sum (&score)[chunk_tokens / 8], const RatioGates& gates) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      gated[j] = {};
      if (j > warp()) continue;
      gated[j] = lower_scores(score, 16 * j, [&](int row, int t, int i, int half) {
                   const float2 factor = gates.ratio_or_gate<exact>(t, i, half);
                   if (exact) return factor;  // 1/γ'_j, else exp(g_i − g_j)/γ'_i
                   const int later = 16 * warp() + lane() / 4 + 8 * row;
                   const float g = min(gates.g[later] - RatioGates::least, 0.F);
                   return float2{sm80::exponential(g - factor.x), sm80::exponential(g - factor.y)};
                 }).high;
    }
  }

  // ---- State

  struct Group : Base::Group {
    XChain::Shared& own;  // where X is

    // As in the W form. w stays for O, with the next chunk.
    template <bool with_output, bool after_output>
    __device__ void step(bool last) {
      const Turn<stages> now = turn;
      const Factors residual = begin_step<with_output, after_output>();
      products_wait<with_output ? 1 : 0>();
#pragma unroll
      for (int i = 0; i < 4; ++i) convert(R, residual, w, i);
      jitter();
      own.x_full[now.stage].wait(now.parity);
      come_to_next(last);
      const Start next(*this);
      products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply<Major::mn>(S, w[j], own.X[now.stage].mn_major(0, 16 * j), true);
      }
      products_commit();
      if (!last) start(next);
      jitter();
      shared.scores_full[now.stage].wait(now.parity);
      products_wait<0>();
      if constexpr (!with_output) release(shared.free[now.stage]);
    }
  };

  template <class SegmentOf>
  static __device__ void run(const Arguments& arguments, Shared& shared, const Chain& chain,
                             SegmentOf segment_of) {
    if (threadIdx.x == 0) {
      for (PhaseBarrier& barrier : shared.x_full) barrier.initialise(4);
    }
    Base::prepare(arguments, shared);
    wait_for_launch_ahead();
    const Segment segment = segment_of();
    Base::agree(shared, chain, segment);
    switch (threadIdx.x / 128) {
      case LoadAndStore:
        load_and_store(arguments, shared);
        break;
      case Scores:
        scores(shared, segment);
        break;
      case State:
        take_registers<state_registers>();
        Base::state(arguments, shared, Group{{shared, share_of_warp().value()}, shared});
        break;
      case Keys:
        keys(shared, segment);
    }
  }
};

static_assert(sizeof(XChain::Shared) == 229376);

}  // namespace gdn::sm90
