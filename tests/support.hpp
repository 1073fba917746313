// What several tests need: a case laid out in host memory, and an independent truth.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

#include "kernels/prepare/generate.hpp"
#include "kernels/variant.hpp"
#include "src/check.hpp"
#include "src/reference.hpp"

namespace gdn::test {

inline Problem problem_of(std::initializer_list<int> lengths, int query_heads, int value_heads,
                          bool initial_state) {
  Problem problem;
  for (const int length : lengths) problem.offsets.push_back(problem.offsets.back() + length);
  problem.query_heads = query_heads;
  problem.value_heads = value_heads;
  problem.initial_state = initial_state;
  return problem;
}

// All tensors of a problem in host memory, inputs generated, results NaN. `padding` extra elements
// of NaN follow every tensor: what a kernel reads past an end.
struct HostCase {
  static constexpr std::size_t padding = 128 * 128;

  Problem problem;
  std::vector<BFloat16> q, k, v, A, output;
  std::vector<float> raw_g, beta, initial_state, g, final_state;
  std::vector<Chunk> chunks;
  std::vector<std::int32_t> first_chunk;

  HostCase(Problem p, const Recipe& recipe) : problem(std::move(p)) {
    const auto tokens = static_cast<std::size_t>(problem.tokens());
    const std::size_t query_rows = tokens * problem.query_heads;
    const std::size_t value_rows = tokens * problem.value_heads;
    const std::size_t states =
        std::size_t{1} * problem.sequences() * problem.value_heads * head_dim * head_dim;
    const BFloat16 nan16 = {0xFFFF};
    const float nan32 = std::numeric_limits<float>::quiet_NaN();
    q.assign(query_rows * head_dim + padding, nan16);
    k.assign(query_rows * head_dim + padding, nan16);
    v.assign(value_rows * head_dim + padding, nan16);
    A.assign(value_rows * chunk_tokens + padding, nan16);
    output.assign(value_rows * head_dim + padding, nan16);
    raw_g.assign(value_rows + padding, nan32);
    beta.assign(value_rows + padding, nan32);
    g.assign(value_rows + padding, nan32);
    final_state.assign(states + padding, nan32);
    if (problem.initial_state) initial_state.assign(states + padding, nan32);
    chunks = problem.chunks();
    first_chunk.assign(problem.sequences() + 1, 0);
    for (const Chunk& chunk : chunks) ++first_chunk[chunk.sequence + 1];
    for (int s = 0; s < problem.sequences(); ++s) first_chunk[s + 1] += first_chunk[s];
    generate_on_cpu(problem, recipe,
                    {.q = q.data(),
                     .k = k.data(),
                     .v = v.data(),
                     .raw_g = raw_g.data(),
                     .beta = beta.data(),
                     .initial_state = problem.initial_state ? initial_state.data() : nullptr});
  }

  Tensors tensors() {
    return {.q = q.data(),
            .k = k.data(),
            .v = v.data(),
            .raw_g = raw_g.data(),
            .beta = beta.data(),
            .initial_state = problem.initial_state ? initial_state.data() : nullptr,
            .offsets = problem.offsets.data(),
            .chunks = chunks.data(),
            .first_chunk = first_chunk.data(),
            .g = g.data(),
            .A = A.data(),
            .output = output.data(),
            .final_state = final_state.data()};
  }

  void run(const Instance& instance) { instance.setup(problem, tensors(), nullptr)(nullptr); }

  // Preparation, then the variant's first instance.
  void run_forward(const Variant& variant) {
    run(preparation(Target::cpu));
    run(variant.instances.front());
  }

  Finding finding(std::optional<Gates> gates = std::nullopt) {
    std::vector<double> output_truth(output.size());
    std::vector<double> state_truth(final_state.size());
    reference_on_cpu(problem, tensors(), output_truth.data(), state_truth.data());
    return check(problem, gates, {output.data(), final_state.data()},
                 {output_truth.data(), state_truth.data()});
  }
};

}  // namespace gdn::test
