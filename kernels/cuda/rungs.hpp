// The CUDA rungs of the ladder, one file each.
#pragma once

#include <string>

#include "kernels/variant.hpp"

namespace gdn::gpu {

Variant baseline();
Variant residual();
Variant fused();
Variant wide();
Variant warp_specialized();
Variant split_barrier();
Variant register_state();
Variant segmented();
Variant two_pass();
Variant forward();

// What rungs on mma.sync, ldmatrix and cp.async need.
inline std::string needs_ampere(const Device& device) {
  return device.capability < 80 ? "needs compute capability 8.0 or later" : "";
}

// What rungs on wgmma, setmaxnreg and the copy engine need: code for 9.0a runs nowhere else.
inline std::string needs_hopper(const Device& device) {
  return device.capability != 90 ? "needs compute capability 9.0" : "";
}

}  // namespace gdn::gpu
