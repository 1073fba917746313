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
// graph timing with some 5 µs of an event inside, reports/h200/ladder-two-gpus.json.gz), best of
// segments=auto: 137, 138, 74 and 21; short_tail_state 15. A chunk of 128 values takes 1.75 µs
// where half of the device is busy (rung 8) and 2.0 where all of it is: L2 gives 4.8 TB/s then (73
// % of its most, by ncu), DRAM 2.8 (57 %), shared memory is busy for 73 % of the time, and the
// clock falls from 1.8 to 1.6 GHz. Nothing of it is at its limit, but inputs come just in time:
// what counts is how soon the place of a chunk that is done is filled again, and how soon P' is
// made of what came. With no wait for the preparation at all, which it then works beside, the
// forward of wide_gva_state and deep_gva_state takes 3 to 4 less, of chain_equal 0.6; one way to
// that is among what is lost below. 64 values win where CTAs are few. On one card each, µs by the
// graph, before and after:
//   what the copy engine is told from one elected thread of a warp that does nothing else, and not
//   in a loop over lanes for each box (some 500 cycles a chunk, by the SASS) by a warp that brings
//   gates as well: deep 140.6, 138.3, batch 76.3, 75.0; 16 heads of models, 64 values, 129.8, 125.0
//   S/u for S and one operand for S' and O (register_chain.cuh): batch 75.0, 74.1; with 64 values
//   deep 170.7, 167.1, batch 89.2, 88.7; with the next, 64 heads of models 208.8, 193.2
//   the stage of Scores in a register of the warp: batch 74.1, 73.6, 64 values 88.7, 87.5
//   the next V to L2, whose place waits for Store: wide 134.9, 134.3, 64 values 165.7, 162.9
//   A without the quadrant above its diagonal: short 17.3, 17.1; chain 20.4, 20.0; wide 140, 141
//   no loops for ill-conditioned chunks: wide 136.3, 135.7; O not stored: 136.2, 128.7
// and tried and lost:
//   S/u with factors of P' that are read again for each block: wide 142.3, 139.8 but with 64 values
//   171.4, 178.5, as State waits for Scores. And with steep chunks in halves, for want of P' that
//   takes W faded: heads of models, whose chunks often are, 1.9 times as long
//   K, A and Q to L2 early as well: wide 134.3, 138.2, 64 values 162.9, 186.9. The first K and V
//   before the launch ahead has ended: forward of batch 89.2, 90.7, of deep 168.0, 168.8
//   a preparation that lets this begin with its last round, and the first CTAs not waiting: forward
//   of wide 168.9, 180.5, of long 90.2, 89.7; core of parallel_gva 24.2, 24.9
//   K and Q half by each of a cluster of two for both: wide 141, 195; batch_split_gva 76, 103
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

template <int width, int stages>
struct Segmented : sm90::RegisterChain<width, stages> {
  using Base = sm90::RegisterChain<width, stages>;
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
  return instance_of_pieces<Segmented<width, stages>>(
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
