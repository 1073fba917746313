// The definition of the operator in fp64, on the GPU: what every other kernel is checked against.
#pragma once

#include "kernels/variant.hpp"

namespace gdn {

// Enqueues the recurrence over q, k, v, raw_g (as given, exp(−inf) = 0), beta and initial_state.
//   output  [tokens][value_heads][128]
//   state   [sequences][value_heads][dk][dv]
// All of it lies in device memory, offsets too.
void enqueue_oracle(const Problem& problem, const Tensors& tensors, double* output, double* state,
                    Stream stream);

}  // namespace gdn
