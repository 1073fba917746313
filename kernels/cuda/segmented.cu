// Rung 9: the chain is cut where the gates have forgotten. A CTA of rung 8 goes through a sequence
// from its beginning, and few heads leave most multiprocessors idle. Here it goes through a segment
// of it, and beforehand, from S = 0 and without output, through as many chunks as it takes for
// what S really was to be forgotten:
//   S(first) = M S(start) + N,  ‖M‖ ≤ exp(Σ g_C of chunks start … first − 1) ≤ e^threshold
// M is the product of the transitions α (I − β kᵀ k) of all tokens in between, none of which is
// longer than α as long as 0 ≤ β‖k‖² ≤ 2. So at most e^threshold ‖S(start)‖ is missing from S: with
// −12, 6e-6 of it, where rounding to bf16 takes 2e-3. Where the way back reaches the sequence's
// beginning, nothing is missing: the start is the initial state.
//
// With gates that forget too little every segment goes all the way back. That is right, and takes
// as long as rung 8, on many multiprocessors instead of few: the cuts are made before the gates are
// known. What helps there is rung 10.
//
// The host cuts (segments.hpp), outside the timing, since it takes lengths alone. Each warp then
// looks for the start by itself, 32 chunks at a time: g at the chunks' ends is loaded by a lane
// each, and a scan adds it up. What follows is rung 8's: roles, their order and their barriers are
// register_chain.cuh's and as they were.
//
// Knobs: segments a sequence, or auto: as many as make one wave of CTAs; threshold; value_width and
// stages as in rung 8.
//
// Bytes and cycles: those of rung 8, and those of the warm-up, for which O is not stored, P' not
// made and Q not loaded: K, V and A are 38 KiB a chunk and head.
//
// Predicted, with 132 multiprocessors and 4 chunks of warm-up, at rung 8's 1.3 to 1.7 µs a chunk:
// wide_gva_state (2 segments of 65 chunks) and deep_gva_state (4 of 67) 86 to 112 µs, where their
// bytes take 97; long_low_gva (16 of 35) 47 to 61; chain_equal (16 of 12) 10 to 14. Measured (H200,
// graph timing with some 5 µs of an event inside, reports/h200/ladder.json), best of
// segments=auto: 135, 134, 71 and 19; short_tail_state 13.
//
// Where it goes, wide_gva_state, µs by the graph of single calls, of 134 to 138:
//   without loads but a segment's first 125, without stores 131, without either 121
//   without scores 128, without Q S and W P' 126, without A R 129, without V's start 129
//   without any arithmetic of State 118; without stores as well 85
//   with factors of columns that are not read 129: they are 512 of 2,345 passes through the LSU a
//   chunk, which is busy for 70 % of the time. So whoever asks shared memory for a number waits 100
//   to 250 cycles for it
// By ncu, which has it take 142 µs, it is 227,000 cycles, and without loads 223,000 and 128 µs:
// State's chain, of 3,300 a chunk where the tensor cores have 2,304. What loads cost is the clock,
// 1.60 GHz with them, 1.75 without. The clock also is why a row may take 150 to 160: after some 5
// to 10 ms of this without a pause it falls to 1.55 GHz, and stays there until there is one: the
// card comes to its power cap (NVML; the row is throttled). Where memory lies makes no difference.
//
// On one card each, µs by the graph, before and after:
//   what the copy engine is told from one elected thread of a warp that does nothing else, and not
//   in a loop over lanes for each box (some 500 cycles a chunk, by the SASS) by a warp that brings
//   gates as well: deep 140.6, 138.3, batch 76.3, 75.0; 16 heads of models, 64 values, 129.8, 125.0
//   S/u for S and one operand for S' and O (register_chain.cuh): batch 75.0, 74.1; with 64 values
//   deep 170.7, 167.1, batch 89.2, 88.7; with the next, 64 heads of models 208.8, 193.2
//   the stage of Scores in a register of the warp: batch 74.1, 73.6, 64 values 88.7, 87.5
//   the next V to L2, whose place waits for Store: wide 134.9, 134.3, 64 values 165.7, 162.9
//   what Scores and State ask of a chunk asked at once, as soon as it is there, and not one by one
//   when it is wanted, 800 cycles a chunk of Scores: wide 135.3, 133.3, deep 135.0, 132.4, batch
//   73.0, 70.8, short 13.8, 13.3; 64 values 164.5, 162.3
//   A without the quadrant above its diagonal: short 17.3, 17.1; chain 20.4, 20.0; wide 140, 141
//   no loops for ill-conditioned chunks: wide 136.3, 135.7; O not stored: 136.2, 128.7
//   Load lets go of a chunk before it reads the next gates: wide 131.5, 129.1, deep 130.6, 129.5
//   A folded by the preparation (register_chain.cuh), and β with it, so that State has no factors
//   for R and W, and 256 of those passes less; forward: wide 166.8, 160.8, deep 165.0, 160.8,
//   parallel_gva 28.9, 27.7, 64 values 27.2, 26.3, short 17.9, 17.6, long 87.6, 88.3, batch 87.9,
//   88.1. What Load does for it is felt: without what makes good for diagonals that are
//   rounded with β wide 158, deep 159, long 87, batch 86.4. With the mark of each chunk read with
//   its gates, and not of 32 at once: wide 163.2, 64 values 203.0, 194.
//   Then without β, which is State's again, not measured yet: what it erased was off by how
//   β was rounded, and of 1000 random shapes one had an element of the state beyond the lab's bound
// not kept so far: the State warpgroups in turns (numbered barriers), one at K S and Q S while the
//   other is at A R and S': wide 136.5, 135.3, deep 136.7, 135.2, chain 20.1, 20.3
// and tried and lost:
//   K and Q half by each of a cluster of two for both, by multicast, with a barrier of the Loads
//   alone: wide 136.4, 138.0, batch 72.7, 75.7; and A, with 64 values: 163.3, 171.3. The cluster
//   by itself: wide 137.0, with 64 values short 13.8, 13.3
//   A with its columns' and rows' factors, by Scores, so that State has none: 135.3, 145.2; State
//   without them 128, if nobody else had to. Scores has no time for it
//   R rounded between the halves of Q S: wide 133.3, 134.1, batch 70.8, 71.9; 64 values 162.3, 161
//   V's start read behind the rounding of W: wide 134.1, 136.3; two barriers tried at once: 136.3,
//   136.6
//   S/u with factors of P' that are read again for each block: wide 142.3, 139.8 but with 64 values
//   171.4, 178.5, as State waits for Scores. And with steep chunks in halves, for want of P' that
//   takes W faded: heads of models, whose chunks often are, 1.9 times as long
//   K, A and Q to L2 early as well: wide 134.3, 138.2, 64 values 162.9, 186.9. The first K and V
//   before the launch ahead has ended: forward of batch 89.2, 90.7, of deep 168.0, 168.8
//   a preparation that lets this begin with its last round, and the first CTAs not waiting: forward
//   of wide 168.9, 180.5, of long 90.2, 89.7; core of parallel_gva 24.2, 24.9. With no wait for the
//   preparation at all the forward of wide and deep would take 3 to 4 less, of chain 0.6
//   A and P' in products of 32 columns, without what is above: wide 139.9, 140.2, chain 19.6, 20.2
//   four places for V: 141, 148; the factors of W loaded beside A R: 137.4, 139.5; Q S waited for
//   before A R: 137.4, 141.9; barriers tested beside it: 139.3, 139.3; V and A evicted first: 139.0
//   the final state by the copy engine: short 17.2, 18.1, chain 20.1, 20.5, wide 137.6, 138
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/register_chain.cuh"
#include "kernels/cuda/rungs.hpp"
#include "kernels/cuda/warp_team.cuh"

namespace gdn::gpu {
namespace {

template <int width, int stages, bool folded>
struct Segmented : sm90::RegisterChain<width, stages, true, folded> {
  using Base = sm90::RegisterChain<width, stages, true, folded>;
  using Chain = typename Base::Chain;
  static constexpr const char* name = "segmented";
  static constexpr bool waits_itself = true;

  struct Arguments : Base::Arguments {
    const Piece* pieces;  // [segments], of which a CTA a head and slice
    float threshold;
  };

  static Arguments arguments(const Problem& problem, const Tensors& x, const Piece* pieces,
                             float threshold) {
    return {Base::arguments(problem, x), pieces, threshold};
  }

  static __device__ void run(const Arguments& arguments, typename Base::Shared& shared) {
    const auto [piece, chain] =
        OwnPiece<Chain>(arguments.pieces, arguments.query_heads, arguments.value_heads);
    Base::run(arguments, shared, chain, [&] {
      const int start =
          warm_up_start(piece.first, arguments.threshold, sm90::WarpTeam(), [&](int chunk) {
            return arguments.tensors.g[chain.at.after(chunk).gate(chunk_tokens - 1)];
          });
      return sm90::Segment{start, piece.first, piece.end};
    });
  }
};

template <int width, int stages>
Instance instance(int segments) {
  return instance_of_pieces<Segmented<width, stages, false>, Segmented<width, stages, true>>(
      segments, -12, {{"stages", std::to_string(stages)}, {"value_width", std::to_string(width)}});
}

}  // namespace

Variant segmented() {
  return {.name = "segmented",
          .idea =
              "Sequences are cut where the gates have forgotten, and the segments go side by "
              "side.",
          .target = Target::cuda,
          .scopes = {Scope::core},
          .needs = needs_hopper,
          .accepts = nullptr,
          .instances = {instance<128, 3>(0), instance<128, 3>(2), instance<128, 3>(4),
                        instance<128, 3>(8), instance<128, 3>(16), instance<64, 3>(0),
                        instance<64, 3>(2), instance<64, 3>(4), instance<64, 3>(8),
                        instance<64, 3>(16)}};
}

}  // namespace gdn::gpu
