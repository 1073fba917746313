// The oracle: the operator's definition in fp64, token by token (form 1 of kernels/README.md, arXiv
// 2412.06464).
#pragma once

#include "kernels/variant.hpp"

namespace gdn {

//   S ← α S;  S ← S + β kᵀ (v − k S);  o = scale · q S        with α = exp(raw_g), exp(−inf) = 0
// on the bf16 and fp32 inputs as given. Reads q, k, v, raw_g, beta and initial_state of host
// tensors; writes
//   output [tokens][value_heads][128]      state [sequences][value_heads][dk][dv]
// The same bits at any thread count.
void reference_on_cpu(const Problem& problem, const Tensors& tensors, double* output,
                      double* state);

}  // namespace gdn
