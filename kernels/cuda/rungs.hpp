// The CUDA rungs of the ladder, one file each.
#pragma once

#include <string>

#include "kernels/variant.hpp"

namespace gdn::gpu {

Variant baseline();
Variant residual();
Variant fused();
Variant wide();

// What rungs on mma.sync, ldmatrix and cp.async need.
inline std::string needs_ampere(const Device& device) {
  return device.capability < 80 ? "needs compute capability 8.0 or later" : "";
}

}  // namespace gdn::gpu
