#pragma once

#include "kernels/cuda/register_chain.cuh"

namespace gdn::sm90 {

template <int stages>
struct XChain : RegisterChain<64, stages> {
  using Base = RegisterChain<64, stages>;
  using Base::gates_slots;
  using typename Base::Arguments;
  using typename Base::Chain;
  using typename Base::Factors;
  using typename Base::Input;

  static constexpr int threads = 128 * 4, state_registers = 216;
  enum Role { LoadAndStore, Scores, State, Keys };  // by warpgroup

  struct Shared : Base::Shared {             // 228,352 bytes with three stages
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
      Left a[chunk_tokens / 16];  // this warp's 16 rows of Aᵀ diag(exp(g_C − g))
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
      if (j <= warp()) gated[j] = Base::template gated_scores<exact>(score, gates, 16 * j);
    }
  }

  // ---- State

  struct Group : Base::Group {
    XChain::Shared& own;

    using Base::Group::shared, Base::Group::turn, Base::Group::round, Base::Group::S,
        Base::Group::R, Base::Group::w;

    // As in rung 8. w is B Rᵀ, for S' and then for O.
    template <bool with_output, bool after_output>
    __device__ void step(bool last) {
      const Turn<stages> now = turn;
      const Factors residual = this->template begin_step<with_output, after_output>();
      products_wait<with_output ? 1 : 0>();
#pragma unroll
      for (int i = 0; i < 4; ++i) Base::convert(R, residual, w, i);
      jitter();
      own.x_full[now.stage].wait(now.parity);
      turn.next();
      ++round;
      if (last) turn = now;  // whose inputs are there
      shared.full[turn.stage].wait(turn.parity);
      const typename Base::Group::Start next(*this);
      products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply<Major::mn>(S, w[j], own.X[now.stage].mn_major(0, 16 * j), true);
      }
      products_commit();
      if (!last) this->start(next);
      products_wait<0>();
      jitter();
      shared.scores_full[now.stage].wait(now.parity);
      if constexpr (!with_output) release(shared.free[now.stage]);
    }
  };

  static __device__ void run(const Arguments& arguments, Shared& shared, const Chain& chain,
                             const Segment& segment) {
    if (threadIdx.x == 0) {
      for (PhaseBarrier& barrier : shared.x_full) barrier.initialise(4);
    }
    Base::begin(arguments, shared, chain, segment);
    switch (threadIdx.x / 128) {
      case LoadAndStore:
        Base::load_and_store(arguments, shared, chain, segment);
        break;
      case Scores:
        scores(shared, segment);
        break;
      case State:
        take_registers<state_registers>();
        Base::state(arguments, shared, Group{{shared, Base::share_of_warp().value()}, shared});
        break;
      case Keys:
        keys(shared, segment);
    }
  }
};

static_assert(sizeof(XChain<3>::Shared) == 229376);

}  // namespace gdn::sm90
