#include "kernels/prepare/generate.hpp"

#include <cmath>
#include <cstring>

#include "kernels/prepare/hash.hpp"
#include "kernels/prepare/random.hpp"

namespace gdn {
namespace {

constexpr int row_blocks = head_dim / 4;  // Philox blocks of a row: one a lane of a warp

// Rows of unit length. The squares are summed as a warp's butterfly sums them.
void unit_rows(std::uint64_t seed, Draw stream, std::int64_t rows, BFloat16* to) {
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < rows; ++row) {
    Normals lane[row_blocks];
    double sum[row_blocks];
    for (int l = 0; l < row_blocks; ++l) {
      lane[l] = normals(seed, stream, static_cast<std::uint64_t>(row) * row_blocks + l);
      const double* x = lane[l].value;
      sum[l] = (x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3]);
    }
    for (int step = row_blocks / 2; step > 0; step /= 2)
      for (int l = 0; l < step; ++l) sum[l] += sum[l + step];
    const double length = std::sqrt(sum[0]);
    for (int l = 0; l < row_blocks; ++l)
      for (int i = 0; i < 4; ++i)
        to[row * head_dim + 4 * l + i] = to_bfloat16(static_cast<float>(lane[l].value[i] / length));
  }
}

template <class Store>
void plain_normals(std::uint64_t seed, Draw stream, std::int64_t blocks, Store store) {
#pragma omp parallel for schedule(static)
  for (std::int64_t block = 0; block < blocks; ++block) {
    const Normals drawn = normals(seed, stream, block);
    for (int i = 0; i < 4; ++i) store(4 * block + i, static_cast<float>(drawn.value[i]));
  }
}

}  // namespace

void generate_on_cpu(const Problem& problem, const Recipe& recipe, const InputTensors& inputs) {
  const std::int64_t tokens = problem.tokens();
  const int heads = problem.value_heads;
  unit_rows(recipe.seed, Draw::q, tokens * problem.query_heads, inputs.q);
  unit_rows(recipe.seed, Draw::k, tokens * problem.query_heads, inputs.k);
  plain_normals(recipe.seed, Draw::v, tokens * heads * row_blocks,
                [&](std::int64_t i, float x) { inputs.v[i] = to_bfloat16(x); });
  for (int sequence = 0; sequence < problem.sequences(); ++sequence) {
    const std::int64_t first = problem.offsets[sequence];
#pragma omp parallel for schedule(static)
    for (std::int64_t token = first; token < problem.offsets[sequence + 1]; ++token)
      for (int head = 0; head < heads; ++head) {
        inputs.raw_g[token * heads + head] = raw_gate(recipe, token, token - first, head, heads);
        inputs.beta[token * heads + head] = write_strength(recipe, token * heads + head);
      }
  }
  if (problem.initial_state)
    plain_normals(recipe.seed, Draw::initial_state,
                  std::int64_t{problem.sequences()} * heads * head_dim * row_blocks,
                  [&](std::int64_t i, float x) { inputs.initial_state[i] = x; });
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  const auto words = static_cast<std::int64_t>(bytes / 4);
  std::uint64_t sum = 0;
#pragma omp parallel for schedule(static) reduction(+ : sum)
  for (std::int64_t i = 0; i < words; ++i) {
    std::uint32_t word;
    std::memcpy(&word, from + 4 * i, 4);
    sum += hash_share(i, word);
  }
  if (bytes % 4 != 0) {
    std::uint32_t word = 0;
    std::memcpy(&word, from + 4 * words, bytes % 4);
    sum += hash_share(words, word);
  }
  return sum;
}

}  // namespace gdn
