// The U/W form on Hopper with a state that never leaves the registers, for rung 8 and those that
// cut its chain into segments.
//
// clang-format off
//   role    registers  owns and computes, for each chunk
//   Load       32      the ring of inputs: gates (two warps); Q, K, V, A by the copy engine (a warp);
//                      the short chunk at a sequence's end by all three, in pieces of 16 bytes
//   Store      32      O to memory (a warp): by the copy engine, the short chunk by itself
//   Scores     64      P' = tril(Q Kᵀ), or with a factor
//   State     208      (S/u)ᵀ in accumulators, 64 values of it a warpgroup:
//                        R  = (K S/u)ᵀ − Vᵀ/γ'             the accumulator starts at −Vᵀ/γ'
//                        W  = (−β γ' R) Aᵀ                 which is V̂ᵀ = (A B (V − Γ K S))ᵀ
//                        (S'/u)ᵀ = (S/u)ᵀ + (W/γ') K
//                        O  = scale γ' ((S/u)ᵀ Qᵀ + (W/γ') P'ᵀ)      which is Oᵀ
// clang-format on
//
// Everything is transposed, so that tokens are columns: what a warpgroup has computed is the left
// operand of its next product by a conversion of its own registers. Between one S and the next no
// result goes through shared memory, and nothing is waited for but inputs and P'.
//
// A factor of each token is one of each column, and can stand in front of a product as well as
// behind it. So V is divided by γ and goes into the accumulator, to which the product then adds K
// S, and O's factors are those of its rows, if W is divided by γ as well: scores have none then.
// For S that is as good, as γ_C S + (exp(g_C − g) W) K = γ_C (S + (W/γ) K). Nor need the sum be
// multiplied by γ_C: where it is not, there is S/u from then on, u being the product of those
// γ_C, and γ̃ = u γ stands for γ in all of this (gates.cuh). So State has one operand for S' and O,
// and leaves S alone but for the last chunk and those with which u would fall below e^−24. These
// have S multiplied by γ̃_C before they add to it, W by `fade` = exp(g_C − g) and not by 1/γ', and
// P' by 1/γ̃_C, and behind them there is S itself.
// That is sound while γ̃ is not too small. γ' is γ̃ held at e^−48: where that differs from γ̃, K S
// and Q S count for nothing, and γ' lets a 10^21st of K S/u through, a 10^10th of K S at most. W P'
// has no such excuse, since γ_i/γ_j may be near 1 however small both are. Such a chunk is steep:
// Scores makes its P' = tril(Q Kᵀ ∘ exp(g_i − g_j)/(γ'_i fade_j)) of differences of g, exact
// whatever the gates. That takes out of W what `fade` has put there for S', by a factor of up to
// e^80; so `fade` is more than exp(g_C − g) where that would not do (gates.cuh), and S' has up to
// e^−80 of a W in it that is forgotten by more. State does nothing else than elsewhere.
//
// Behind a preparation that folds A (`folded`, variant.hpp) State has no factors for W, and for R
// only β. A is then F A G, and
//   R = (K S/u)ᵀ − Vᵀ/γ',   W = (−β R) Aᵀ,   (S'/u)ᵀ = (S/u)ᵀ + W K
// In a gentle chunk there are no gates in A, W is what W/γ' is elsewhere, and as ever S/u stays as
// it is or is to become S: then it is multiplied by `unit` = u γ_C when W K is in it. In another
// one A has the gates of the chunk, but not u: S/u is multiplied by γ_C before and by u behind, and
// P' is made as in a steep one, of these gates. There a column of A is so much smaller that its
// element on the diagonal is a power of 2, which takes nothing from W, and −β that much larger.
//
// An ill-conditioned chunk (variant.hpp), of keys that are alike, has large V̂ that cancels in the
// sums for S' and O. What is rounded in all rows alike, S, cancels with it; but A, R, W and, where
// gates are not all 0, P' are rounded element by element. With these alone rounded, in a simulation
// of 2048 tokens of equal keys, relative errors in 10^-3 of O, S:
//   β               0.9 … 1    1.4 … 1.5  1.9 … 2    1.98 … 2
//   all             16, 21     31, 39     99, 118    189, 259
//   A               8.7, 9.9   27, 33     95, 121    185, 257
//   W               13, 20     17, 22     22, 28     28, 28
//   R               2.8, 2.1   3.6, 3.3   10, 8.8    22, 22
//   P'              2.9, 0     3.0, 0     2.9, 0     3.0, 0      12 and more with α of 0.999
//   S               2.3, 0.3   2.3, 0.2   2.3, 0.2   2.3, 0.1
//   all but A, W    4.0, 2.2   4.6, 3.0   11, 9.7    22, 21
//   S and O         2.3, 0.3   2.3, 0.3   2.3, 0.3   2.3, 0.5
// So State goes through such a chunk with R, A, W and P' in two halves of bf16 each, by steps of
// its own, which wait for all that they do. A's low half is the preparation's, and Scores brings
// it; that of P' it makes. There is one place for both, so Scores waits there for State. X instead
// of A and W (x_chain.cuh) would have to be split as well: of it alone rounded, 40, 49 with β
// of 1.9 … 2. Below the limit of what is ill-conditioned errors stayed within 9.1e-3, whatever the
// keys. With the preparation's A, on the emulator, 1536 such tokens come to 2.2 … 2.9, 0.2 … 2.0
// with any β; only with 1.9999 … 2 and without decay, where nothing is ever forgotten, to 127, 151.
//
// What orders a chunk ("A ─ e ─► B": A arrives at event e, B waits for it):
//   Load ─ full ─► Scores, State             the inputs are there
//   Scores ─ scores_full ─► State            P' is there
//   State ─ output_full ─► Store             O is there, in the place that V had
//   State ─ free ─► Load                     the inputs but V may be overwritten, and then P'
//   State ─ free ─► Scores                   and so may the low halves, where a chunk needs them
//   Store ─ stored ─► Load                   V may be overwritten as well
// Scores is done with the inputs when P' is there, without which State does not free them. State
// waits for P' in chunks without output as well, or Scores might miss a phase of `full`.
// tests/protocol_test.cpp goes through all interleavings of this order, and takes each of these
// away.
//
// Load lets go of `full` first and then reads the next gates, and where A is folded makes what it
// is to put of them as well, which takes registers: how long that takes is nobody's time then.
//
// What of a chunk State has under way at once: W P' of the chunk before and K S | S is rounded, O
// of the chunk before goes out | Q S | S is scaled where it is, R is rounded | A R | nothing | S' |
// W is rounded, and the next R starts. So an O comes a chunk late, the last one by itself.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/roles.cuh"
#include "kernels/sm80/dependent.cuh"
#include "kernels/sm90/matrix.cuh"
#include "kernels/sm90/tensor_map.hpp"
#include "kernels/sm90/tile.cuh"
#include "kernels/sm90/tma.cuh"
#include "kernels/sm90/warpgroup.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace gdn::sm90 {

using sm80::left, sm80::SplitLeft;

// Chunks of a sequence that a CTA goes through, `end` behind the last. S is 0 before `first` (the
// initial state if that is 0), chunks before `first_output` only bring S about, and the segment
// that reaches the sequence's end writes the final state.
struct Segment {
  int first, first_output, end;
};

template <int width_, int stages_, bool splits_ = true, bool folded_ = false>
struct RegisterChain {
  static constexpr const char* form = "w";
  static constexpr bool splits = splits_;  // ill-conditioned chunks: not in X
  static constexpr bool folded = folded_;  // A
  static constexpr int width = width_, stages = stages_;
  static constexpr int state_groups = width / 64;
  static constexpr int threads = 128 * (2 + state_groups);
  static constexpr int blocks_per_processor = 1;
  static constexpr bool follows_closely = true;
  // Of a thread. Those of four warpgroups together are 512: all that there are.
  static constexpr int load_registers = folded              ? 48
                                        : state_groups == 2 ? 32
                                                            : 40,
                       scores_registers = 64, state_registers = folded ? 200 : 208;

  enum Role { LoadAndStore, Scores, FirstState };  // by warpgroup
  // Of LoadAndStore: the gates' warps come first, a token a thread.
  static constexpr int engine_warp = 2, store_warp = 3, load_threads = 32 * store_warp;

  struct Arguments {
    CUtensorMap q, k, v, A, output;
    Tensors tensors;
    int query_heads, value_heads;
  };
  static Arguments arguments(const Problem& problem, const Tensors& x) {
    const std::int64_t tokens = problem.tokens();
    const int query_heads = problem.query_heads, value_heads = problem.value_heads;
    return {tensor_map(x.q, tokens, query_heads, head_dim, chunk_tokens),
            tensor_map(x.k, tokens, query_heads, head_dim, chunk_tokens),
            tensor_map(x.v, tokens, value_heads, head_dim, chunk_tokens),
            tensor_map(x.A, tokens, value_heads, chunk_tokens, half_chunk, narrow_columns),
            tensor_map(x.output, tokens, value_heads, head_dim, chunk_tokens),
            x,
            query_heads,
            value_heads};
  }
  using Chain = sm80::ChainOf<width>;

  // A chunk's gates are read until the next chunk is under way, and so are its inputs: there may be
  // as few slots as stages. Four are a power of two.
  static constexpr int gates_slots = 4;
  static_assert(gates_slots > stages);

  struct Input {                        // 57,344 bytes with 128 values, 49,152 with 64
    Tile<chunk_tokens, head_dim> Q, K;  // 16,384 each  [token][key]
    Tile<chunk_tokens, width> V;        // 16,384 or 8,192  [token][value]; then O
    // 8,192  [i][j]; of the quadrant above the diagonal the copy engine brings nothing: it stays 0.
    NarrowTile<chunk_tokens, chunk_tokens> A;
  };
  struct LowHalves {                        // 16,384 bytes
    Tile<chunk_tokens, chunk_tokens> A, P;  // of an ill-conditioned chunk
  };
  // With 128 values 154,624 bytes with two stages, 220,160 with three; with 64 138,240 and 195,584.
  struct Shared {
    Input input[stages];
    Tile<chunk_tokens, chunk_tokens> P[stages];  //  8,192 each  [i][j]
    std::conditional_t<splits, LowHalves, char> low;
    RatioGates gates[gates_slots];  //  1,552 each
    Chain chain;                    // for State, which has no registers to keep these in
    Segment segment;
    PhaseBarrier full[stages], scores_full[stages], free[stages];
    PhaseBarrier output_full[stages], stored[stages];
  };

  static constexpr int half_chunk = chunk_tokens / 2;
  static constexpr std::uint32_t inverse_bytes = sizeof(Input::A) / 4 * 3;

  // ---- Load

  // Of chunks from one on what A_low says (variant.hpp), a chunk a lane, so that memory is waited
  // for once in 32.
  struct Marks {
    unsigned ill = 0, gentle = 0;

    __device__ void read(const Tensors& x, const Place& first) {
      const Place at = first.after(lane());
      unsigned mark = plain_mark.bits;
      if (x.A_low != nullptr && at.length > 0) mark = x.A_low[at.inverse() + 1].bits;
      ill = __ballot_sync(~0U, mark == 0);
      if (folded) gentle = __ballot_sync(~0U, mark == gentle_mark.bits);
    }
    __device__ bool is_ill(int round) const { return ill >> round % 32 & 1; }
    __device__ bool is_gentle(int round) const { return gentle >> round % 32 & 1; }
  };
  // The gates of one chunk after the other: read while the one before is on its way.
  struct PlainGates {
    TokenGates gates;
    Marks marks;
    float log_u = 0;

    __device__ PlainGates(const Tensors& x, const Place& at, int) { gates.read(x, at); }
    // Of chunk `round`, which begins at `at`, and whether it is the last. By the gates' warps.
    __device__ void put(const Tensors& x, const Place& at, int round, bool last, RatioGates& to) {
      if (splits && threadIdx.x < 32 && round % 32 == 0) marks.read(x, at);
      const float behind = log_u + gates.last_g;
      const bool is_S_behind = last || behind < RatioGates::least_unit;
      RatioToken ratios = gates.ratios(log_u, is_S_behind);
      ratios.whole.ill_conditioned = marks.is_ill(round);
      ratios.put(to);
      log_u = is_S_behind ? 0 : behind;
    }
    __device__ void go_on(const Tensors& x, const Place& at, int, int) {
      gates.read(x, at.after(1));
    }
  };
  // The same where A is folded. There are registers to read two chunks ahead, and for what is put
  // to be there before its place is free.
  struct FoldedGates {
    TokenGates gates;
    Marks marks;
    float log_u = 0;
    RatioToken ratios;

    __device__ FoldedGates(const Tensors& x, const Place& at, int chunks) {
      if (warp() >= engine_warp) return;
      gates.read(x, at);
      make(x, at, 0, chunks);
      gates.read(x, at.after(1));
    }
    __device__ void put(const Tensors&, const Place&, int, bool, RatioGates& to) const {
      ratios.template put<true>(to);
    }
    __device__ void go_on(const Tensors& x, const Place& at, int round, int chunks) {
      make(x, at.after(1), round + 1, chunks);
      gates.read(x, at.after(2));
    }
    __device__ void make(const Tensors& x, const Place& at, int round, int chunks) {
      if (round % 32 == 0) marks.read(x, at);
      const float before = log_u, behind = log_u + gates.last_g;
      if (marks.is_gentle(round)) {
        const bool is_S_behind = round == chunks - 1 || behind < RatioGates::least_unit;
        log_u = is_S_behind ? 0 : behind;
        ratios = gates.gentle_ratios(before, is_S_behind ? behind : 0);
      } else {
        log_u = 0;
        ratios = gates.other_ratios(before, marks.is_ill(round));
      }
    }
  };
  using GatesOfChunks = std::conditional_t<folded, FoldedGates, PlainGates>;

  // The chunks of the segment, all whole but for a sequence's last; those without output go without
  // Q. With a `turn` of parity 1 each place is waited for in the first round as well, until State
  // has released it.
  static __device__ void load(const Arguments& arguments, Shared& shared, Turn<stages> turn) {
    const Tensors& x = arguments.tensors;
    const Segment& segment = shared.segment;
    Place at = shared.chain.at.after(segment.first);
    const int chunks = segment.end - segment.first;
    const int whole = has_engine ? min(at.length / chunk_tokens, chunks) : 0;
    GatesOfChunks gates(x, at, chunks);
    int round = 0;
    const auto load_gates = [&](const Place& at, bool own, bool last) {
      jitter();
      shared.free[turn.stage].wait(turn.parity ^ 1);  // in a first round of parity 0 at once
      if (own) gates.put(x, at, round, last, shared.gates[round % gates_slots]);
    };
    if (warp() == engine_warp) {
      load_inputs(arguments, shared, at, whole, turn);
      round = whole;
    } else {
      for (; round < whole; ++round, at = at.after(1), turn.next()) {
        load_gates(at, true, round == chunks - 1);
        release(shared.full[turn.stage]);
        gates.go_on(x, at, round, chunks);
      }
    }
    for (; round < chunks; ++round, turn.next()) {
      at = shared.chain.at.after(segment.first + round);
      load_gates(at, warp() < engine_warp, has_engine || round == chunks - 1);
      load_short(x, shared, round, turn.stage);
      release(shared.full[turn.stage]);
      if constexpr (has_engine) return;  // a short chunk is the last: no registers for another
      if (warp() < engine_warp) gates.go_on(x, at, round, chunks);
    }
  }
  // By the copy engine. What it is told is uniform, of one elected thread: else there would be a
  // loop over lanes around each copy.
  static __device__ void load_inputs(const Arguments& arguments, Shared& shared, Place at,
                                     int chunks, Turn<stages>& turn) {
    const int first_value = shared.chain.first_value;
    int output = shared.segment.first - shared.segment.first_output;
    for (int round = 0; round < chunks; ++round, ++output, at = at.after(1), turn.next()) {
      jitter();
      shared.free[turn.stage].wait(turn.parity ^ 1);
      Input& input = shared.input[turn.stage];
      PhaseBarrier& full = shared.full[turn.stage];
      if (elected()) {
        const bool with_output = output >= 0;
        full.arrive_and_expect(sizeof input.K + inverse_bytes + with_output * sizeof input.Q +
                               sizeof input.V);
        for (int panel = 0; panel < 2; ++panel) {
          load_box(input.K.panel(panel), arguments.k, 64 * panel, at.query_head, at.token, full);
        }
        load_inverse(arguments, input, at, full);
        for (int panel = 0; panel < 2 * with_output; ++panel) {
          load_box(input.Q.panel(panel), arguments.q, 64 * panel, at.query_head, at.token, full);
        }
      }
      wait_until_stored(shared, output);
      if (elected()) {
        for (int panel = 0; panel < width / 64; ++panel) {
          load_box(input.V.panel(panel), arguments.v, first_value + 64 * panel, at.head, at.token,
                   full);
        }
        if (round + 1 < chunks) {  // the next V to L2, as it has to wait for Store
          for (int panel = 0; panel < width / 64; ++panel) {
            prefetch_box(arguments.v, first_value + 64 * panel, at.head, at.token + chunk_tokens);
          }
        }
      }
    }
  }
  // The inputs of a chunk that the copy engine does not bring, by all three warps.
  static __device__ void load_short(const Tensors& x, Shared& shared, int round, int stage) {
    const Segment& segment = shared.segment;
    const Place at = shared.chain.at.after(segment.first + round);
    wait_until_stored(shared, round - (segment.first_output - segment.first));
    Input& input = shared.input[stage];
    load_plainly<load_threads, head_dim>(input.Q, x.q + at.query(), at.query_stride(), at.length);
    load_plainly<load_threads, head_dim>(input.K, x.k + at.query(), at.query_stride(), at.length);
    load_plainly<load_threads, width>(input.V, x.v + at.value() + shared.chain.first_value,
                                      at.value_stride(), at.length);
    load_plainly<load_threads, chunk_tokens>(input.A, x.A + at.inverse(), at.inverse_stride(),
                                             at.length);
    sm80::commit_copies();
    sm80::wait_copies<0>();
    publish_to_async();
  }

  static __device__ void load_inverse(const Arguments& arguments, Input& input, const Place& at,
                                      PhaseBarrier& full) {
    constexpr int quadrant = half_chunk * narrow_columns;
    for (int i : {0, 1, 3}) {
      load_box(input.A.x + i * quadrant, arguments.A, i / 2 * narrow_columns, at.head,
               at.token + i % 2 * half_chunk, full);
    }
  }
  // By all threads, before anything is brought.
  static __device__ void clear_above(Input& input) {
    constexpr int units = half_chunk * narrow_columns / 8;
    for (int i = threadIdx.x; i < units; i += threads) {
      reinterpret_cast<uint4*>(input.A.panel(1))[i] = {};
    }
  }

  static constexpr bool has_engine = sm90::has_engine;
  // That the place of V is free for a chunk's, which is the `output`th with one: Store has read
  // from there what the chunk before left.
  static __device__ void wait_until_stored(Shared& shared, int output) {
    const int before = output - stages;
    if (before >= 0) shared.stored[before % stages].wait(before / stages % 2);
  }

  // Not the short chunk: the copy engine knows no end of a sequence.
  static __device__ bool is_copied_by_engine(const Place& at) {
    return has_engine && at.length >= chunk_tokens;
  }

  // ---- Store

  static __device__ void store(const Arguments& arguments, Shared& shared) {
    const Segment segment = shared.segment;
    Place at = shared.chain.at.after(segment.first_output);
    Turn<stages> turn;
    int stage = (segment.first_output - segment.first) % stages;
    for (int i = segment.first_output; i < segment.end; ++i, at = at.after(1), turn.next()) {
      jitter();
      shared.output_full[turn.stage].wait(turn.parity);
      put_out(arguments, shared.input[stage].V, shared.chain.first_value, at);
      release(shared.stored[turn.stage]);
      if (++stage == stages) stage = 0;
    }
  }

  static __device__ void put_out(const Arguments& arguments, Tile<chunk_tokens, width>& O,
                                 int first_value, const Place& at) {
    if (!is_copied_by_engine(at)) {
      constexpr int units = width / 8;
      BFloat16* to = arguments.tensors.output + at.value() + first_value;
#pragma unroll 1
      for (int i = sm80::opaque(lane()); i < min(at.length, chunk_tokens) * units; i += 32) {
        const int row = i / units, column = i % units * 8;
        *reinterpret_cast<uint4*>(to + std::int64_t{row} * at.value_stride() + column) =
            O.unit(row, column);
      }
    } else if (elected()) {
      publish_for_others(O);
      for (int panel = 0; panel < width / 64; ++panel) {
        store_box(arguments.output, first_value + 64 * panel, at.head, at.token, O.panel(panel));
      }
      wait_stores_read<0>();
    }
  }

  // ---- Scores

  // `first` is the turn that Load begins with.
  static __device__ void scores(const Tensors& x, Shared& shared, Turn<stages> first = {}) {
    const Segment& segment = shared.segment;
    const int chunks = segment.end - segment.first;
    const int silent = segment.first_output - segment.first;
    for (auto& P : shared.P) clear_above(P);
    Turn<stages> turn;
    for (int round = 0; round < chunks; ++round, turn.next()) {
      Input& input = shared.input[uniform(turn.stage)];
      const RatioGates& gates = shared.gates[round % gates_slots];
      jitter();
      shared.full[turn.stage].wait(turn.parity);
      // At once, and not where it is wanted: shared memory takes some 200 cycles to answer.
      const RatioGates::Whole whole = gates.whole;
      const bool is_exact = gates.exact();
      const bool is_split = splits && whole.ill_conditioned;
      if constexpr (splits) {
        const Turn<stages> of_load = {turn.stage, turn.parity ^ first.parity};
        if (is_split) bring_low_half(x, shared, of_load, segment.first + round);
      }
      if (round >= silent) {
        Sum p[chunk_tokens / 8];
        products_begin();
#pragma unroll
        for (int k = 0; k < head_dim; k += 16) {
          multiply<Major::k, Major::k>(p, input.Q.k_major(0, k), input.K.k_major(0, k), k > 0);
        }
        products_commit();
        products_wait<0>();
        if (is_exact) {
          put_scores<false>(shared, turn.stage, p, gates, whole);
        } else {
          put_scores<true>(shared, turn.stage, p, gates, whole);
        }
        publish_to_async();
      }
      if (is_split) {
        sm80::wait_copies<0>();
        publish_to_async();
      }
      release(shared.scores_full[turn.stage]);
    }
  }

  // The blocks above the diagonal stay 0: this warp's.
  static __device__ void clear_above(Tile<chunk_tokens, chunk_tokens>& P) {
    for (int j = 16 * warp() + 16; j < chunk_tokens; j += 16) put_left(P, 16 * warp(), j, Left{});
  }

  // Until State has read the low halves that are there, of whatever chunk before this one, for
  // which Load had this turn.
  static __device__ void wait_for_place_of_low(Shared& shared, const Turn<stages>& turn) {
    const int before = (turn.stage + stages - 1) % stages;
    shared.free[before].wait(turn.stage > 0 ? turn.parity : turn.parity ^ 1);
  }
  // A_low of a chunk, for which Load had this turn. Its copies are on their way then.
  static __device__ void bring_low_half(const Tensors& x, Shared& shared, Turn<stages> turn,
                                        int chunk) {
    wait_for_place_of_low(shared, turn);
    const Place at = shared.chain.at.after(chunk);
    load_plainly<128, chunk_tokens>(shared.low.A, x.A_low + at.inverse(), at.inverse_stride(),
                                    at.length);
    sm80::commit_copies();
  }

  // This warp's 16 rows of P' from those of QKᵀ.
  template <bool steep>
  static __device__ void put_scores(Shared& shared, int stage, const Sum (&score)[chunk_tokens / 8],
                                    const RatioGates& gates, const RatioGates::Whole& whole) {
    const ScoreFactors<steep> factors(gates, whole, 16 * warp() + lane() / 4);
#pragma unroll
    for (int j = 0; j < chunk_tokens; j += 16) {
      if (j > 16 * warp()) continue;
      put_left(shared.P[stage], 16 * warp(), j, lower_scores(score, j, factors).high);
    }
    if constexpr (splits) {
      if (!whole.ill_conditioned) return;
#pragma unroll
      for (int j = 0; j < chunk_tokens; j += 16) {
        Left low = {};
        if (j <= 16 * warp()) low = lower_scores(score, j, factors).low;
        put_left(shared.low.P, 16 * warp(), j, low);
      }
    }
  }

  // Of these rows the columns from j on, not behind the diagonal. Factors are those of this lane's
  // first or second row and of columns 16 i + 8 half + 2 t and the next.
  template <class FactorOf>
  static __device__ SplitLeft lower_scores(const Sum (&score)[chunk_tokens / 8], int j,
                                           const FactorOf& factor_of) {
    Sum gated[2];
#pragma unroll
    for (int x = 0; x < 4; ++x) {  // x % 2: which eight rows, x / 2: which eight columns
      const float2 factor = factor_of(x % 2, lane() % 4, j / 16, x / 2);
      const float* of = score[j / 8 + x / 2].x + x % 2 * 2;
      float* to = gated[x / 2].x + x % 2 * 2;
      to[0] = of[0] * factor.x, to[1] = of[1] * factor.y;
    }
    SplitLeft p = sm80::split(gated);
    if (j == 16 * warp()) keep_lower(p.high), keep_lower(p.low);
    return p;
  }
  // Of a block on the diagonal what is not above it.
  static __device__ void keep_lower(Left& p) {
    const int own = sm80::opaque(lane());     // or masks would be kept
    const int above = own % 4 * 2 - own / 4;  // how far the pair's first is
    const std::uint32_t kept = (above <= 0 ? 0x0000'FFFFU : 0U) | (above < 0 ? 0xFFFF'0000U : 0U);
    p.x[0] &= kept, p.x[2] = 0, p.x[3] &= kept;
  }

  // ---- State

  // Of a vector over the tokens what this lane needs: its columns of a transposed matrix.
  struct Factors {
    float2 of[chunk_tokens / 8];

    __device__ explicit Factors(const ColumnVector& vector) {
#pragma unroll
      for (int i = 0; i < chunk_tokens / 16; ++i) {
        const float4 both = vector.columns(lane() % 4, i);
        of[2 * i] = {both.x, both.y}, of[2 * i + 1] = {both.z, both.w};
      }
    }
  };

  // The same where A has them: nothing to be done.
  struct NoFactors {
    __device__ explicit NoFactors(const ColumnVector&) {}
  };
  using Fade = std::conditional_t<folded, NoFactors, Factors>;

  using Columns = Sum[chunk_tokens / 8];    // of 64 values: [token / 8]
  using Operand = Left[chunk_tokens / 16];  // the same, rounded

  // Of d the 16 tokens i, scaled and rounded.
  static __device__ void convert(const Columns& d, const Factors& factors, Operand& x, int i) {
    Sum pair[2] = {d[2 * i], d[2 * i + 1]};
    sm80::scale_columns(pair[0], factors.of[2 * i]);
    sm80::scale_columns(pair[1], factors.of[2 * i + 1]);
    x[i] = left(pair[0], pair[1]);
  }
  static __device__ void convert(const Columns& d, const NoFactors&, Operand& x, int i) {
    x[i] = left(d[2 * i], d[2 * i + 1]);
  }
  // The same in two halves; and all of d.
  static __device__ void split(const Columns& d, Operand& high, Operand& low, int i) {
    const SplitLeft both = sm80::split({d[2 * i], d[2 * i + 1]});
    high[i] = both.high, low[i] = both.low;
  }
  static __device__ void split(const Columns& d, Operand& high, Operand& low) {
#pragma unroll
    for (int i = 0; i < chunk_tokens / 16; ++i) split(d, high, low, i);
  }
  static __device__ void scale(Columns& d, const Factors& factors) {
#pragma unroll
    for (int n = 0; n < chunk_tokens / 8; ++n) sm80::scale_columns(d[n], factors.of[n]);
  }
  static __device__ void scale(Columns&, const NoFactors&) {}

  // A state warpgroup, which has 64 values. Its warps have 16 each: `value` is the first of those,
  // within the CTA's.
  struct Group {
    Shared& shared;
    const int value;
    Turn<stages> turn = {}, output = {};
    int stage_before = 0;        // of the chunk before
    unsigned round = 0;          // chunks so far
    unsigned ill_conditioned;    // the chunk at hand
    float factor;                // of S for it to be S behind that, else 1
    float unit;                  // of S behind it, where A is folded
    Sum S[head_dim / 8] = {};    // Sᵀ/u: [key / 8]
    Left before[head_dim / 16];  // the same, rounded, as a chunk finds it: [key / 16]
    Columns R;                   // Rᵀ, in the course of a chunk Wᵀ
    Columns O = {};              // Oᵀ, but for its factors
    Operand w;                   // Wᵀ with `fade` (X: without), rounded, for S and O

    __device__ const RatioGates& gates() const { return shared.gates[round % gates_slots]; }
    // What is asked of it as a whole, of shared memory: before the vectors, or it waits for these.
    __device__ void come_to_chunk() {
      const RatioGates::Whole whole = gates().whole;
      factor = whole.factor;
      if constexpr (folded) unit = whole.unit;
      if constexpr (splits) ill_conditioned = whole.ill_conditioned;
    }

    // R starts at −Vᵀ/γ'.
    struct Start {
      Operand v;
      Factors inverse;
      __device__ Start(const Group& group) : inverse(group.gates().inverse) {
        const int value = sm80::opaque(group.value);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          v[i] = sm80::left_of_transposed(group.shared.input[group.turn.stage].V, value, 16 * i);
        }
      }
    };
    __device__ void start(const Start& from) {
#pragma unroll
      for (int i = 0; i < chunk_tokens / 16; ++i) {
#pragma unroll
        for (int x = 0; x < 4; ++x) {  // x / 2: which eight tokens, x % 2: which eight values
          const float2 pair = sm80::unpack(from.v[i].x[x]), factor = from.inverse.of[2 * i + x / 2];
          float* to = R[2 * i + x / 2].x + x % 2 * 2;
          to[0] = -pair.x * factor.x, to[1] = -pair.y * factor.y;
        }
      }
    }
    // S rounded: its 16 keys k.
    __device__ void keep_state(int k) { before[k] = left(S[2 * k], S[2 * k + 1]); }
    __device__ void fade_state(float factor) {
#pragma unroll
      for (int n = 0; n < head_dim / 8; ++n) sm80::scale(S[n], factor);
    }

    // O of the chunk before, in V's place, for Store: its 16 tokens i.
    __device__ void put_output(const Factors& factors, int stage, int i) {
      Operand x;
      convert(O, factors, x, i);
      put_left_transposed(shared.input[stage].V, value, 16 * i, x[i]);
    }
    __device__ void put_output(int stage) {
      const Factors factors(shared.gates[(round - 1) % gates_slots].output);
#pragma unroll
      for (int i = 0; i < chunk_tokens / 16; ++i) put_output(factors, stage, i);
      release_output();
    }
    __device__ void release_output() {
      release(shared.output_full[output.stage]);
      output.next();
    }
    // A step of 16 keys of K S or Q S of a chunk, and one of 16 tokens of W P'.
    __device__ void multiply_state(Columns& d, const Tile<chunk_tokens, head_dim>& keys, int k,
                                   bool accumulate) {
      multiply<Major::k>(d, before[k], keys.k_major(0, 16 * k), accumulate);
    }
    __device__ void add_to_output(int stage, int j) {
      multiply<Major::k>(O, w[j], shared.P[stage].k_major(0, 16 * j), true);
    }

    // K S of a chunk whose inputs have come, and for which R has its start, and Q S. Both are under
    // way afterwards. With output W P' comes with the next chunk (`after_output`), and keeps the
    // tensor cores busy while S is rounded; behind the last one finish_output() does that. Returns
    // the factors of R.
    //
    // A product of registers is issued when the one before it is about done, so what shall be done
    // beside products stands between them, and not behind.
    template <bool with_output, bool after_output>
    __device__ Factors begin_step() {
      const Input& input = shared.input[turn.stage];
      if constexpr (after_output) products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        keep_state(j);
        if constexpr (after_output) add_to_output(stage_before, j);
      }
      if constexpr (after_output) products_commit();
      // What is loaded stands before products, so that nobody waits for it behind them.
      const Factors factors_before(shared.gates[(round - 1) % gates_slots].output);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        keep_state(k + 4);
        multiply_state(R, input.K, k, true);
      }
      products_commit();
      if constexpr (after_output) {
        products_wait<1>();
        release(shared.free[stage_before]);
      }
      products_begin();
#pragma unroll
      for (int k = 4; k < 8; ++k) {
        if constexpr (after_output) put_output(factors_before, stage_before, k - 4);
        multiply_state(R, input.K, k, true);
      }
      products_commit();
      if constexpr (after_output) release_output();
      const Factors residual(gates().residual);
      if constexpr (with_output) {
        products_begin();
#pragma unroll
        for (int k = 0; k < 4; ++k) multiply_state(O, input.Q, k, k > 0);
      }
      if (factor != 1) fade_state(factor);
      if constexpr (with_output) {
#pragma unroll
        for (int k = 4; k < 8; ++k) multiply_state(O, input.Q, k, k > 0);
        products_commit();
      }
      return residual;
    }

    // A chunk. Afterwards the inputs of the next one have come, and R has its start; behind the
    // `last` one there is none, and R starts from whatever lies there.
    template <bool with_output, bool after_output>
    __device__ void step(bool last) {
      const Turn<stages> now = turn;
      const Input& input = shared.input[now.stage];
      const Factors residual = begin_step<with_output, after_output>();
      const float unit_behind = unit;
      Operand x;
      products_wait<with_output ? 1 : 0>();
#pragma unroll
      for (int i = 0; i < 4; ++i) convert(R, residual, x, i);
      const Fade fade(gates().fade);
      products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply<Major::k>(R, x[j], input.A.k_major(0, 16 * j), j > 0);
      }
      products_commit();
      products_wait<0>();
      jitter();
      shared.scores_full[now.stage].wait(now.parity);
      come_to_next(last);
      const Start next(*this);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        convert(R, fade, w, 2 * half);
        convert(R, fade, w, 2 * half + 1);
        products_begin();
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          multiply<Major::mn>(S, w[j], input.K.mn_major(0, 16 * j), true);
        }
      }
      products_commit();
      if (!last) start(next);
      products_wait<0>();
      if constexpr (!with_output) release(shared.free[now.stage]);
      if (folded && unit_behind != 1) fade_state(unit_behind);
    }
    // The same with R, A, W and P' in two halves each. Of their products that of two low halves is
    // left out, and that of W and P' in the high ones stands where it always does.
    template <bool with_output, bool after_output>
    __device__ void split_step(bool last) {
      const Turn<stages> now = turn;
      const Input& input = shared.input[now.stage];
      const Factors residual = begin_step<with_output, after_output>();
      const float unit_behind = unit;
      Operand x, low;
      products_wait<0>();
      scale(R, residual);
      split(R, x, low);
      jitter();
      shared.scores_full[now.stage].wait(now.parity);
      products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply<Major::k>(R, low[j], input.A.k_major(0, 16 * j), j > 0);
        multiply<Major::k>(R, x[j], shared.low.A.k_major(0, 16 * j), true);
        multiply<Major::k>(R, x[j], input.A.k_major(0, 16 * j), true);
      }
      products_commit();
      products_wait<0>();
      scale(R, Fade(gates().fade));
#pragma unroll
      for (int half = 0; half < 2; ++half) {  // there are no registers for all of them
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) split(R, w, low, j);
        products_begin();
#pragma unroll
        for (int j = 2 * half; j < 2 * half + 2; ++j) {
          multiply<Major::mn>(S, low[j], input.K.mn_major(0, 16 * j), true);
          multiply<Major::mn>(S, w[j], input.K.mn_major(0, 16 * j), true);
          if constexpr (with_output) {
            multiply<Major::k>(O, low[j], shared.P[now.stage].k_major(0, 16 * j), true);
            multiply<Major::k>(O, w[j], shared.low.P.k_major(0, 16 * j), true);
          }
        }
        products_commit();
        products_wait<0>();
      }
      come_to_next(last);
      if (!last) start(Start(*this));
      if constexpr (!with_output) release(shared.free[now.stage]);
      if (folded && unit_behind != 1) fade_state(unit_behind);
    }
    // Until the next chunk's inputs are there; behind the `last` one that one's stay, and
    // ill_conditioned and factor are whatever lies in the next place of gates: to ask first takes
    // more instructions a chunk.
    __device__ void come_to_next(bool last) {
      const Turn<stages> now = turn;
      stage_before = now.stage;
      turn.next();
      ++round;
      if (last) turn = now;
      shared.full[turn.stage].wait(turn.parity);
      come_to_chunk();
    }
    __device__ void finish_output() {
      products_begin();
#pragma unroll
      for (int j = 0; j < 4; ++j) add_to_output(turn.stage, j);
      products_commit();
      products_wait<0>();
      put_output(turn.stage);
    }

    // All chunks of a segment, from S, by the steps of `Own`, which this group is. Called instead
    // of inlined, it would have S in memory, and ptxas would issue all products one by one (C7520).
    template <class Own = Group>
    __device__ __forceinline__ void go_through(const Segment& segment) {
      Own& own = static_cast<Own&>(*this);
      if (segment.first == segment.end) return;
      shared.full[0].wait(0);
      come_to_chunk();
      start(Start(*this));
      int chunk = segment.first;
      for (;;) {
        go_on(own, chunk, segment);
        if (chunk == segment.end) break;
        if constexpr (splits) go_on_split(chunk, segment);
      }
      if (segment.first_output < segment.end) finish_output();
    }
    // Chunks until one goes in halves, and until one does not. Either have loops of their own:
    // with a branch in one loop for both, ptxas issues all products one by one (C7520).
    template <class Own>
    __device__ void go_on(Own& own, int& chunk, const Segment& segment) {
      const auto goes_on = [&](int until) { return chunk < until && !(splits && ill_conditioned); };
      while (goes_on(segment.first_output)) {
        own.template step<false, false>(++chunk == segment.end);
      }
      if (chunk == segment.first_output && goes_on(segment.end)) {
        own.template step<true, false>(++chunk == segment.end);
      }
      while (goes_on(segment.end)) own.template step<true, true>(++chunk == segment.end);
    }
    __device__ void go_on_split(int& chunk, const Segment& segment) {
      const auto goes_on = [&](int until) { return chunk < until && ill_conditioned; };
      while (goes_on(segment.first_output)) split_step<false, false>(++chunk == segment.end);
      if (chunk == segment.first_output && goes_on(segment.end)) {
        split_step<true, false>(++chunk == segment.end);
      }
      while (goes_on(segment.end)) split_step<true, true>(++chunk == segment.end);
    }
  };

  // Of the head's state in initial_state and final_state.
  static __device__ std::int64_t corner(const Chain& chain) {
    return (chain.sequence * chain.at.value_heads + chain.at.head) *
           std::int64_t{head_dim * head_dim};
  }

  static __device__ sm80::Share<1> share_of_warp() {
    return {static_cast<int>(threadIdx.x / 32) - 4 * FirstState, 0};
  }
  static __device__ void start_from_initial_state(const Tensors& x, const Chain& chain,
                                                  Group& group) {
    const float* from = x.initial_state + corner(chain);
    sm80::for_each_element(share_of_warp(), group.S, chain.first_value,
                           [&](float& element, int place) { element = from[place]; });
  }
  // Where the segment reaches the sequence's end.
  static __device__ void put_final_state(const Tensors& x, const Chain& chain,
                                         const Segment& segment, Group& group) {
    if (segment.end * chunk_tokens < chain.at.length) return;
    float* to = x.final_state + corner(chain);
    sm80::for_each_element(share_of_warp(), group.S, chain.first_value,
                           [&](float element, int place) { to[place] = element; });
  }

  static __device__ void state(const Arguments& arguments, Shared& shared) {
    state(arguments, shared, Group{shared, share_of_warp().value()});
  }
  template <class Own>
  static __device__ void state(const Arguments& arguments, Shared& shared, Own group) {
    const Tensors& x = arguments.tensors;
    const Segment segment = shared.segment;
    if (x.initial_state && segment.first == 0) start_from_initial_state(x, shared.chain, group);
    group.template go_through<Own>(segment);
    put_final_state(x, shared.chain, segment, group);
  }

  // What can be done before anybody knows the segment.
  static __device__ void prepare(const Arguments& arguments, Shared& shared) {
    for (Input& input : shared.input) clear_above(input);
    publish_to_async();
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < stages; ++stage) {
        shared.full[stage].initialise(load_threads / 32);
        shared.scores_full[stage].initialise(4);
        shared.free[stage].initialise(4 * state_groups);
        shared.output_full[stage].initialise(4 * state_groups);
        shared.stored[stage].initialise(1);
      }
      publish_barriers();
      prefetch(arguments.q);
      prefetch(arguments.k);
      prefetch(arguments.v);
      prefetch(arguments.A);
      prefetch(arguments.output);
    }
  }
  static __device__ void agree(Shared& shared, const Chain& chain, const Segment& segment) {
    if (threadIdx.x == 0) shared.chain = chain, shared.segment = segment;
    __syncthreads();
  }
  // By all threads, before they take their roles.
  static __device__ void begin(const Arguments& arguments, Shared& shared, const Chain& chain,
                               const Segment& segment) {
    prepare(arguments, shared);
    agree(shared, chain, segment);
  }

  static __device__ void load_and_store(const Arguments& arguments, Shared& shared,
                                        Turn<stages> first = {}) {
    give_registers<load_registers>();
    if (warp() == store_warp) {
      store(arguments, shared);
    } else {
      load(arguments, shared, first);
    }
  }

  // `state` is what the State warpgroups do, `first` the turn that Load begins with.
  template <class State>
  static __device__ void take_roles(const Arguments& arguments, Shared& shared, State state,
                                    Turn<stages> first = {}) {
    switch (threadIdx.x / 128) {
      case LoadAndStore:
        load_and_store(arguments, shared, first);
        break;
      case Scores:
        give_registers<scores_registers>();
        scores(arguments.tensors, shared, first);
        break;
      default:
        take_registers<state_registers>();
        state();
    }
  }

  // `segment_of` may read what the launch ahead has written.
  template <class SegmentOf>
  static __device__ void run(const Arguments& arguments, Shared& shared, const Chain& chain,
                             SegmentOf segment_of) {
    prepare(arguments, shared);
    wait_for_launch_ahead();
    const Segment segment = segment_of();
    agree(shared, chain, segment);
    take_roles(arguments, shared, [&] { state(arguments, shared); });
  }
};

static_assert(sizeof(RegisterChain<128, 2>::Shared) == 154624 &&
              sizeof(RegisterChain<128, 3>::Shared) == 220160 &&
              sizeof(RegisterChain<64, 2>::Shared) == 138240 &&
              sizeof(RegisterChain<64, 3>::Shared) == 195584);

}  // namespace gdn::sm90
