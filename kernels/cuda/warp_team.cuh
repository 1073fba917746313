// A warp that looks for where a segment begins (kernels/cuda/segments.hpp), 32 chunks at once.
#pragma once

#include "kernels/cuda/roles.cuh"

namespace gdn::sm90 {

// The team of warm_up_start.
struct WarpTeam {
  static constexpr int size = 32;

  __device__ int rank() const { return lane(); }
  __device__ float scan(float x) const {
#pragma unroll
    for (int distance = 1; distance < size; distance *= 2) {
      const float before = __shfl_up_sync(~0U, x, distance);
      if (rank() >= distance) x += before;
    }
    return x;
  }
  __device__ int first_of(bool x) const {
    const unsigned members = __ballot_sync(~0U, x);
    return members == 0 ? size : __ffs(static_cast<int>(members)) - 1;
  }
  __device__ float last_of(float x) const { return __shfl_sync(~0U, x, size - 1); }
};

}  // namespace gdn::sm90
