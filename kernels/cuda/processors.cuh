// How many CTAs a wave has that leave no room for another on their multiprocessor.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace gdn {

// Multiprocessors of the current device.
inline int processors() {
  int device = 0, count = 0;
  throw_on_error(cudaGetDevice(&device), "cudaGetDevice");
  throw_on_error(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                 "cudaDeviceGetAttribute");
  return count;
}

}  // namespace gdn
