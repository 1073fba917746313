// Rung 7: rung 6 (specialized_chain.cuh) with a partial order: State waits for the faded V̂ and for
// nothing else, so that P V̂ and the store of O are beside the next chunk's products.
//
// With the joint barrier gone three things matter that it implied before: Output must say when it
// has read S; its release of the inputs counts; and Value may be a chunk ahead of Output, so that
// "V̂ is there" needs a barrier for even and one for odd chunks. tests/protocol_test.cpp takes each
// away and finds the fault.
//
// Measured on an H200 (reports/h200/ladder.json, knobs.md): 2.8 to 3.2 µs a chunk with 128 values,
// 1.8 to 2.2 with 64, 1.4 to 1.8 with 32 where all CTAs fit the device at once (4 · sequences ·
// value heads ≤ 132), 2.9 to 3.0 where they do not (wide_gva_state): there 64 values are best. 5 %
// less than with the joint barrier with 128 and 64 values, from 1 % more to 3 % less with 32.
#include "kernels/cuda/rungs.hpp"
#include "kernels/cuda/specialized_chain.cuh"

namespace gdn::gpu {
namespace {

template <int width, int stages>
Instance instance() {
  return sm90::specialized_instance<sm90::Order::split, width, stages, false>(
      {{"stages", std::to_string(stages)}, {"value_width", std::to_string(width)}});
}

}  // namespace

Variant split_barrier() {
  return {.name = "split_barrier",
          .idea = "The state waits for the new values alone, not for the output.",
          .target = Target::cuda,
          .scopes = {Scope::core},
          .needs = needs_hopper,
          .accepts = nullptr,
          .instances = {instance<128, 2>(), instance<64, 2>(), instance<64, 3>(), instance<32, 2>(),
                        instance<32, 3>()}};
}

}  // namespace gdn::gpu
