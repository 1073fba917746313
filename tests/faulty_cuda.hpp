// GPU variants that fail in one way each; for gdnbench_faulty.
#pragma once

#include <vector>

#include "kernels/variant.hpp"

namespace gdn::test {

std::vector<Variant> faulty_cuda();

}  // namespace gdn::test
