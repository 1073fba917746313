#include "kernels/prepare/preparation.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/variant.hpp"

namespace gdn {

const Instance& preparation(Target target, const Problem& problem) {
  static const Instance on_cpu = cpu::preparation();
#ifdef GDNBENCH_WITH_CUDA
  if (target == Target::cuda) return cuda_preparation(problem);
#else
  (void)target, (void)problem;
#endif
  return on_cpu;
}

}  // namespace gdn
