// Kernels that no card has run yet, and which are in no ladder.
#pragma once

#include "kernels/variant.hpp"

namespace gdn::gpu {

Variant forward();
Variant two_pass();

}  // namespace gdn::gpu
