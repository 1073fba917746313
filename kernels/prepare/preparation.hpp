// The prefix sum g and the inverse A on the GPU.
#pragma once

#include "kernels/variant.hpp"

namespace gdn {

// That for the current device and a problem.
const Instance& cuda_preparation(const Problem& problem);

const Instance& portable_preparation();  // from compute capability 8.0 on
const Instance& hopper_preparation();    // of 9.0; fastest where a CTA is one team

}  // namespace gdn
