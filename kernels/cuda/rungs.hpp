// The CUDA rungs of the ladder, one file each.
#pragma once

#include "kernels/variant.hpp"

namespace gdn::gpu {

Variant baseline();

}  // namespace gdn::gpu
