// As the original says.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <limits>

namespace gdn::sm80 {

inline constexpr float log2_e = 1.4426950408889634F;

inline float power_of_2(float x) {
  const float y = std::exp2(x);
  return y < std::numeric_limits<float>::min() ? 0 : y;
}
inline float exponential(float x) { return power_of_2(x * log2_e); }

}  // namespace gdn::sm80
