// What the input generator is told, and nothing of how it does it. Host-only.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gdn {

// Gate profiles: how raw_g = log α is drawn.
enum class Gates {
  random_decay,  // logsigmoid(normal) / 16
  mixed,         // the same, 0 at even tokens of a sequence
  zero,          // 0: nothing is forgotten, the hardest on precision
  model,         // -A·softplus(normal + dt_bias), the layer's own initialisation
  strong,        // uniform in -12 … -1
  reset,         // random_decay, with -50 at 5 % of the tokens
  infinite,      // random_decay, with -inf at 2 % of the tokens
};

inline constexpr std::array<std::string_view, 7> gates_names = {
    "random_decay", "mixed", "zero", "model", "strong", "reset", "infinite"};

constexpr std::string_view name_of(Gates gates) { return gates_names[static_cast<int>(gates)]; }

struct Recipe {
  Gates gates = Gates::random_decay;
  int beta_max = 1;  // beta in (0, beta_max): 1 or 2
  std::uint64_t seed = 1;
  bool operator==(const Recipe&) const = default;
};

}  // namespace gdn
