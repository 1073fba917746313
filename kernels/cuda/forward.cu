// Rung 11: the whole forward from log α in one launch (forward_chain.cuh), cut into segments as
// rung 9's core (kernels/cuda/segmented.cu). A CTA walks back by sums of log α, which it makes of
// the 32 chunks before it at once; further back each lane sums a chunk.
//
// Knobs: segments a sequence: 1, exact; auto, as many as make one wave; threshold; value_width.
//
// Bytes a chunk and head, with 128 values: V and O 16 KiB each, Q and K 32 once a query head; rung
// 9's core reads 8 more for A, which the preparation has written before.
// Cycles of a Make group for a chunk: KKᵀ 350, N 250, D 350, nine block products of three mma.sync
// and what splits them ~900 on the busiest warp, Q Kᵀ and P' 600, barriers 100: some 2,500, and
// what its products wait for those of State, which a prototype saw cost 1,100.
//   64 values: two groups have 2 · 1.33 µs = 4,650 cycles for a chunk. Hidden: as long as rung 9,
//   and 1.5 µs for the first A.
//   128 values: one group has the 3,500 cycles that two chains take. Hidden, if what it waits for
//   is less than 1,000; the tensor cores have 2,304 + 256 + 430 of the 3,500.
// Predicted from rung 9's core as it was then, in µs: short 15, chain and parallel 22.5 to 24.5,
// long and batch 81 to 88, wide 152 to 165, deep 158 to 170.
// Measured (H200, graph timing): short 23, chain and parallel_equal 33, parallel_gva 45, long and
// batch 115 to 123, wide and deep 206 to 222; rung 9 behind the preparation takes 18, 28, 27, 98
// and 178. So it loses everywhere. ncu, wide_gva_state: a Make group of 128 values takes 5,300
// cycles for a chunk, twice what was predicted, and State waits for it a quarter of its time:
//   N, and D by substitution 2,100 (442 instructions, of which each waits for the one before), for
//   the slowest warp's D 330; the row of A 640, for the slowest row 510; the products for the next
//   chunk 730 until they are issued, among those of State; P' 770
// and the late State takes 4,100, as R's start and O stand alone in it, beside no product.
// What would close it: D of two chunks at once, each warp a chunk and not a row of blocks, as the
// preparation does (kernels/prepare/chunk_inverse.cuh: 1,800 instructions of a warp for all of A),
// which asks for registers that State has; and a State of 176 registers that starts R beside S'.
#include "kernels/cuda/forward_chain.cuh"
#include "kernels/cuda/processors.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::gpu {
namespace {

template <int width>
struct Forward : sm90::ForwardChain<width> {
  static constexpr const char* name = "forward";
};

// `segments` a sequence; 0: as many as make one wave; 1: none is cut, and nothing is dropped.
template <int width>
Instance instance(int segments) {
  using Kernel = Forward<width>;
  constexpr int threshold = -12;
  const auto pieces_of = [segments](const Problem& problem) {
    if (segments > 0) return cut(problem, segments);
    return cut_for(problem, processors(), problem.value_heads * Kernel::Chain::slices);
  };
  return {.knobs = {{"segments", segments > 0 ? std::to_string(segments) : "auto"},
                    {"threshold", std::to_string(threshold)},
                    {"value_width", std::to_string(width)}},
          .stages = {stage_of<Kernel>()},
          .workspace_bytes =
              [=](const Problem& problem) { return pieces_of(problem).size() * sizeof(Piece); },
          .setup =
              [=](const Problem& problem, const Tensors& x, void* workspace) {
                const std::vector<Piece> pieces = pieces_of(problem);
                throw_on_error(cudaMemcpy(workspace, pieces.data(), pieces.size() * sizeof(Piece),
                                          cudaMemcpyHostToDevice),
                               Kernel::name);
                throw_on_error(cudaDeviceSynchronize(), Kernel::name);  // it may still be copying
                const std::int64_t ctas = std::int64_t{problem.value_heads} * Kernel::Chain::slices;
                return launcher<Kernel>(
                    static_cast<std::int64_t>(pieces.size()) * ctas,
                    Kernel::arguments(problem, x, static_cast<const Piece*>(workspace), threshold));
              },
          .obstacle = "",
          .bound = segments == 1 ? ""
                                 : "drops at most e^" + std::to_string(threshold) +
                                       " of the state before a segment's warm-up"};
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
