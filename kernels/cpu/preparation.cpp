// Prefix sum and A, one task a chunk and head:
//   g_i = Σ_{j<=i} max(raw_g_j, -128) within the chunk
//   A   = (I + strictly_lower(B · [exp(g_i - g_j)] ∘ K Kᵀ))⁻¹      by forward substitution
#include <algorithm>

#include "kernels/cpu/chunk.hpp"
#include "kernels/cpu/cpu.hpp"

namespace gdn::cpu {
namespace {

constexpr float lowest_gate = -128.0F;  // exp(-128) is 0 in fp32, and every difference stays finite

void prefix_sum(const ChunkView& view) {
  float sum = 0;
  for (int r = 0; r < view.length(); ++r) {
    const std::int64_t at = view.element(r);
    sum += std::max(view.tensors.raw_g[at], lowest_gate);
    view.tensors.g[at] = sum;
  }
}

void chunk_inverse(const ChunkView& view) {
  const int n = view.length();
  const Rows k = view.k();
  Square lower = k * k.transpose();
  lower = view.beta().asDiagonal() * lower.cwiseProduct(decay_ratios(view.g()));
  Square a = Square::Identity(n, n);
  for (int r = 1; r < n; ++r) a.row(r).head(r) = -lower.row(r).head(r) * a.topLeftCorner(r, r);
  for (int r = 0; r < n; ++r)
    for (int c = 0; c < chunk_tokens; ++c)
      view.tensors.A[view.element(r) * chunk_tokens + c] = to_bfloat16(c < n ? a(r, c) : 0.0F);
}

void prepare(const Problem& problem, const Tensors& tensors) {
  const std::int64_t tasks =
      std::int64_t{tensors.first_chunk[problem.sequences()]} * problem.value_heads;
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t task = 0; task < tasks; ++task) {
    const ChunkView view{problem, tensors, tensors.chunks[task / problem.value_heads],
                         static_cast<int>(task % problem.value_heads)};
    prefix_sum(view);
    chunk_inverse(view);
  }
}

}  // namespace

Instance preparation() {
  return {.knobs = {},
          .stages = {{.name = "preparation"}},
          .workspace_bytes = nullptr,
          .setup = [](const Problem& problem, const Tensors& tensors, void*) -> Launch {
            return [problem, tensors](Stream) { prepare(problem, tensors); };
          }};
}

}  // namespace gdn::cpu
