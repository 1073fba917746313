// The whole forward from log α in one launch (forward_chain.cuh).
#include <cuda_runtime.h>

#include "drafts/drafts.hpp"
#include "drafts/forward_chain.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::gpu {
namespace {

template <int width>
struct Forward : sm90::ForwardChain<width> {
  static constexpr const char* name = "forward";
};

int processors() {
  int device = 0, count = 0;
  throw_on_error(cudaGetDevice(&device), "cudaGetDevice");
  throw_on_error(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                 "cudaDeviceGetAttribute");
  return count;
}

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
