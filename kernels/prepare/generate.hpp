// Fills the input tensors of a case. Both backends make the same bits.
#pragma once

#include "kernels/prepare/recipe.hpp"
#include "kernels/variant.hpp"

namespace gdn {

// The tensors of Tensors that an input generator (or a file) fills; same shapes and order.
struct InputTensors {
  BFloat16* q = nullptr;
  BFloat16* k = nullptr;
  BFloat16* v = nullptr;
  float* raw_g = nullptr;
  float* beta = nullptr;
  float* initial_state = nullptr;  // null when the problem has none
};

// q and k: L2-normalised normal draws; v and initial_state: normal; drawn in fp64, rounded to fp32,
// then to bf16 where the tensor is bf16.
void generate_on_cpu(const Problem& problem, const Recipe& recipe, const InputTensors& inputs);

// The same bits on the device; `offsets` [sequences + 1] and all tensors in its memory.
void enqueue_generation(const Problem& problem, const Recipe& recipe, const InputTensors& inputs,
                        const std::int32_t* offsets, Stream stream);

}  // namespace gdn
