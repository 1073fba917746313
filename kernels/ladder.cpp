// The ladder: every variant of this build, in the order in which ideas are added. One line a rung.
#include "kernels/cpu/cpu.hpp"
#include "kernels/cuda/rungs.hpp"
#include "kernels/variant.hpp"

namespace gdn {

std::span<const Variant> ladder() {
  static const std::vector<Variant> rungs = {
      cpu::recurrent(),        cpu::chunked(),       cpu::xform(),
#ifdef GDNBENCH_WITH_CUDA
      gpu::baseline(),         gpu::residual(),      gpu::fused(),          gpu::wide(),
      gpu::warp_specialized(), gpu::split_barrier(), gpu::register_state(), gpu::segmented(),
      gpu::two_pass(),         gpu::forward(),
#endif
  };
  return rungs;
}

}  // namespace gdn
