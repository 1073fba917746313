// As the original says.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <limits>

namespace gdn::sm80 {

inline float exponential(float x) {
  const float y = std::exp2(x * 1.4426950408889634F);
  return y < std::numeric_limits<float>::min() ? 0 : y;
}

}  // namespace gdn::sm80
