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

// What rounding took from A, or that it is not wanted.
void put_low_half(const ChunkView& view, const Square& a) {
  const int n = view.length();
  constexpr int block = 16;
  float squares = static_cast<float>(-n);
  for (int first = 0; first < n; first += block) {
    const int own = std::min(block, n - first), below = std::min(block, n - first - own);
    squares += a.block(first, first, own, own).squaredNorm();
    if (first % (2 * block) == 0)
      squares -= a.block(first + own, first, below, own).squaredNorm() / 2;
  }
  BFloat16* const to = view.tensors.A_low;
  if (!(squares > most_squares)) {
    to[view.element(0) * chunk_tokens + 1] = to_bfloat16(1);
    return;
  }
  for (int r = 0; r < n; ++r)
    for (int c = 0; c < chunk_tokens; ++c) {
      const float x = c < n ? a(r, c) : 0;
      to[view.element(r) * chunk_tokens + c] = to_bfloat16(x - to_float(to_bfloat16(x)));
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
  if (view.tensors.A_low != nullptr) put_low_half(view, a);
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
