#include "kernels/cuda/register_chain.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::gpu {
namespace {

template <int width, int stages>
struct RegisterState : sm90::RegisterChain<width, stages> {
  using Base = sm90::RegisterChain<width, stages>;
  static constexpr const char* name = "register_state";

  static __device__ void run(const typename Base::Arguments& arguments,
                             typename Base::Shared& shared) {
    const auto chain =
        Base::Chain::of_block(arguments.tensors, arguments.query_heads, arguments.value_heads);
    Base::run(arguments, shared, chain,
              {0, 0, (chain.at.length + chunk_tokens - 1) / chunk_tokens});
  }
};

template <int width, int stages>
Instance instance() {
  using Kernel = RegisterState<width, stages>;
  return {.knobs = {{"form", "w"},
                    {"stages", std::to_string(stages)},
                    {"value_width", std::to_string(width)}},
          .stages = {stage_of<Kernel>()},
          .workspace_bytes = nullptr,
          .setup =
              [](const Problem& problem, const Tensors& x, void*) {
                return launcher<Kernel>(
                    std::int64_t{head_dim / width} * problem.sequences() * problem.value_heads,
                    Kernel::arguments(problem, x));
              },
          .obstacle = ""};
}

}  // namespace

Variant register_state() {
  return {
      .name = "register_state",
      .idea = "The state stays in registers, and every product on the chain takes it from there.",
      .target = Target::cuda,
      .scopes = {Scope::core},
      .needs = needs_hopper,
      .accepts = nullptr,
      .instances = {instance<128, 2>(), instance<128, 3>(), instance<64, 2>(), instance<64, 3>()}};
}

}  // namespace gdn::gpu
