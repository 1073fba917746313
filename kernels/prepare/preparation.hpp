// The prefix sum g and the inverse A on the GPU.
#pragma once

#include "kernels/variant.hpp"

namespace gdn {

const Instance& cuda_preparation();

}  // namespace gdn
