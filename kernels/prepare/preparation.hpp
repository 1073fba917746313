// The prefix sum g and the inverse A on the GPU.
#pragma once

#include "kernels/variant.hpp"

namespace gdn {

// Of the current device.
const Instance& cuda_preparation();

const Instance& portable_preparation();  // from compute capability 8.0 on
const Instance& hopper_preparation();    // of 9.0

}  // namespace gdn
