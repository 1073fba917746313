// The embedded CPU backend: the operator in three forms, fp32 arithmetic on bf16 inputs, threads by
// OpenMP and products by Eigen. It shows what the forms are, and lets everything around the kernels
// be used and tested where there is no GPU.
#pragma once

#include "kernels/variant.hpp"

namespace gdn::cpu {

Instance preparation();  // g and A

Variant recurrent();
Variant chunked();
Variant xform();

}  // namespace gdn::cpu
