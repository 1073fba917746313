// Context parallelism by segment transitions and a scan, in three launches on rung 8's chain:
//
//   transitions  of every segment that another one follows, side by side: what it makes of S,
//                  S_out = M S_in + N
//                by the chain without output, N from S = 0, and M from S = I with V = 0. N and M
//                have a CTA each, of 128 columns. A sequence's first segment starts from the
//                initial state and needs no M: its N is S_out.
//   scan         S_in of the next segment = M S_in + N, one segment after the other; 64 values of a
//                head a CTA.
//   outputs      all segments side by side with output, each from its S_in.
//
// Where the gates forget, that much is not needed: a segment that finds its S_in by itself, from
// S = 0 a few chunks before (the warm-up of rung 9, whose bound holds here as well), needs nothing
// of the one before it. Each CTA finds out from g, and with the same numbers comes to the same
// answer as every other. So of a boundary between two segments there is to be known
//   none   nothing: the segment behind it finds S by itself;
//   state  N, which is S: the segment before it finds its S_in by itself and goes on from there;
//   both   M and N, and the state at the boundary before, which is `state` or `both` then.
// Where it is `none` everywhere, the first two launches are over at once. With `reach` = 0 only a
// sequence's first segment finds S by itself, and nothing is dropped at all.
//
// Between launches S and N are fp16 with a unit for each value (sm80/half.cuh), which is how a step
// of the scan rounds S for its product anyway, in the order in which threads have them; and S takes
// N's place. M is fp16 as well, with one unit, and lies in memory as it will in shared memory, the
// unit behind it. It is the right operand of Sᵀ Mᵀ.
//
// In the scan S is nothing but the left operand of its product: as it comes so it goes. Its unit is
// known before it is, from a bound of each value: of S_out at most 128 max|M| max|S_in| + max|N|,
// where the units of M and N say how large these can be, and max|S_in| is found. So nothing becomes
// too large for fp16, and what is 2^28 times smaller than the bound still has all its bits. As the
// bound comes anew from what S_in is, S does not move away from it step by step; and what fp16 then
// ends at is far below what the rounding of S_in makes of S_out.
//
// What orders a step of the scan: Load ─ full ─► State ─ free ─► Load, for M and N. Beside its
// product S_in goes out, the next unit is found, and N comes in it, to which the product is added.
//
// What orders the launches, where each may begin before the one ahead has ended: transitions and
// scan wait for the end of that before they touch what it may have written or read. Only then does
// the scan let outputs begin, of which every CTA is therefore behind the end of transitions, and of
// all that these waited for: it may read the inputs and write the results. For S it waits for the
// scan; and in any case before it ends, as whoever waits for outputs takes all three to be over.
// Where nothing is cut outputs is the only launch, and waits at once.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/cuda/register_chain.cuh"
#include "kernels/cuda/segments.hpp"
#include "kernels/cuda/two_pass_plan.hpp"
#include "kernels/cuda/warp_team.cuh"
#include "kernels/sm80/dependent.cuh"

namespace gdn::sm90 {

// Sᵀ of 64 values as a state warpgroup has it in its accumulators.
struct KeptState {  // 18,432 bytes
  struct alignas(16) Unit {
    float2 of;  // each thread's two values
  };
  HalfLeft x[head_dim / 16][128];  // [key / 16][thread]
  Unit unit[128];                  // 16 bytes apart as well, so that one address serves all

  static __device__ float2 inverse_of(float2 unit) {
    return {sm80::inverse_of(unit.x), sm80::inverse_of(unit.y)};
  }

  // This thread's part, from which on the following can be done.
  __device__ HalfLeft* own() { return &x[0][threadIdx.x % 128]; }
  static __device__ void put(HalfLeft* own, const HalfLeft (&S)[head_dim / 16]) {
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) own[128 * k] = S[k];
  }
  static __device__ void put_unit(HalfLeft* own, float2 unit) {
    reinterpret_cast<Unit*>(own + 128 * (head_dim / 16))->of = unit;
  }

  __device__ void put(const HalfLeft (&S)[head_dim / 16], float2 unit_of_S) {
    put(own(), S);
    put_unit(own(), unit_of_S);
  }
  __device__ void get(HalfLeft (&S)[head_dim / 16], float2& unit_of_S) const {
    const int own = threadIdx.x % 128;
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) S[k] = x[k][own];
    unit_of_S = unit[own].of;
  }

  __device__ void put(const Sum (&S)[head_dim / 8]) {
    const float2 largest = sm80::largest_of_rows(S);
    const float2 own_unit = {sm80::unit_of(largest.x), sm80::unit_of(largest.y)};
    HalfLeft halves[head_dim / 16];
    round(halves, S, inverse_of(own_unit));
    put(halves, own_unit);
  }
  __device__ void get(Sum (&S)[head_dim / 8]) const {
    HalfLeft halves[head_dim / 16];
    float2 own_unit;
    get(halves, own_unit);
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) sm80::sums_of(halves[k], own_unit, S + 2 * k);
  }

  static __device__ void round(HalfLeft (&to)[head_dim / 16], const Sum (&S)[head_dim / 8],
                               float2 inverse) {
#pragma unroll
    for (int k = 0; k < head_dim / 16; ++k) to[k] = sm80::half_left(S + 2 * k, inverse);
  }
};

enum class Join : std::int32_t { none, state, both };

// M in fp16 as it lies in shared memory, and its unit, which travels with it.
struct alignas(16) Transition {      // 32,784 bytes
  uint4 x[head_dim * head_dim / 8];  // [key out / 64][key in][unit], swizzled
  float unit;
};

// What the launches hand to each other, by boundary and head.
struct Boundary {
  KeptState* states;  // [boundary][head][value / 64]  N, then S
  Transition* M;      // [boundary][head]
  Join* joins;        // [boundary][head]
  int heads, count;   // boundaries, without their heads

  __device__ std::int64_t at(int boundary, int head) const {
    return std::int64_t{boundary} * heads + head;
  }
};

// What transitions and outputs have in common.
template <int width, int stages>
struct TwoPassChain : RegisterChain<width, stages> {
  using Base = RegisterChain<width, stages>;
  using typename Base::Chain;
  using typename Base::Group;

  struct Arguments : Base::Arguments {
    const Part* parts;
    Boundary boundary;
    int reach;  // chunks that a warm-up may take
    float threshold;
  };
  struct Shared : Base::Shared {
    KeptState* kept;  // S from there (outputs) or N to there (transitions): of the head
    Transition* M;    // to there; one of the two is null
    float largest[4 * Base::state_groups];  // of M, by warp
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

  // By all threads, before they take their roles.
  static __device__ void begin(const Arguments& arguments, Shared& shared, const Chain& chain,
                               const Segment& segment, KeptState* kept, Transition* M) {
    if (threadIdx.x == 0) {
      shared.kept = kept;
      shared.M = M;
    }
    Base::begin(arguments, shared, chain, segment);
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
  using typename Common::Shared;
  static constexpr const char* name = "two_pass_transitions";
  static constexpr int ctas_a_head = 2;  // N, M

  // As Base::load, without Q, and for M without V. All chunks are whole.
  static __device__ void load(const Arguments& arguments, Shared& shared, Place at, int chunks) {
    const Tensors& x = arguments.tensors;
    const bool with_values = shared.M == nullptr;
    TokenGates gates;
    gates.read(x, at);
    Turn<stages> turn;
    for (int round = 0; round < chunks; ++round, at = at.after(1), turn.next()) {
      jitter();
      shared.free[turn.stage].wait(turn.parity ^ 1);  // at once in the first round
      gates.write(shared.gates[round % Base::gates_slots]);
      gates.read(x, at.after(1));
      Input& input = shared.input[turn.stage];
      PhaseBarrier& full = shared.full[turn.stage];
      if constexpr (Base::has_engine) {
        if (threadIdx.x == 32 * Base::engine_warp) {
          full.arrive_and_expect(sizeof input.K + sizeof input.A + with_values * sizeof input.V);
          for (int panel = 0; panel < 2; ++panel) {
            load_box(input.K.panel(panel), arguments.k, 64 * panel, at.query_head, at.token, full);
          }
          load_box(input.A.panel(0), arguments.A, 0, at.head, at.token, full);
          for (int panel = 0; panel < 2 * with_values; ++panel) {
            load_box(input.V.panel(panel), arguments.v, 64 * panel, at.head, at.token, full);
          }
        } else {
          full.arrive();
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
        full.arrive();
      }
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
    if (shared.M != nullptr) {
      put_transition(shared, share.block, group.S);
    } else {
      shared.kept[share.value() / 64].put(group.S);
    }
  }

  // Rows 16 · `block` … of Mᵀ, rounded, by way of the places of Q, which nobody has: a panel each.
  static __device__ void put_transition(Shared& shared, int block, const Sum (&S)[head_dim / 8]) {
    const float unit = sm80::unit_of(largest_of_all(shared, block, S));
    if (threadIdx.x % 128 == 0) shared.M->unit = unit;
    const float inverse = sm80::inverse_of(unit);
    using Panel = Tile<head_dim, panel_columns>;
    static_assert(sizeof(Panel) == sizeof shared.input[0].Q);
    const auto panel = [&](int i) -> Panel& { return reinterpret_cast<Panel&>(shared.input[i].Q); };
#pragma unroll
    for (int k = 0; k < head_dim; k += 16) {
      put_left(panel(k / panel_columns), 16 * block, k % panel_columns,
               sm80::half_left(S + k / 8, {inverse, inverse}));
    }
    publish_to_async();
    __syncwarp();
    if (lane() != 0) return;
    constexpr int bytes = 16 * panel_row_bytes;
    for (int i = 0; i < 2; ++i) {
      store_bytes(shared.M->x + (i * sizeof(Panel) + block * bytes) / sizeof(uint4),
                  &panel(i).unit(16 * block, 0), bytes);
    }
    wait_stores_read<0>();
  }
  // The largest magnitude in M, of which this warp has a `block`.
  static __device__ float largest_of_all(Shared& shared, int block, const Sum (&S)[head_dim / 8]) {
    const float2 rows = sm80::largest_of_rows(S);
    float largest = max(rows.x, rows.y);
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2) {
      largest = max(largest, __shfl_xor_sync(~0U, largest, lanes));
    }
    if (lane() == 0) shared.largest[block] = largest;
    sync<128 * Base::state_groups>(1);
    for (const float other : shared.largest) largest = max(largest, other);
    return largest;
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
    Common::begin(arguments, shared, chain, {first, part.end, part.end},
                  is_transition ? nullptr : boundary.states + 2 * own,
                  is_transition ? boundary.M + own : nullptr);
    switch (threadIdx.x / 128) {
      case Base::LoadAndStore:
        give_registers<Base::load_registers>();
        if (warp() != Base::store_warp) {
          load(arguments, shared, chain.at.after(first), part.end - first);
        }
        break;
      case Base::Scores:
        give_registers<Base::scores_registers>();
        Base::scores(arguments.tensors, shared, shared.segment);
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
    const Boundaries* sequences;
    Boundary boundary;
  };
  struct Input {                 // 52,224 bytes
    Tile<head_dim, head_dim> M;  // 32,768  [key in][key out]
    alignas(16) float M_unit;    // behind it, as in a Transition
    KeptState N;
  };
  static_assert(offsetof(Input, M_unit) == offsetof(Transition, unit));

  struct Shared {  // 209,920 bytes
    Input input[stages];
    PhaseBarrier full[stages], free[stages];
  };

  // The boundaries of a head and sequence at which both M and N are needed, one after the other.
  struct Steps {
    const Boundary& boundary;
    const int head, end;
    int base;  // of the 32 under consideration
    unsigned left = 0;

    __device__ Steps(const Boundary& boundary, const Boundaries& all, int head)
        : boundary(boundary), head(head), end(all.first + all.count), base(all.first - 32) {}
    // For whole warps. −1: there is no more.
    __device__ int next() {
      while (left == 0) {
        if (base + 32 >= end) return -1;
        base += 32;
        const int own = base + lane();
        left =
            __ballot_sync(~0U, own < end && boundary.joins[boundary.at(own, head)] == Join::both);
      }
      const int first = __ffs(static_cast<int>(left)) - 1;
      left &= left - 1;
      return base + first;
    }
  };

  static __device__ void load(Shared& shared, Steps steps, int slice) {
    const Boundary& boundary = steps.boundary;
    Turn<stages> turn;
    for (int at = steps.next(); at >= 0; at = steps.next(), turn.next()) {
      if (lane() != 0) continue;
      shared.free[turn.stage].wait(turn.parity ^ 1);  // at once in the first round
      const std::int64_t own = boundary.at(at, steps.head);
      Input& input = shared.input[turn.stage];
      PhaseBarrier& full = shared.full[turn.stage];
      full.arrive_and_expect(sizeof(Transition) + sizeof input.N);
      load_bytes(&input.M, boundary.M + own, sizeof(Transition), full);
      load_bytes(&input.N, boundary.states + 2 * own + slice, sizeof input.N, full);
    }
  }

  // The unit of M S + N, before it is there: no element is larger than 128 times the largest of M
  // times that of S, `largest` in units of M, and the largest of N.
  static __device__ float unit_for(float largest, float N_unit) {
    constexpr float in_units = 32768;  // what the largest of M and N are below
    return sm80::unit_of(in_units * (head_dim * largest + N_unit));
  }

  static __device__ void state(Shared& shared, Steps steps, int slice) {
    int at = steps.next();
    if (at < 0) return;
    const Boundary& boundary = steps.boundary;
    const auto kept = [&](int at) -> KeptState& {
      return boundary.states[2 * boundary.at(at, steps.head) + slice];
    };
    Turn<stages> turn;
    HalfLeft S[head_dim / 16];
    float2 unit;
    kept(at - 1).get(S, unit);
    // Where this thread's part of S goes. It is carried from step to step: what a step had in
    // registers for the stores alone it would want back soon, and wait for 17 KiB of stores.
    HalfLeft* out = kept(at - 1).own();
    const std::int64_t stride = 2 * boundary.heads * int{sizeof(KeptState) / sizeof(HalfLeft)};
    shared.full[turn.stage].wait(turn.parity);
    for (;;) {
      const Input& input = shared.input[turn.stage];
      PhaseBarrier& free = shared.free[turn.stage];
      Sum product[head_dim / 8], next[head_dim / 8];  // the latter in units of the next S
      jitter();
      products_begin();
#pragma unroll
      for (int k = 0; k < head_dim / 16; ++k) {
        multiply<Major::mn>(product, S[k], input.M.mn_major(0, 16 * k), k > 0);
      }
      products_commit();

      const int now = at;
      at = steps.next();
      KeptState::put(out, S);  // or back where it came from
      const float2 unit_of_S = unit;
      const float2 largest = sm80::largest_of_rows(S);
      const float2 M_S = {input.M_unit * unit.x, input.M_unit * unit.y};
      const float2 N_unit = input.N.unit[threadIdx.x].of;
      unit = {unit_for(M_S.x * largest.x, N_unit.x), unit_for(M_S.y * largest.y, N_unit.y)};
      const float2 inverse = KeptState::inverse_of(unit);
#pragma unroll
      for (int k = 0; k < head_dim / 16; ++k) {
        sm80::sums_of(input.N.x[k][threadIdx.x], {N_unit.x * inverse.x, N_unit.y * inverse.y},
                      next + 2 * k);
      }
      for (Sum& sum : next) {
        for (float& element : sum.x) sm80::pin(element);  // beside the product, not behind it
      }
      const float2 factor = {M_S.x * inverse.x, M_S.y * inverse.y};
      turn.next();
      if (at >= 0) shared.full[turn.stage].wait(turn.parity);
      KeptState::put_unit(out, unit_of_S);

      products_wait<0>();
      release(free);
#pragma unroll
      for (int n = 0; n < head_dim / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) next[n].x[i] += product[n].x[i] * (i < 2 ? factor.x : factor.y);
      }
      KeptState::round(S, next, {1, 1});
      out += stride;
      if (at == now + 1) continue;  // by which this S goes out
      kept(now).put(S, unit);
      if (at < 0) return;
      kept(at - 1).get(S, unit);
      out = kept(at - 1).own();
    }
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
    const Steps steps(arguments.boundary, arguments.sequences[blockIdx.x / ctas],
                      cta / ctas_a_head);
    wait_for_launch_ahead();
    let_next_launch_begin();
    if (threadIdx.x / 32 == load_warp) {
      load(shared, steps, slice);
    } else {
      state(shared, steps, slice);
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
  using typename Common::Shared;
  static constexpr const char* name = "two_pass_outputs";
  static constexpr bool waits_itself = true;

  static __device__ void state(const Arguments& arguments, Shared& shared) {
    const Tensors& x = arguments.tensors;
    const Chain& chain = shared.chain;
    const Segment segment = shared.segment;
    Group group = {shared, Base::share_of_warp().value()};
    if (shared.kept != nullptr) {
      wait_for_launch_ahead();
      shared.kept[(chain.first_value + group.value) / 64].get(group.S);
    } else if (x.initial_state && segment.first == 0) {
      Base::start_from_initial_state(x, chain, group);
    }
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
    const Boundary& boundary = arguments.boundary;
    Common::begin(arguments, shared, chain, segment,
                  start >= 0 ? nullptr : boundary.states + 2 * boundary.at(part.boundary - 1, head),
                  nullptr);
    Base::take_roles(arguments, shared, chain, segment, [&] { state(arguments, shared); });
  }
};

static_assert(sizeof(TwoPassScan::Shared) == 209920);
static_assert(sizeof(Outputs<128, 3>::Shared) <= 232448);

}  // namespace gdn::sm90
