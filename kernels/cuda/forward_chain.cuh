// The whole forward on Hopper in one launch: rung 8's chain, whose A is made beside it by warps of
// the same CTA and never leaves shared memory.
//
// clang-format off
//   role    registers  owns and computes, for each chunk
//   Load       40      Q, K, V by the copy engine (a warp); g = prefix sum of max(log α, −128), β and
//                      what follows from them (two warps); the short chunk by all three
//   Store      40      O to memory (a warp), as in rung 8
//   Make       128     KKᵀ by wgmma;  A = (I + strictly_lower(B · exp(g_i − g_j) ∘ KKᵀ))⁻¹ (inverse.cuh);
//                      P' = tril(Q Kᵀ)/γ_C, or as in rung 8's steep chunks; which are ill-conditioned
//                      (variant.hpp), and the low halves of A and P' of those
//   State     208      as in rung 8 (register_chain.cuh), with S itself behind every chunk
//   With 128 values Make has 120 and State 176 (below).
// clang-format on
//
// There are as many Make warpgroups as there is room for: two beside one state warpgroup, and they
// take turns, each a whole chunk; so each has the time of two chunks of the chain for one of its.
// Beside two state warpgroups there is one, and 208 registers for each of those are more than there
// are. With 176 they have no room for an O in the course of a chunk: Q S comes after the next S,
// from the same registers as K S, in one go with it and with what the chunk itself adds:
//   R = (K S)ᵀ − Vᵀ/γ' | S is scaled by γ_C
//   W = (−β γ' R) Aᵀ   | nothing
//   W' = W fade,  S' = γ_C Sᵀ + W' K,  O = scale γ' (Sᵀ Qᵀ + W' P'ᵀ) | nothing
// and O goes out when all of it is there, in its own chunk and not in the next one.
//
// An ill-conditioned chunk goes in two halves, as in rung 8. A late State has no registers for both
// halves of an operand at once: there they take turns, and Q S comes before W.
//
// What orders a chunk ("A ─ e ─► B": A arrives at event e, B waits for it):
//   Load ─ loaded ─► Make                    Q, K and the gates are there
//   Load, Make ─ full ─► State               V is there, and A, and whether the chunk goes in two
//                                            halves; so are Q, K and the gates, which Make has
//                                            waited for
//   Make ─ scores_full ─► State              P' is there, and so are low halves
//   State ─ free ─► Load                     the inputs but V may be overwritten, and then A and P'
//   State ─ free ─► Make                     and so may the low halves, where a chunk needs them
// and Store's as in rung 8. State may free a chunk only in the course of the next one, for which it
// waits for A: so Make says that A is there before it waits for the place of low halves. Make uses
// P's place before P' is there (inverse.cuh), which State has given back with the rest of the
// stage. A group of Make asks for its next chunk before it has made P' of this one: so there must
// be more stages than groups, or none of them would ever be free.
#pragma once

#include "kernels/cuda/inverse.cuh"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/register_chain.cuh"
#include "kernels/cuda/warp_team.cuh"

namespace gdn::sm90 {

// The gates of a chunk from log α, a token a thread of two warps: read a chunk before they are
// written for all to see.
struct RawGates {
  float own = 0, other = 0;  // log α of this warp's half of the chunk and of the other half
  float beta = 0;

  static __device__ float read_gate(const Tensors& x, const Place& at, int token) {
    return token < at.length ? fmaxf(x.raw_g[at.gate(token)], -128.0F) : 0.0F;
  }
  // `at` is the chunk, as long as the rest of its sequence; behind the end all is 0.
  __device__ void read(const Tensors& x, const Place& at) {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= chunk_tokens) return;
    own = read_gate(x, at, token);
    other = read_gate(x, at, token ^ 32);
    beta = token < at.length ? x.beta[at.gate(token)] : 0;
  }
  __device__ void write(RatioGates& gates, float* betas) const {
    const int token = static_cast<int>(threadIdx.x);
    if (token >= chunk_tokens) return;
    float g = own, rest = other;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float before = __shfl_up_sync(~0U, g, distance);
      if (lane() >= distance) g += before;
      rest += __shfl_xor_sync(~0U, rest, distance);
    }
    const float all = __shfl_sync(~0U, g, 31);
    if (token >= 32) g += rest;
    // The chunk's sum the same in both warps, to the bit, and that of its last token.
    const float first = token < 32 ? all : rest, second = token < 32 ? rest : all;
    if (token == chunk_tokens - 1) g = first + second;
    TokenGates{g, beta, first + second}.ratios().put(gates);
    betas[token] = beta;
  }
};

template <int width>
struct ForwardChain : RegisterChain<width, 3> {
  static constexpr int stages = 3, make_groups = width == 64 ? 2 : 1;
  static_assert(make_groups < stages);
  using Base = RegisterChain<width, stages>;
  using Base::engine_warp, Base::store_warp, Base::load_threads, Base::gates_slots,
      Base::state_groups, Base::is_copied_by_engine, Base::has_engine;
  using typename Base::Chain;
  using typename Base::Columns;
  using typename Base::Factors;
  using typename Base::Input;
  using typename Base::Operand;

  // By warpgroup; the fourth is the other Make or the other State.
  enum Role { LoadAndStore, Make, State };
  static constexpr int make_registers = make_groups == 1 ? 120 : 128;
  static constexpr int threads = 128 * 4;

  struct Shared : Base::Shared {              // and beside rung 8's
    Inverse::Diagonal diagonal[make_groups];  //   5,136 each
    float beta[gates_slots][chunk_tokens];    //     256 each
    float chunk_sums[32];
    PhaseBarrier loaded[stages];
  };
  struct Arguments : Base::Arguments {
    const Piece* pieces;  // [segments], of which a CTA a head and slice
    float threshold;
  };

  static Arguments arguments(const Problem& problem, const Tensors& x, const Piece* pieces,
                             float threshold) {
    const std::int64_t tokens = problem.tokens();
    const int query_heads = problem.query_heads, value_heads = problem.value_heads;
    return {{tensor_map(x.q, tokens, query_heads, head_dim, chunk_tokens),
             tensor_map(x.k, tokens, query_heads, head_dim, chunk_tokens),
             tensor_map(x.v, tokens, value_heads, head_dim, chunk_tokens),
             {},
             tensor_map(x.output, tokens, value_heads, head_dim, chunk_tokens),
             x,
             query_heads,
             value_heads},
            pieces,
            threshold};
  }

  // ---- Load

  // `at` is the first chunk, as long as the rest of the sequence; whole ones but for the last.
  static __device__ void load(const Arguments& arguments, Shared& shared, int first_value, Place at,
                              int without_output, int chunks) {
    const Tensors& x = arguments.tensors;
    RawGates gates;
    gates.read(x, at);
    Turn<stages> turn;
    int round = 0;
    const auto bring_gates = [&] {
      jitter();
      shared.free[turn.stage].wait(turn.parity ^ 1);  // at once in the first round
      const int slot = round % gates_slots;
      gates.write(shared.gates[slot], shared.beta[slot]);
      gates.read(x, at.after(1));
    };
    for (; round < chunks && is_copied_by_engine(at); ++round, at = at.after(1), turn.next()) {
      bring_gates();
      Input& input = shared.input[turn.stage];
      PhaseBarrier &loaded = shared.loaded[turn.stage], &full = shared.full[turn.stage];
      if (warp() != engine_warp) {
        release(loaded);
        release(full);
      } else if (elected()) {
        loaded.arrive_and_expect(sizeof input.K + sizeof input.Q);
        for (int panel = 0; panel < 2; ++panel) {
          load_box(input.K.panel(panel), arguments.k, 64 * panel, at.query_head, at.token, loaded);
        }
        for (int panel = 0; panel < 2; ++panel) {
          load_box(input.Q.panel(panel), arguments.q, 64 * panel, at.query_head, at.token, loaded);
        }
        full.arrive_and_expect(sizeof input.V);
        Base::wait_until_stored(shared, round - without_output);
        for (int panel = 0; panel < width / 64; ++panel) {
          load_box(input.V.panel(panel), arguments.v, first_value + 64 * panel, at.head, at.token,
                   full);
        }
      }
    }
    for (; round < chunks; ++round, at = at.after(1), turn.next()) {
      bring_gates();
      Base::wait_until_stored(shared, round - without_output);
      Input& input = shared.input[turn.stage];
      load_plainly<load_threads, head_dim>(input.Q, x.q + at.query(), at.query_stride(), at.length);
      load_plainly<load_threads, head_dim>(input.K, x.k + at.query(), at.query_stride(), at.length);
      load_plainly<load_threads, width>(input.V, x.v + at.value() + first_value, at.value_stride(),
                                        at.length);
      sm80::commit_copies();
      sm80::wait_copies<0>();
      publish_to_async();
      release(shared.loaded[turn.stage]);
      release(shared.full[turn.stage]);
      if constexpr (has_engine) return;  // a short chunk is the last: no registers for another
    }
  }

  // ---- Make

  static __device__ void make(Shared& shared, int chunks, int group) {
    for (int stage = group; stage < stages; stage += make_groups) {  // this group's first chunks'
      Inverse::clear_above(shared.input[stage].A);
    }
    if (group >= chunks) return;
    Turn<stages> turn;
    Sum kk[chunk_tokens / 8], qk[chunk_tokens / 8];
    shared.loaded[0].wait(0);
    for (int i = 0; i < group; ++i) next_chunk(shared, turn);
    products_begin();
    multiply_keys(kk, shared.input[turn.stage].K, shared.input[turn.stage].K);
    for (int round = group; round < chunks; round += make_groups) {
      const int stage = turn.stage;
      Input& input = shared.input[stage];
      RatioGates& gates = shared.gates[round % gates_slots];
      const float* beta = shared.beta[round % gates_slots];
      Inverse inverse = {input.A, shared.P[stage], shared.diagonal[group]};
      products_wait<0>();
      if (gates.exact()) {
        inverse.put_system<true>(kk, gates, beta);
      } else {
        inverse.put_system<false>(kk, gates, beta);
      }
      Inverse::Row a;
      a[0] = inverse.invert_diagonal();
      sync<128>(1 + group);  // N and every D are there
      inverse.solve_row(a);
      publish_to_async();
      jitter();
      sync<128>(1 + group);  // nobody reads N any more
      const bool is_split = inverse.ill_conditioned();
      if (threadIdx.x % 128 == 0) gates.whole.ill_conditioned = is_split;
      release(shared.full[stage]);
      if (is_split) {
        Base::wait_for_place_of_low(shared, turn);
        Inverse::put_low(a, shared.low.A);
      }

      for (int i = 1; i <= make_groups; ++i) {
        if (round + i < chunks) next_chunk(shared, turn);
      }
      products_begin();
      multiply_keys(qk, input.Q, input.K);
      // Behind the last chunk the products of whatever lies there.
      multiply_keys(kk, shared.input[turn.stage].K, shared.input[turn.stage].K);
      products_wait<1>();
      if (gates.exact()) {
        put_scores<false>(shared, stage, qk, gates, is_split);
      } else {
        put_scores<true>(shared, stage, qk, gates, is_split);
      }
      publish_to_async();
      release(shared.scores_full[stage]);
    }
    products_wait<0>();
  }

  // This warp's 16 rows of P' from those of QKᵀ.
  template <bool steep>
  static __device__ void put_scores(Shared& shared, int stage, const Sum (&score)[chunk_tokens / 8],
                                    const RatioGates& gates, bool is_split) {
    put_scores<steep, false>(shared.P[stage], score, gates);
    if (is_split) put_scores<steep, true>(shared.low.P, score, gates);
  }
  template <bool steep, bool low>
  static __device__ void put_scores(Tile<chunk_tokens, chunk_tokens>& P,
                                    const Sum (&score)[chunk_tokens / 8], const RatioGates& gates) {
    const int w = sm80::opaque(warp()), l = sm80::opaque(lane());
    const ScoreFactors<steep> factors(gates, gates.whole, 16 * w + l / 4);
#pragma unroll
    for (int j = 0; j < chunk_tokens; j += 16) {
      Left half = {};
      if (j <= 16 * w) {
        Sum p[2];
#pragma unroll
        for (int x = 0; x < 4; ++x) {  // x % 2: which eight rows, x / 2: which eight columns
          const int later = 16 * w + l / 4 + x % 2 * 8, earlier = j + l % 4 * 2 + x / 2 * 8;
          const float2 factor = factors(x % 2, l % 4, j / 16, x / 2);
          const float* of = score[j / 8 + x / 2].x + x % 2 * 2;
          float* to = p[x / 2].x + x % 2 * 2;
          to[0] = earlier <= later ? of[0] * factor.x : 0;
          to[1] = earlier + 1 <= later ? of[1] * factor.y : 0;
        }
        const SplitLeft both = sm80::split(p);
        half = low ? both.low : both.high;
      }
      put_left(P, 16 * w, j, half);
    }
  }

  // Waits for the inputs of the next chunk, also where that is another group's: who skips a phase
  // of a barrier takes the one before it for the one after.
  static __device__ void next_chunk(Shared& shared, Turn<stages>& turn) {
    turn.next();
    shared.loaded[turn.stage].wait(turn.parity);
  }

  static __device__ void multiply_keys(Sum (&d)[chunk_tokens / 8],
                                       const Tile<chunk_tokens, head_dim>& rows,
                                       const Tile<chunk_tokens, head_dim>& keys) {
#pragma unroll
    for (int k = 0; k < head_dim; k += 16) {
      multiply<Major::k, Major::k>(d, rows.k_major(0, k), keys.k_major(0, k), k > 0);
    }
    products_commit();
  }

  // ---- State with 128 values

  struct LateGroup : Base::Group {
    using Base::Group::shared, Base::Group::turn, Base::Group::round, Base::Group::S,
        Base::Group::before, Base::Group::R, Base::Group::O;

    // Chunks from this one to `end`: either kind has a loop of its own, as in rung 8.
    template <bool with_output>
    __device__ void go_on(int& chunk, int end) {
      const auto next_is = [&](bool split) { return chunk < end && is_split() == split; };
      while (chunk < end) {
        for (; next_is(false); ++chunk) step<with_output>();
        for (; next_is(true); ++chunk) split_step<with_output>();
      }
    }
    // Whether the chunk, whose inputs have come then, is ill-conditioned.
    __device__ bool is_split() {
      shared.full[turn.stage].wait(turn.parity);
      return this->gates().whole.ill_conditioned;
    }

    // R without its factors, and γ_C S.
    __device__ void begin() {
      const Input& input = shared.input[turn.stage];
      const float factor = this->gates().whole.factor;  // γ_C
      this->start(typename Base::Group::Start(*this));
#pragma unroll
      for (int k = 0; k < head_dim / 16; ++k) this->keep_state(k);
      products_begin();
#pragma unroll
      for (int k = 0; k < head_dim; k += 16) {
        multiply<Major::k>(R, before[k / 16], input.K.k_major(0, k), true);
      }
      products_commit();
#pragma unroll
      for (int n = 0; n < head_dim / 8; ++n) sm80::scale(S[n], factor);
      products_wait<0>();
    }

    template <bool with_output>
    __device__ void step() {
      const int stage = turn.stage;
      const Input& input = shared.input[stage];
      const RatioGates& gates = this->gates();
      begin();
      Operand x;
      convert(R, Factors(gates.residual), x);
      products_begin();
#pragma unroll
      for (int j = 0; j < chunk_tokens; j += 16) {
        multiply<Major::k>(R, x[j / 16], input.A.k_major(0, j), j > 0);
      }
      products_commit();
      products_wait<0>();
      jitter();
      shared.scores_full[stage].wait(turn.parity);
      convert(R, Factors(gates.fade), x);
      products_begin();
      add_to_state(input, x);
      if constexpr (with_output) make_output(input, x, shared.P[stage]);
      products_commit();
      products_wait<0>();
      end<with_output>();
    }
    template <bool with_output>
    __device__ void end() {
      const int stage = turn.stage;
      release(shared.free[stage]);
      turn.next();
      ++round;
      if constexpr (with_output) this->put_output(stage);
    }

    // The same with R, A, W and P' in two halves each, one after the other: there are no registers
    // for both.
    template <bool with_output>
    __device__ void split_step() {
      const int stage = turn.stage;
      Input& input = shared.input[stage];
      begin();
      Base::scale(R, Factors(this->gates().residual));
      Operand x;
#pragma unroll
      for (int i = 0; i < chunk_tokens / 16; ++i) {  // the low half waits in V's place
        const SplitLeft both = sm80::split({R[2 * i], R[2 * i + 1]});
        x[i] = both.high;
        put_left_transposed(input.V, this->value, 16 * i, both.low);
      }
      __syncwarp();
      if constexpr (with_output) {
        products_begin();
        multiply_queries(input);
        products_commit();
        products_wait<0>();
      }
      jitter();
      shared.scores_full[stage].wait(turn.parity);
      Columns W;  // not R, whose registers O has by now
      products_begin();
#pragma unroll
      for (int j = 0; j < chunk_tokens; j += 16) {
        multiply<Major::k>(W, x[j / 16], input.A.k_major(0, j), j > 0);
        multiply<Major::k>(W, x[j / 16], shared.low.A.k_major(0, j), true);
      }
      products_commit();
      products_wait<0>();
#pragma unroll
      for (int i = 0; i < chunk_tokens / 16; ++i) {
        x[i] = sm80::left_of_transposed(input.V, this->value, 16 * i);
      }
      products_begin();
#pragma unroll
      for (int j = 0; j < chunk_tokens; j += 16) {
        multiply<Major::k>(W, x[j / 16], input.A.k_major(0, j), true);
      }
      products_commit();
      products_wait<0>();
      Base::scale(W, Factors(this->gates().fade));
      by_halves(W, [&](const Operand& w, bool is_high) {
        add_to_state(input, w);
        if constexpr (with_output) {
          add_to_output(w, shared.P[stage]);
          if (is_high) add_to_output(w, shared.low.P);
        }
      });
      end<with_output>();
    }
    // Products of W's high half, and then of its low one.
    template <class Multiply>
    __device__ void by_halves(const Columns& W, Multiply multiply_half) {
#pragma unroll
      for (const bool is_high : {true, false}) {
        Operand high, low;
        Base::split(W, high, low);
        products_begin();
        multiply_half(is_high ? high : low, is_high);
        products_commit();
        products_wait<0>();
      }
    }

    static __device__ void convert(const Columns& d, const Factors& factors, Operand& x) {
#pragma unroll
      for (int i = 0; i < chunk_tokens / 16; ++i) Base::convert(d, factors, x, i);
    }
    __device__ void add_to_state(const Input& input, const Operand& w) {
#pragma unroll
      for (int j = 0; j < chunk_tokens; j += 16) {
        multiply<Major::mn>(S, w[j / 16], input.K.mn_major(0, j), true);
      }
    }
    __device__ void make_output(const Input& input, const Operand& w,
                                const Tile<chunk_tokens, chunk_tokens>& P) {
      multiply_queries(input);
      add_to_output(w, P);
    }
    __device__ void multiply_queries(const Input& input) {
#pragma unroll
      for (int k = 0; k < head_dim; k += 16) {
        multiply<Major::k>(O, before[k / 16], input.Q.k_major(0, k), k > 0);
      }
    }
    __device__ void add_to_output(const Operand& w, const Tile<chunk_tokens, chunk_tokens>& P) {
#pragma unroll
      for (int j = 0; j < chunk_tokens; j += 16) {
        multiply<Major::k>(O, w[j / 16], P.k_major(0, j), true);
      }
    }
  };

  static __device__ void late_state(const Arguments& arguments, Shared& shared) {
    const Tensors& x = arguments.tensors;
    const Segment segment = shared.segment;
    LateGroup group = {{shared, Base::share_of_warp().value()}};
    if (x.initial_state && segment.first == 0) {
      Base::start_from_initial_state(x, shared.chain, group);
    }
    int chunk = segment.first;
    group.template go_on<false>(chunk, segment.first_output);
    group.template go_on<true>(chunk, segment.end);
    Base::put_final_state(x, shared.chain, segment, group);
  }

  // ---- where a segment begins

  // The sums of log α of the 32 chunks before `first`, the nearest first, by all warps of the CTA.
  static __device__ void sum_chunks_before(const Tensors& x, const Place& at, int first,
                                           float (&sums)[32]) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x) / 32; i < 32; i += threads / 32) {
      const int chunk = first - 1 - i;
      float sum = 0;
      if (chunk >= 0) {
        const Place there = at.after(chunk);
        sum = RawGates::read_gate(x, there, lane()) + RawGates::read_gate(x, there, lane() + 32);
      }
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        sum += __shfl_xor_sync(~0U, sum, distance);
      }
      if (lane() == 0) sums[i] = sum;
    }
    __syncthreads();
  }

  static __device__ int start_of(const Arguments& arguments, Shared& shared, const Place& at,
                                 int first) {
    if (first == 0) return 0;
    const Tensors& x = arguments.tensors;
    sum_chunks_before(x, at, first, shared.chunk_sums);
    return warm_up_start(first, arguments.threshold, WarpTeam(), [&](int chunk) {
      if (first - 1 - chunk < 32) return shared.chunk_sums[first - 1 - chunk];
      float sum = 0;
#pragma unroll 8
      for (int i = 0; i < chunk_tokens; ++i) sum += RawGates::read_gate(x, at.after(chunk), i);
      return sum;
    });
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const auto [piece, chain] =
        OwnPiece<Chain>(arguments.pieces, arguments.query_heads, arguments.value_heads);
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < stages; ++stage) {
        shared.loaded[stage].initialise(load_threads / 32);
        shared.full[stage].initialise(load_threads / 32 + 4);
        shared.scores_full[stage].initialise(4);
        shared.free[stage].initialise(4 * state_groups);
        shared.output_full[stage].initialise(4 * state_groups);
        shared.stored[stage].initialise(1);
      }
      publish_barriers();
      prefetch(arguments.q);
      prefetch(arguments.k);
      prefetch(arguments.v);
      prefetch(arguments.output);
    }
    const Segment segment = {start_of(arguments, shared, chain.at, piece.first), piece.first,
                             piece.end};
    if (threadIdx.x == 0) {
      shared.chain = chain;
      shared.segment = segment;
    }
    __syncthreads();
    const int chunks = segment.end - segment.first;
    switch (threadIdx.x / 128) {
      case LoadAndStore:
        give_registers<40>();
        if (sm90::warp() == store_warp) {
          Base::store(arguments, shared);
        } else {
          load(arguments, shared, chain.first_value, chain.at.after(segment.first),
               segment.first_output - segment.first, chunks);
        }
        break;
      case Make:
        if constexpr (make_registers < 128) give_registers<make_registers>();
        make(shared, chunks, 0);
        break;
      default:
        if constexpr (make_groups == 1) {
          take_registers<176>();
          late_state(arguments, shared);
        } else if (threadIdx.x / 128 == State) {
          take_registers<208>();
          Base::state(arguments, shared);
        } else {
          make(shared, chunks, 1);
        }
    }
  }
};

static_assert(sizeof(ForwardChain<128>::Shared) <= 232448);

}  // namespace gdn::sm90
