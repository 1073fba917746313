#include "kernels/cpu/cpu.hpp"
#include "kernels/variant.hpp"

namespace gdn {

const Instance& preparation(Target target) {
  static const Instance on_cpu = cpu::preparation();
  (void)target;
  return on_cpu;
}

}  // namespace gdn
