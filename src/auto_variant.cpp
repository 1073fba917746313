#include "src/auto_variant.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "kernels/prepare/random.hpp"
#include "src/error.hpp"
#include "src/inputs.hpp"

namespace gdn {
namespace {

constexpr std::int64_t sampled_tokens = 1024;
constexpr float least_gate = -128;  // what the prefix sum takes a lower one for

using Gate = std::function<float(std::int64_t token, std::int64_t position, int head)>;

// Σ log α of a chunk by the mean of the first tokens, of the head where that is largest.
double chunk_gates(const Problem& problem, const Gate& gate) {
  const std::int64_t tokens = std::min(problem.tokens(), sampled_tokens);
  double largest = -HUGE_VAL;
  for (int head = 0; head < problem.value_heads; ++head) {
    double sum = 0;
    for (int s = 0; s < problem.sequences(); ++s)
      for (std::int64_t t = problem.offsets[s];
           t < std::min<std::int64_t>(tokens, problem.offsets[s + 1]); ++t)
        sum += std::max(gate(t, t - problem.offsets[s], head), least_gate);
    largest = std::max(largest, chunk_tokens * sum / static_cast<double>(tokens));
  }
  return largest;
}

}  // namespace

KnownInputs known_inputs(const Case& c, const std::string& inputs_file, bool exact) {
  KnownInputs known{.exact = exact};
  if (c.problem.tokens() == 0) return known;
  if (inputs_file.empty()) {
    known.chunk_gates = chunk_gates(c.problem, [&](auto token, auto position, int head) {
      return raw_gate(c.recipe, token, position, head, c.problem.value_heads);
    });
    return known;
  }
  const InputFile file = read_inputs(inputs_file);
  known.unit_keys = file.keys_normalised;
  known.chunk_gates = chunk_gates(file.problem, [&](auto token, auto, int head) {
    float gate = 0;
    const std::int64_t element = token * file.problem.value_heads + head;
    std::memcpy(&gate, file.raw_g.data() + element * sizeof gate, sizeof gate);
    return gate;
  });
  return known;
}

AutoVariant choose_variant(const Case& c, Scope scope, const Device& device,
                           const KnownInputs& inputs) {
  const std::optional<Dispatch> choice = dispatch(ladder(), c.problem, scope, device, inputs);
  if (!choice)
    throw UserError(fmt::format(
        "--variant auto: of {} in the {} scope no variant is known that {} can run; name one of "
        "`gdnbench list variants`",
        c.name, name_of(scope), device.name));
  return {{choice->variant, choice->instance}, {choice->reason, choice->predicted_s}};
}

}  // namespace gdn
