// Rung 6: roles (specialized_chain.cuh) instead of warps that all do the same; wgmma, whose
// operands come straight from shared memory; and the copy engine, which needs one thread.
//
// What orders a chunk is what stands there, but that State waits at FadedReady for Output as well,
// until the chunk's output is stored ("joint"). Rung 7 takes that away.
//
// Knobs: value_width, the values of a CTA: 4, 2 or 1 CTAs a head; stages of the ring of inputs;
// beta_in_a, whether Value multiplies A by β before it needs it, which is 64 × 64 more elements in
// and out of shared memory and one rounding more, or R, which it has in registers.
//
// Predicted for 128 values: products of the chain K S, A R and Kᵀ V̂, 20 of 64 × 128 × 16 at 68
// cycles, 1360 cycles, and between them R, V̂ and S to shared memory, ~300 each with the fence and
// the barrier: 1.2 µs.
//
// Measured on an H200 (reports/h200/ladder.json, knobs.md), β on R: 2.9 to 3.3 µs a chunk with 128
// values, 1.8 to 2.3 with 64, 1.4 to 1.9 with 32, and 3.0 to 3.1 where 32 values take two waves of
// CTAs (wide_gva_state). More than twice the prediction: presumably because nothing of the chain
// overlaps, and each step waits for the one before, for its products' latency, for a fence and for
// a barrier. β in A costs 2 to 4 %, over all widths.
#include "kernels/cuda/rungs.hpp"
#include "kernels/cuda/specialized_chain.cuh"

namespace gdn::gpu {
namespace {

template <int width, int stages, bool beta_in_a>
Instance instance() {
  return sm90::specialized_instance<sm90::Order::joint, width, stages, beta_in_a>(
      {{"beta_in_a", beta_in_a ? "true" : "false"},
       {"stages", std::to_string(stages)},
       {"value_width", std::to_string(width)}});
}

}  // namespace

Variant warp_specialized() {
  return {
      .name = "warp_specialized",
      .idea = "A warpgroup for each of loads, state, values and output, on wgmma and TMA.",
      .target = Target::cuda,
      .scopes = {Scope::core},
      .needs = needs_hopper,
      .accepts = nullptr,
      .instances = {instance<128, 2, true>(), instance<128, 2, false>(), instance<64, 2, true>(),
                    instance<64, 2, false>(), instance<64, 3, false>(), instance<32, 2, true>(),
                    instance<32, 2, false>(), instance<32, 3, false>()}};
}

}  // namespace gdn::gpu
