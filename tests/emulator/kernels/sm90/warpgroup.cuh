// As the original says. Registers are not counted.
#pragma once

#include <cuda_runtime.h>

namespace gdn::sm90 {

template <int registers>
void take_registers() {
  static_assert(registers % 8 == 0);
}
template <int registers>
void give_registers() {
  static_assert(registers % 8 == 0);
}

inline bool elected() {
  emulator::meet("elected", ~0U, nullptr, nullptr);
  return threadIdx.x % 32 == 0;
}

}  // namespace gdn::sm90
