// Rung 11: the whole forward from log α in one launch (forward_chain.cuh), cut into segments as
// rung 9's core (kernels/cuda/segmented.cu). A CTA walks back by sums of log α, which it makes of
// the 32 chunks before it at once; further back each lane sums a chunk.
//
// Knobs: segments a sequence: 1, exact; auto, as many as make one wave; threshold; value_width.
//
// Bytes a chunk and head, with 128 values: V and O 16 KiB each, Q and K 32 once a query head; rung
// 9's core reads 6 more for A, which the preparation has written before.
// Cycles of a Make group for a chunk: KKᵀ 350, N 250, D 350, nine block products of three mma.sync
// and what splits them ~900 on the busiest warp, Q Kᵀ and P' 600, barriers 100: some 2,500, and
// what its products wait for those of State, which a prototype saw cost 1,100.
//   64 values: two groups have 2 · 1.33 µs = 4,650 cycles for a chunk. Hidden: as long as rung 9,
//   and 1.5 µs for the first A.
//   128 values: one group has the 3,500 cycles that two chains take. Hidden, if what it waits for
//   is less than 1,000; the tensor cores have 2,304 + 256 + 430 of the 3,500.
// Predicted from rung 9's core as it was then, in µs: short 15, chain and parallel 22.5 to 24.5,
// long and batch 81 to 88, wide 152 to 165, deep 158 to 170.
// Measured (H200, graph timing): short 26, chain and parallel_equal 37 and 39, parallel_gva 50,
// long and batch 132, wide and deep 244, 6 to 9 % of it to find ill-conditioned chunks; rung 9
// behind the preparation 18, 26, 27, 88 and 166. ncu, wide_gva_state: a Make group of 128 takes
// 5,300 cycles for a chunk, twice what was predicted, and State waits for it a quarter of its time:
//   N, and D by substitution 2,100 (442 instructions, of which each waits for the one before), for
//   the slowest warp's D 330; the row of A 640, for the slowest row 510; the products for the next
//   chunk 730 until they are issued, among those of State; P' 770
// and the late State takes 4,100, as R's start and O stand alone in it, beside no product.
// What was tried: A without gates where γ can be divided by. N with gates is Γ (B KKᵀ) Γ⁻¹ below
// the diagonal, so A is Γ T Γ⁻¹ with T = (I + strictly_lower(B KKᵀ))⁻¹; then R gets −β γ_C, W faded
// is R Tᵀ, and P' and State's one operand for S' and O are as now. State had 192 registers
// and its usual order, Make 88, N a tile of its own in turns, P' beside D. Right, and no faster
// than what stood here then: short 24, 23, chain 36, 35, long 126, 126, wide 231, 229. By ncu Make
// still takes 6,200 cycles: products of K wait 900 for the slowest row of A and 530 to be done, N
// takes 1,060, D 770, P' 230, A 650 and its barriers 400. What would close it: a second Make group,
// for which there are no registers; or D of two chunks at once, each warp a chunk and not a row of
// blocks, as the preparation does (kernels/prepare/chunk_inverse.cuh).
#include "kernels/cuda/forward_chain.cuh"
#include "kernels/cuda/pieces.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::gpu {
namespace {

template <int width>
struct Forward : sm90::ForwardChain<width> {
  static constexpr const char* name = "forward";
};

template <int width>
Instance instance(int segments) {
  return instance_of_pieces<Forward<width>>(segments, -12,
                                            {{"value_width", std::to_string(width)}});
}

}  // namespace

Variant forward() {
  return {
      .name = "forward",
      .idea =
          "The whole forward in one launch: A is made beside the chain, and is never in memory.",
      .target = Target::cuda,
      .scopes = {Scope::forward},
      .needs = needs_hopper,
      .accepts = nullptr,
      .instances = {instance<128>(0), instance<128>(1), instance<64>(0), instance<64>(1)}};
}

}  // namespace gdn::gpu
