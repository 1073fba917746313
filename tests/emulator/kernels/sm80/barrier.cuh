// As the original says.
#pragma once

#include <cuda_runtime.h>

namespace gdn::sm80 {

template <int threads>
void barrier(int id) {
  emulator::wait_at(id, threads);
}

}  // namespace gdn::sm80
