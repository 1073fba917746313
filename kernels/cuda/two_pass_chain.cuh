// Context parallelism by segment transitions and a scan, in three launches on rung 8's chain:
//
//   transitions  of every segment that another one follows, side by side: what it makes of S,
//                  S_out = M S_in + N
//                by the chain without output, N from S = 0, and M from S = I with V = 0. N and M
//                have a CTA each, of 128 columns. A sequence's first segment starts from the
//                initial state and needs no M: its N is S_out.
//   scan         S_in of the next segment = M S_in + N, one boundary after the other, 64 values of
//                a head a CTA. A sequence's boundaries are in groups, side by side: what is found
//                within each is N and M from its beginning on, M by the same chain on M's own
//                columns. In the first group N is S, and nobody needs M.
//   outputs      all segments side by side with output, each from its S_in: that of the first
//                group's end, by a step for each group's end between, and one to the segment.
//
// Where the gates forget, that much is not needed: a segment that finds its S_in by itself, from
// S = 0 a few chunks before (the warm-up of rung 9, whose bound holds here as well), needs nothing
// of the one before it. Each CTA finds out from g, and with the same numbers comes to the same
// answer as every other. So of a boundary between two segments there is to be known
//   none   nothing: the segment behind it finds S by itself;
//   state  N, which is S: the segment before it finds its S_in by itself and goes on from there;
//   both   M and N, and the state at the boundary before, which is `state` or `both` then.
// Behind a `state` S is known up to its group's end, whichever group that is, and the way of those
// behind it begins there. Where it is `none` everywhere, the first two launches are over at once.
// With `reach` = 0 only a sequence's first segment finds S by itself, and nothing is dropped at
// all.
//
// Between launches S and N are fp16 with a unit for each value (sm80/half.cuh), which is how a step
// rounds S for its product anyway, in the order in which threads have them; and S takes N's place.
// M is fp16 as well, with a unit for each 16 of its columns, which are rows of a warp that has
// found them, and lies in memory as it will in shared memory, the units behind it. It is the right
// operand of Sᵀ Mᵀ; its units are columns of the left one, which takes them before the product.
//
// In a step S is nothing but the left operand of its product: as it comes so it goes. Its unit is
// known before it is, from a bound of each value: of S_out at most 128 max|M| max|S_in| + max|N|,
// where the units of M and N say how large these can be, and max|S_in| is found. So nothing becomes
// too large for fp16, and what is 2^28 times smaller than the bound still has all its bits. As the
// bound comes anew from what S_in is, S does not move away from it step by step; and what fp16 then
// ends at is far below what the rounding of S_in makes of S_out. The M of several segments is found
// in the same way, and its bound is that much too large as well.
//
// What orders a step of the scan: Load ─ full ─► State ─ free ─► Load, for M and N. Beside its
// product S_in goes out, the next unit is found, and N comes in it, to which the product is added.
//
// Outputs have no room for M but where inputs will be. So Load may bring the first inputs at once,
// and the others when State has released their places, which it does when it is at its S_in: at
// once if that takes no step. tests/protocol_test.cpp goes through all interleavings of this.
//
// What orders the launches, where each may begin before the one ahead has ended: transitions and
// scan wait for the end of that before they touch what it may have written or read. Only then does
// the scan let outputs begin, of which every CTA is therefore behind the end of transitions, and of
// all that these waited for: it may read the inputs and what each boundary needs, and write the
// results. For S it waits for the scan; and in any case before it ends, as whoever waits for
// outputs takes all three to be over. Where no group has a step there is no scan, and outputs wait
// for the transitions themselves; where nothing is cut they are the only launch, and wait at once.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/cuda/register_chain.cuh"
#include "kernels/cuda/segments.hpp"
#include "kernels/cuda/two_pass_plan.hpp"
#include "kernels/cuda/warp_team.cuh"
#include "kernels/sm80/dependent.cuh"

namespace gdn::sm90 {

// M in fp16 as it lies in shared memory, and a unit for each 16 of its columns, which travel with
// it.
struct alignas(16) Transition {      // 32,800 bytes
  uint4 x[head_dim * head_dim / 8];  // [key out / 64][key in][unit], swizzled
  float unit[head_dim / 16];         // [key in / 16]

  using Rows = Tile<16, head_dim>;  // 4,096 bytes

  // Rows 16 · `block` … of Mᵀ, by a warp that has `room` to itself until its stores have read it.
  __device__ void put(int block, const HalfLeft (&rows)[head_dim / 16], float unit_of_rows,
                      Rows& room) {
    wait_stores_read<0>();
    __syncwarp();
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) put_left(room, 0, 16 * k, rows[k]);
    publish_to_async();
    __syncwarp();
    if (lane() != 0) return;
    unit[block] = unit_of_rows;
    for (int i = 0; i < Rows::panels; ++i) {
      store_bytes(x + (i * Tile<head_dim, head_dim>::panel_bytes + block * Rows::panel_bytes) /
                          sizeof(uint4),
                  room.panel(i), Rows::panel_bytes);
    }
  }
};
// The same in shared memory.
struct TransitionTile {
  Tile<head_dim, head_dim> x;  // [key in][key out]
  float unit[head_dim / 16];

  // By one thread.
  __device__ void bring(const Transition& from, PhaseBarrier& full) {
    load_bytes(this, &from, sizeof from, full);
  }
};
static_assert(offsetof(TransitionTile, unit) == offsetof(Transition, unit));

// Sᵀ of 64 values in fp16, as a warpgroup has it for its products: a unit for each value.
struct HalfState {
  HalfLeft x[head_dim / 16];
  float2 unit;  // of this thread's two values

  __device__ void round(const Sum (&S)[head_dim / 8], float2 inverse) {
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) x[k] = sm80::half_left(S + 2 * k, inverse);
  }
  __device__ void put(Sum (&S)[head_dim / 8], float2 factor) const {
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) {
      sm80::sums_of(x[k], {unit.x * factor.x, unit.y * factor.y}, S + 2 * k);
    }
  }
  static __device__ float2 inverse_of(float2 unit) {
    return {sm80::inverse_of(unit.x), sm80::inverse_of(unit.y)};
  }

  // S ← M S + N. Beside the product `add(bound, N)` makes `unit` one for what is to come, where M S
  // is at most `bound`, and finds N in it; S itself is still there.
  template <class Add>
  __device__ void step(const TransitionTile& M, Add add) {
    jitter();
    float largest_unit = M.unit[0];
#pragma unroll
    for (int k = 1; k < head_dim / 16; ++k) largest_unit = max(largest_unit, M.unit[k]);
    const float inverse_unit = sm80::inverse_of(largest_unit);
    HalfLeft left[head_dim / 16];  // M's units are columns of Sᵀ
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) left[k] = sm80::scaled(x[k], M.unit[k] * inverse_unit);
    Sum product[head_dim / 8], next[head_dim / 8];  // the latter in units of the next S
    products_begin();
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) {
      multiply<Major::mn>(product, left[k], M.x.mn_major(0, 16 * k), k > 0);
    }
    products_commit();

    const float2 largest = sm80::largest_of_rows(left);
    const float2 product_unit = {largest_unit * unit.x, largest_unit * unit.y};
    constexpr float most = head_dim * in_units;
    add(float2{most * (product_unit.x * largest.x), most * (product_unit.y * largest.y)}, next);
    for (Sum& sum : next) {
      for (float& element : sum.x) sm80::pin(element);  // beside the product, not behind it
    }
    const float2 inverse = inverse_of(unit);
    const float2 factor = {product_unit.x * inverse.x, product_unit.y * inverse.y};
    products_wait<0>();
#pragma unroll
    for (int n = 0; n < head_dim / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) next[n].x[i] += product[n].x[i] * (i < 2 ? factor.x : factor.y);
    }
    round(next, {1, 1});
  }
  // What a step adds where there is an N.
  __device__ void add(const HalfState& N, float2 bound, Sum (&sums)[head_dim / 8]) {
    unit = {sm80::unit_of(bound.x + in_units * N.unit.x),
            sm80::unit_of(bound.y + in_units * N.unit.y)};
    N.put(sums, inverse_of(unit));
  }
  static constexpr float in_units = 32768;  // what the largest of M and N are below
};

// The same in memory.
struct KeptState {                 // 17,408 bytes
  HalfLeft x[head_dim / 16][128];  // [key / 16][thread]
  float2 unit[128];

  __device__ void put(const HalfState& S) {
    const int own = threadIdx.x % 128;
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) x[k][own] = S.x[k];
    unit[own] = S.unit;
  }
  __device__ HalfState get() const {
    const int own = threadIdx.x % 128;
    HalfState S;
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) S.x[k] = x[k][own];
    S.unit = unit[own];
    return S;
  }
};

enum class Join : std::int32_t { none, state, both };

// What the launches hand to each other, by boundary and head.
struct Boundary {
  KeptState* states;  // [boundary][head][value / 64]  N, then S or N from the group's beginning on
  Transition* M;      // [boundary][head]
  Transition* M_before;  // [boundary][head]  the same from the group's beginning on
  Join* joins;           // [boundary][head]
  int heads, count;      // boundaries, without their heads

  __device__ std::int64_t at(int boundary, int head) const {
    return std::int64_t{boundary} * heads + head;
  }
};

// Of the rows that a warp has what is largest, from what is in this thread's two.
__device__ inline float largest_in_block(float2 rows) {
  float largest = max(rows.x, rows.y);
#pragma unroll
  for (int lanes = 4; lanes < 32; lanes *= 2) {
    largest = max(largest, __shfl_xor_sync(~0U, largest, lanes));
  }
  return largest;
}

// What transitions and outputs have in common.
template <int width, int stages>
struct TwoPassChain : RegisterChain<width, stages> {
  using Base = RegisterChain<width, stages>;
  using typename Base::Chain;

  struct Arguments : Base::Arguments {
    const Part* parts;
    Boundary boundary;
    int reach;  // chunks that a warm-up may take
    float threshold;
  };
  static __device__ Chain chain_of(const Arguments& arguments, const Part& part, int head,
                                   int first_value) {
    return {part.sequence, first_value,
            place_of({part.sequence, 0, part.token, part.length}, head, arguments.query_heads,
                     arguments.value_heads)};
  }

  // The chunk from which on a segment that begins with `first` finds its state by itself, or −1 if
  // that is out of reach. The same for all threads, CTAs and launches.
  static __device__ int own_start(const Arguments& arguments, const Place& at, int first) {
    const int least = first - arguments.reach;
    const int start = warm_up_start(first, arguments.threshold, WarpTeam(), [&](int chunk) {
      return chunk < least ? -INFINITY
                           : arguments.tensors.g[at.after(chunk).gate(chunk_tokens - 1)];
    });
    return start >= least ? start : -1;
  }
};

// ---- transitions

template <int stages>
struct Transitions : TwoPassChain<128, stages> {
  using Common = TwoPassChain<128, stages>;
  using Base = RegisterChain<128, stages>;
  using typename Base::Chain;
  using typename Base::Group;
  using typename Base::Input;
  using typename Common::Arguments;
  static constexpr const char* name = "two_pass_transitions";
  static constexpr int ctas_a_head = 2;  // N, M

  struct Shared : Base::Shared {
    KeptState* N;   // to there, of the head
    Transition* M;  // or this; one of the two is null
  };

  // As Base::load, without Q, and for M without V. All chunks are whole.
  static __device__ void load(const Arguments& arguments, Shared& shared, Place at, int chunks) {
    const Tensors& x = arguments.tensors;
    const bool with_values = shared.M == nullptr;
    typename Base::GatesOfChunks gates(x, at, chunks);
    Turn<stages> turn;
    for (int round = 0; round < chunks; ++round, at = at.after(1), turn.next()) {
      jitter();
      shared.free[turn.stage].wait(turn.parity ^ 1);  // at once in the first round
      if (warp() < Base::engine_warp) {
        gates.put(x, at, round, round == chunks - 1, shared.gates[round % Base::gates_slots]);
      }
      Input& input = shared.input[turn.stage];
      PhaseBarrier& full = shared.full[turn.stage];
      if constexpr (Base::has_engine) {
        if (warp() != Base::engine_warp) {
          release(full);
        } else if (elected()) {
          full.arrive_and_expect(sizeof input.K + Base::inverse_bytes +
                                 with_values * sizeof input.V);
          for (int panel = 0; panel < 2; ++panel) {
            load_box(input.K.panel(panel), arguments.k, 64 * panel, at.query_head, at.token, full);
          }
          Base::load_inverse(arguments, input, at, full);
          if (with_values) {
            for (int panel = 0; panel < 2; ++panel) {
              load_box(input.V.panel(panel), arguments.v, 64 * panel, at.head, at.token, full);
            }
          }
        }
      } else {
        constexpr int threads = Base::load_threads;
        load_plainly<threads, head_dim>(input.K, x.k + at.query(), at.query_stride(), at.length);
        load_plainly<threads, chunk_tokens>(input.A, x.A + at.inverse(), at.inverse_stride(),
                                            at.length);
        if (with_values) {
          load_plainly<threads, head_dim>(input.V, x.v + at.value(), at.value_stride(), at.length);
        }
        sm80::commit_copies();
        sm80::wait_copies<0>();
        publish_to_async();
        release(full);
      }
      if (warp() < Base::engine_warp) gates.go_on(x, at, round, chunks);
    }
  }

  static __device__ void state(const Arguments& arguments, Shared& shared) {
    const Segment segment = shared.segment;
    const sm80::Share<1> share = Base::share_of_warp();
    Group group = {shared, share.value()};
    if (shared.M != nullptr) {
      sm80::for_each_element(share, group.S, 0, [](float& element, int place) {
        element = place / head_dim == place % head_dim ? 1 : 0;
      });
    } else if (arguments.tensors.initial_state && segment.first == 0) {
      Base::start_from_initial_state(arguments.tensors, shared.chain, group);
    }
    group.go_through(segment);
    HalfState rounded;
    const float2 largest = sm80::largest_of_rows(group.S);
    if (shared.M != nullptr) {
      const float unit = sm80::unit_of(largest_in_block(largest));
      rounded.round(group.S, HalfState::inverse_of({unit, unit}));
      // Nobody has Q.
      auto* const rooms = reinterpret_cast<Transition::Rows*>(&shared.input[share.block / 4].Q);
      shared.M->put(share.block, rounded.x, unit, rooms[share.block % 4]);
      wait_stores_read<0>();
    } else {
      rounded.unit = {sm80::unit_of(largest.x), sm80::unit_of(largest.y)};
      rounded.round(group.S, HalfState::inverse_of(rounded.unit));
      shared.N[share.value() / 64].put(rounded);
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    let_next_launch_begin();
    const int ctas = arguments.value_heads * ctas_a_head;
    const int cta = static_cast<int>(blockIdx.x) % ctas, head = cta / ctas_a_head;
    const bool is_transition = cta % ctas_a_head == 1;
    const Part part = arguments.parts[blockIdx.x / ctas];
    const Chain chain = Common::chain_of(arguments, part, head, 0);
    const int start = Common::own_start(arguments, chain.at, part.first);
    const Join join = Common::own_start(arguments, chain.at, part.end) >= 0 ? Join::none
                      : start >= 0                                          ? Join::state
                                                                            : Join::both;
    const Boundary& boundary = arguments.boundary;
    const std::int64_t own = boundary.at(part.boundary, head);
    if (threadIdx.x == 0 && !is_transition) boundary.joins[own] = join;
    if (join == Join::none || (is_transition && join == Join::state)) return;
    if (is_transition) {
      for (Input& input : shared.input) {
        for (int i = threadIdx.x; i < int{sizeof input.V / sizeof(uint4)}; i += Base::threads) {
          reinterpret_cast<uint4*>(input.V.x)[i] = {};
        }
      }
    }
    const int first = start >= 0 ? start : part.first;
    if (threadIdx.x == 0) {
      shared.N = is_transition ? nullptr : boundary.states + 2 * own;
      shared.M = is_transition ? boundary.M + own : nullptr;
    }
    Base::begin(arguments, shared, chain, {first, part.end, part.end});
    switch (threadIdx.x / 128) {
      case Base::LoadAndStore:
        give_registers<Base::load_registers>();
        if (warp() != Base::store_warp) {
          load(arguments, shared, chain.at.after(first), part.end - first);
        }
        break;
      case Base::Scores:
        give_registers<Base::scores_registers>();
        Base::scores(arguments.tensors, shared);
        break;
      default:
        take_registers<Base::state_registers>();
        state(arguments, shared);
    }
  }
};

// ---- scan

struct TwoPassScan {
  static constexpr const char* name = "two_pass_scan";
  static constexpr int threads = 160, blocks_per_processor = 1;
  static constexpr bool follows_closely = true, waits_itself = true;
  static constexpr int ctas_a_head = 2, stages = 4;
  static constexpr int load_warp = 4;

  struct Arguments {
    const Boundaries* groups;
    Boundary boundary;
  };
  struct Input {  // 51,200 bytes
    TransitionTile M;
    KeptState N;
  };

  struct Shared {  // 222,208 bytes
    Input input[stages];
    Transition::Rows room[4];  // of a warp
    PhaseBarrier full[stages], free[stages];
  };

  // Of a head and group the boundaries that a CTA goes to, one after the other. For N: those of a
  // `both`, but for the first, with whose N they begin. For M: as long as all are, with the first.
  struct Steps {
    const Boundary& boundary;
    const Boundaries group;
    const int head, end;
    int base;  // of the 32 under consideration
    int next_of_M;
    unsigned left = 0;

    __device__ Steps(const Boundary& boundary, const Boundaries& group, int head)
        : boundary(boundary),
          group(group),
          head(head),
          end(group.first + group.count),
          base(group.first + !group.of_M - 32),
          next_of_M(group.first) {}
    // For whole warps. −1: there is no more.
    __device__ int next() {
      while (left == 0) {
        if (base + 32 >= end) return -1;
        base += 32;
        const int own = base + lane();
        left =
            __ballot_sync(~0U, own < end && boundary.joins[boundary.at(own, head)] == Join::both);
      }
      const int at = base + __ffs(static_cast<int>(left)) - 1;
      left &= left - 1;
      return group.of_M && at != next_of_M++ ? -1 : at;
    }
  };

  static __device__ void load(Shared& shared, Steps steps, int slice) {
    const Boundary& boundary = steps.boundary;
    const bool with_N = !steps.group.of_M;
    Turn<stages> turn;
    for (int at = steps.next(); at >= 0; at = steps.next(), turn.next()) {
      if (lane() != 0) continue;
      shared.free[turn.stage].wait(turn.parity ^ 1);  // at once in the first round
      const std::int64_t own = boundary.at(at, steps.head);
      Input& input = shared.input[turn.stage];
      PhaseBarrier& full = shared.full[turn.stage];
      full.arrive_and_expect(sizeof(Transition) + with_N * sizeof input.N);
      input.M.bring(boundary.M[own], full);
      if (with_N) load_bytes(&input.N, boundary.states + 2 * own + slice, sizeof input.N, full);
    }
  }

  static __device__ void go_through_states(Shared& shared, Steps steps, int slice) {
    const auto kept = [&](int at) -> KeptState& {
      return steps.boundary.states[2 * steps.boundary.at(at, steps.head) + slice];
    };
    Turn<stages> turn;
    int before = -1;  // whose S this is
    HalfState S;
    for (int at = steps.next(); at >= 0; before = at, at = steps.next(), turn.next()) {
      if (before >= 0 && before != at - 1) kept(before).put(S);
      if (before != at - 1) S = kept(at - 1).get();
      shared.full[turn.stage].wait(turn.parity);
      S.step(shared.input[turn.stage].M, [&](float2 bound, Sum(&N)[head_dim / 8]) {
        kept(at - 1).put(S);  // or back where it came from
        S.add(shared.input[turn.stage].N.get(), bound, N);
      });
      release(shared.free[turn.stage]);
    }
    if (before >= 0) kept(before).put(S);
  }

  // The same chain over columns of M, from those of the first one, where N is 0. A warp's 16 are
  // rows of its transpose, and have one unit.
  static __device__ void go_through_transitions(Shared& shared, Steps steps, int slice) {
    const int first = steps.next(), block = 4 * slice + warp();
    if (first < 0) return;
    const auto put = [&](int at, const HalfState& P) {
      steps.boundary.M_before[steps.boundary.at(at, steps.head)].put(block, P.x, P.unit.x,
                                                                     shared.room[warp()]);
    };
    Turn<stages> turn;
    shared.full[0].wait(0);
    TransitionTile& M = shared.input[0].M;
    HalfState P;
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) {
      P.x[k] = sm80::left_of<HalfLeft>(M.x, 16 * block, 16 * k);
    }
    P.unit = {M.unit[block], M.unit[block]};
    int before = first;
    for (int at = steps.next(); at >= 0; before = at, at = steps.next()) {
      release(shared.free[turn.stage]);
      turn.next();
      shared.full[turn.stage].wait(turn.parity);
      P.step(shared.input[turn.stage].M, [&](float2 bound, Sum(&N)[head_dim / 8]) {
        if (before != first) put(before, P);
        const float unit = sm80::unit_of(largest_in_block(bound));
        P.unit = {unit, unit};
        for (Sum& sum : N) sum = {};
      });
    }
    if (before != first) put(before, P);
    wait_stores_read<0>();
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    if (threadIdx.x == 0) {
      for (int stage = 0; stage < stages; ++stage) {
        shared.full[stage].initialise(1);
        shared.free[stage].initialise(4);
      }
      publish_barriers();
    }
    __syncthreads();
    const int ctas = arguments.boundary.heads * ctas_a_head;
    const int cta = static_cast<int>(blockIdx.x) % ctas, slice = cta % ctas_a_head;
    const Boundaries group = arguments.groups[blockIdx.x / ctas];
    const Steps steps(arguments.boundary, group, cta / ctas_a_head);
    wait_for_launch_ahead();
    let_next_launch_begin();
    if (threadIdx.x / 32 == load_warp) {
      load(shared, steps, slice);
    } else if (group.of_M) {
      go_through_transitions(shared, steps, slice);
    } else {
      go_through_states(shared, steps, slice);
    }
  }
};

// ---- outputs

template <int width, int stages>
struct Outputs : TwoPassChain<width, stages> {
  using Common = TwoPassChain<width, stages>;
  using Base = RegisterChain<width, stages>;
  using typename Base::Chain;
  using typename Base::Group;
  using typename Common::Arguments;
  static constexpr const char* name = "two_pass_outputs";
  static constexpr bool waits_itself = true;
  // Places of inputs that are M's before: the first inputs come beside these. What is 0 in A stays.
  static constexpr int places = stages - 1;
  static_assert(sizeof(TransitionTile) <= offsetof(typename Base::Input, A));

  struct Shared : Base::Shared {
    Part part;
    PhaseBarrier brought[places];
  };

  // The boundary to start from: that before the segment, or the last end of a group before it, if
  // between the group's beginning and the segment's no state is known.
  static __device__ int last_known(const Boundary& boundary, const Part& part, int head) {
    const int to = part.boundary - 1;
    int known = to;
    if (part.groups_before() == 0) return to;
    for (;; known -= 32) {
      const int own = known - lane();
      const unsigned found = __ballot_sync(
          ~0U, own >= part.first_boundary && boundary.joins[boundary.at(own, head)] != Join::both);
      if (found == 0) continue;
      known -= __ffs(static_cast<int>(found)) - 1;
      return min(to, known + part.group - 1 - (known - part.first_boundary) % part.group);
    }
  }

  // S at the boundary before the segment, from `at`, where it is known, by a step for each group's
  // end on the way and one from there.
  static __device__ void go_from(int at, const Boundary& boundary, Shared& shared, int value,
                                 Sum (&S)[head_dim / 8]) {
    const Part& part = shared.part;
    const int head = shared.chain.at.head, to = part.boundary - 1;
    wait_for_launch_ahead();
    const auto kept = [&](int at) -> const KeptState& {
      return boundary.states[2 * boundary.at(at, head) + (shared.chain.first_value + value) / 64];
    };
    const auto place = [&](int i) -> TransitionTile& {
      return reinterpret_cast<TransitionTile&>(shared.input[1 + i]);
    };
    int ahead = at;
    Turn<places> coming, turn;
    const auto bring = [&] {
      if (ahead == to) return;
      ahead = min(ahead + part.group, to);
      if (threadIdx.x == 128 * Base::FirstState) {
        const bool begins = (ahead - part.first_boundary) % part.group == 0;
        PhaseBarrier& brought = shared.brought[coming.stage];
        brought.arrive_and_expect(sizeof(Transition));
        place(coming.stage)
            .bring((begins ? boundary.M : boundary.M_before)[boundary.at(ahead, head)], brought);
      }
      coming.next();
    };
    for (int i = 0; i < places; ++i) bring();
    HalfState state = kept(at).get();
    for (; at != to; turn.next()) {
      at = min(at + part.group, to);
      const HalfState N = kept(at).get();
      shared.brought[turn.stage].wait(turn.parity);
      state.step(place(turn.stage),
                 [&](float2 bound, Sum(&sums)[head_dim / 8]) { state.add(N, bound, sums); });
      sync<128 * Base::state_groups>(1);  // nobody reads M any more
      bring();
    }
    state.put(S, {1, 1});
  }

  static __device__ void state(const Arguments& arguments, Shared& shared) {
    const Tensors& x = arguments.tensors;
    const Chain& chain = shared.chain;
    const Segment segment = shared.segment;
    const Part& part = shared.part;
    const bool is_found = segment.first == 0 || segment.first < part.first;  // by itself
    const int to = part.boundary - 1;
    const int known = is_found ? to : last_known(arguments.boundary, part, chain.at.head);
    const auto free_places = [&] {
      for (int i = 1; i < stages; ++i) release(shared.free[i]);
    };
    Group group = {shared, Base::share_of_warp().value()};
    if (known == to) free_places();
    if (!is_found) {
      go_from(known, arguments.boundary, shared, group.value, group.S);
    } else if (x.initial_state && segment.first == 0) {
      Base::start_from_initial_state(x, chain, group);
    }
    if (known != to) free_places();
    group.go_through(segment);
    Base::put_final_state(x, chain, segment, group);
    wait_for_launch_ahead();  // so that whoever waits for this launch has waited for all three
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    if (arguments.boundary.count == 0) wait_for_launch_ahead();
    const int ctas = arguments.value_heads * Chain::slices;
    const int cta = static_cast<int>(blockIdx.x) % ctas, head = cta / Chain::slices;
    const Part part = arguments.parts[blockIdx.x / ctas];
    const Chain chain = Common::chain_of(arguments, part, head, cta % Chain::slices * width);
    const int start = Common::own_start(arguments, chain.at, part.first);
    const Segment segment = {start >= 0 ? start : part.first, part.first, part.end};
    if (threadIdx.x == 0) {
      shared.part = part;
      for (PhaseBarrier& brought : shared.brought) brought.initialise(1);
    }
    Base::begin(arguments, shared, chain, segment);
    if (threadIdx.x / 128 >= Base::FirstState) release(shared.free[0]);
    Base::take_roles(arguments, shared, [&] { state(arguments, shared); }, {.parity = 1});
  }
};

static_assert(sizeof(TwoPassScan::Shared) == 222208);
static_assert(sizeof(Outputs<128, 3>::Shared) <= 232448);

}  // namespace gdn::sm90
