// What several tests need: a case laid out in host memory, and an independent truth.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/prepare/generate.hpp"
#include "kernels/variant.hpp"
#include "src/backend.hpp"
#include "src/check.hpp"
#include "src/reference.hpp"

namespace gdn::test {

inline bool has_gpu() { return make_backend({})->device().target == Target::cuda; }

// The GPU's backend; only where has_gpu().
inline Backend& gpu() {
  static const std::unique_ptr<Backend> backend = make_backend({.name = "cuda"});
  return *backend;
}

inline Problem problem_of(const std::vector<int>& lengths, int query_heads, int value_heads,
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
  bool folded = false;  // whether A is made, and taken, so
  std::vector<BFloat16> q, k, v, A, A_low, output;
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
    A.resize(value_rows * chunk_tokens + padding);
    A_low.resize(A.size());
    output.assign(value_rows * head_dim + padding, nan16);
    raw_g.assign(value_rows + padding, nan32);
    beta.assign(value_rows + padding, nan32);
    g.resize(value_rows + padding);
    final_state.assign(states + padding, nan32);
    if (problem.initial_state) initial_state.assign(states + padding, nan32);
    chunks = problem.chunks();
    forget_preparation();
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

  // All that a preparation makes, but for what of A is 0 beforehand.
  void forget_preparation() {
    g.assign(g.size(), std::numeric_limits<float>::quiet_NaN());
    A.assign(A.size(), {0xFFFF});
    A_low.assign(A_low.size(), {0xFFFF});
    for (const Chunk& chunk : chunks)
      for (int row = 0; row < std::min(chunk.length, 32); ++row)
        for (int head = 0; head < problem.value_heads; ++head) {
          const auto of_row = std::int64_t{chunk.token + row} * problem.value_heads + head;
          std::fill_n(A.begin() + of_row * chunk_tokens + 32, 32, BFloat16{0});
        }
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
            .A_low = A_low.empty() ? nullptr : A_low.data(),
            .folded = folded,
            .output = output.data(),
            .final_state = final_state.data()};
  }

  void run_on_cpu(const Instance& instance) {
    const std::size_t bytes = instance.workspace_bytes ? instance.workspace_bytes(problem) : 0;
    std::vector<std::byte> workspace(bytes, std::byte{0xFF});  // NaN, where nobody has written
    instance.setup(problem, tensors(), workspace.data())(nullptr);
  }

  // Preparation, then the instance, both where `target` says.
  void run_forward(const Instance& instance, Target target) {
    if (target == Target::cuda) return run_on_device(instance);
    run_on_cpu(preparation(Target::cpu, problem));
    run_on_cpu(instance);
  }

  // The same on the GPU: everything, padding included, there and back.
  void run_on_device(const Instance& instance) {
    Backend& backend = gpu();
    std::vector<Memory> kept;
    const auto upload = [&](auto& host) {
      using Element = typename std::remove_reference_t<decltype(host)>::value_type;
      if (host.empty()) return static_cast<Element*>(nullptr);
      const std::size_t bytes = host.size() * sizeof(Element);
      kept.push_back(backend.allocate(bytes));
      backend.copy_in(kept.back().get(), host.data(), bytes);
      return static_cast<Element*>(kept.back().get());
    };
    const auto room = [&](const Instance& i) {
      const std::size_t bytes = i.workspace_bytes ? i.workspace_bytes(problem) : 0;
      kept.push_back(backend.allocate(bytes));
      backend.fill_nan(kept.back().get(), bytes);
      return kept.back().get();
    };
    const Tensors t = {.q = upload(q),
                       .k = upload(k),
                       .v = upload(v),
                       .raw_g = upload(raw_g),
                       .beta = upload(beta),
                       .initial_state = upload(initial_state),
                       .offsets = upload(problem.offsets),
                       .chunks = upload(chunks),
                       .first_chunk = upload(first_chunk),
                       .g = upload(g),
                       .A = upload(A),
                       .A_low = upload(A_low),
                       .folded = folded,
                       .output = upload(output),
                       .final_state = upload(final_state)};
    const Instance& preparing = preparation(Target::cuda, problem);
    backend.run(preparing.setup(problem, t, room(preparing)));
    backend.run(instance.setup(problem, t, room(instance)));
    const auto download = [&](auto& host, const auto* device) {
      backend.copy_out(host.data(), device, host.size() * sizeof(host[0]));
    };
    download(g, t.g);
    download(A, t.A);
    download(A_low, t.A_low);
    download(output, t.output);
    download(final_state, t.final_state);
  }

  Finding finding(const std::optional<Recipe>& recipe = std::nullopt) {
    std::vector<double> output_truth(output.size());
    std::vector<double> state_truth(final_state.size());
    reference_on_cpu(problem, tensors(), output_truth.data(), state_truth.data());
    return check(problem, recipe, {output.data(), final_state.data()},
                 {output_truth.data(), state_truth.data()});
  }
};

// Short chunks, at whose ends gates come to either of two powers of 2, by how they were added up:
// who folds A and who takes it so have to agree which.
inline HostCase gates_near_a_power_of_2() {
  constexpr int heads = 16;
  std::vector<int> lengths(31);
  std::iota(lengths.begin(), lengths.end(), 33);
  HostCase c(problem_of(lengths, 1, heads, false), {.seed = 8});
  for (const Chunk& chunk : c.chunks)
    for (int i = 0; i < chunk.length * heads; ++i) {
      const double off = (i % heads - heads / 2) * 0x1p-18;
      c.raw_g[chunk.token * heads + i] =
          static_cast<float>((off - 100 * std::log(2.0)) / chunk.length);
    }
  return c;
}

}  // namespace gdn::test
