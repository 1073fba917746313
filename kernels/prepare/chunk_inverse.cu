// The preparation on any device from Ampere on, and which one a device gets.
#include "kernels/prepare/chunk_inverse.cuh"
#include "kernels/prepare/preparation.hpp"

namespace gdn {
namespace {

using sm80::Preparation, sm80::PortablePreparation;

Launch set_up(const Problem& problem, const Tensors& tensors, void*) {
  const Preparation::Arguments arguments =
      Preparation::arguments(problem, tensors, Preparation::teams_of(problem));
  const auto launch_of =
      tensors.folded ? launcher<PortablePreparation<true>> : launcher<PortablePreparation<false>>;
  return launch_of(Preparation::blocks_of(arguments), arguments, Preparation::shared_of(arguments));
}

}  // namespace

const Instance& portable_preparation() {
  static const Instance instance = {.knobs = {},
                                    .stages = {stage_of<PortablePreparation<false>>()},
                                    .folded_stages = {stage_of<PortablePreparation<true>>()},
                                    .workspace_bytes = nullptr,
                                    .setup = set_up};
  return instance;
}

const Instance& cuda_preparation(const Problem& problem) {
  int device = 0, major = 0, minor = 0;
  throw_on_error(cudaGetDevice(&device), Preparation::name);
  throw_on_error(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device),
                 Preparation::name);
  throw_on_error(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device),
                 Preparation::name);
  const bool worth_it = Preparation::fills_device(problem) && Preparation::teams_of(problem) == 1;
  return major == 9 && minor == 0 && worth_it ? hopper_preparation() : portable_preparation();
}

}  // namespace gdn
