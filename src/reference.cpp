#include "src/reference.hpp"

#include <cmath>
#include <cstdint>

namespace gdn {
namespace {

// Columns of S do not see each other, so a task takes 16 of them: 16 KiB that stay in the first
// level cache for the whole sequence.
constexpr int columns = 16;

void run_columns(const Problem& problem, const Tensors& tensors, int sequence, int head, int column,
                 double* output, double* state) {
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  const int query_head = head / problem.heads_per_query();
  const std::int64_t state_at =
      (std::int64_t{sequence} * problem.value_heads + head) * head_dim * head_dim + column;

  double S[head_dim][columns];  // [dk][dv]
  for (int d = 0; d < head_dim; ++d)
    for (int c = 0; c < columns; ++c)
      S[d][c] = tensors.initial_state == nullptr
                    ? 0.0
                    : static_cast<double>(tensors.initial_state[state_at + d * head_dim + c]);

  for (std::int64_t token = problem.offsets[sequence]; token < problem.offsets[sequence + 1];
       ++token) {
    const std::int64_t element = token * problem.value_heads + head;
    const BFloat16* q = tensors.q + (token * problem.query_heads + query_head) * head_dim;
    const BFloat16* k = tensors.k + (token * problem.query_heads + query_head) * head_dim;
    const BFloat16* v = tensors.v + element * head_dim + column;
    const double alpha = std::exp(static_cast<double>(tensors.raw_g[element]));
    const double beta = tensors.beta[element];

    double known[columns] = {};  // k (α S)
    for (int d = 0; d < head_dim; ++d) {
      const double key = static_cast<double>(to_float(k[d])) * alpha;
      for (int c = 0; c < columns; ++c) known[c] += key * S[d][c];
    }
    double write[columns];  // β (v − k S)
    for (int c = 0; c < columns; ++c)
      write[c] = beta * (static_cast<double>(to_float(v[c])) - known[c]);

    double read[columns] = {};  // q S
    for (int d = 0; d < head_dim; ++d) {
      const double key = to_float(k[d]);
      const double query = to_float(q[d]);
      for (int c = 0; c < columns; ++c) {
        S[d][c] = alpha * S[d][c] + key * write[c];
        read[c] += query * S[d][c];
      }
    }
    for (int c = 0; c < columns; ++c) output[element * head_dim + column + c] = scale * read[c];
  }
  for (int d = 0; d < head_dim; ++d)
    for (int c = 0; c < columns; ++c) state[state_at + d * head_dim + c] = S[d][c];
}

}  // namespace

void reference_on_cpu(const Problem& problem, const Tensors& tensors, double* output,
                      double* state) {
  constexpr int blocks = head_dim / columns;
  const int tasks = problem.sequences() * problem.value_heads * blocks;
#pragma omp parallel for schedule(dynamic)
  for (int task = 0; task < tasks; ++task)
    run_columns(problem, tensors, task / blocks / problem.value_heads,
                task / blocks % problem.value_heads, task % blocks * columns, output, state);
}

}  // namespace gdn
