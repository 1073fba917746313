// Stand-in for CUDA's header of this name.
#pragma once

#include "kernels/bfloat16.hpp"
#include "tests/emulator/cuda_runtime.h"

using __nv_bfloat16 = gdn::BFloat16;
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) {
  return {gdn::to_bfloat16(x), gdn::to_bfloat16(y)};
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return gdn::to_bfloat16(x); }
inline float __bfloat162float(__nv_bfloat16 x) { return gdn::to_float(x); }
