// Wisdom as a C++ header: for whoever dispatches kernels and wants no JSON at run time.
#include <fmt/format.h>

#include <algorithm>

#include "src/report/json_field.hpp"
#include "src/report/render.hpp"
#include "src/report/text.hpp"

namespace gdn {
namespace {

constexpr std::string_view begin =
    R"(// The fastest kernels on one device: `gdnbench wisdom export --format cpp` wrote this table.
// C++17, and nothing of gdnbench is needed:
//
//   // 2 sequences of 4096 and 1000 tokens, 16 query heads, 32 value heads, no initial state
//   const auto* best = gdnbench_wisdom::find({2, 4096, 5096, 16, 32, false, ""}, "core", "graph");
//   if (best != nullptr) launch(best->variant);  // "split_barrier:stages=3:value_width=32"
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>

namespace gdnbench_wisdom {

// A batch, as far as the choice of a kernel depends on it.
struct Shape {
  std::int64_t sequences;  // that are not empty
  std::int64_t longest;    // tokens of the longest of them, at least 1
  std::int64_t tokens;     // of all of them
  int query_heads;
  int value_heads;
  bool initial_state;      // whether one is given
  std::string_view gates;  // the gate profile; "" where it is not known
  int beta_max = 1;        // beta in (0, beta_max): 1 or 2
};

struct Entry {
  std::string_view tuned_as;  // the case
  Shape shape;
  std::string_view scope;     // core, forward
  std::string_view timing;    // cold, hot, graph, lab
  std::string_view variant;   // the winner, with its knobs
  double median_s;
};
)";

constexpr std::string_view end = R"(
// Chunks of 64 tokens: a sequence goes from one to the next.
inline double chunks(const Shape& shape) { return static_cast<double>((shape.longest + 63) / 64); }

inline double apart(double a, double b) { return std::abs(std::log2(a / b)); }

// The sum of |log2| of the ratios of chains (sequences × value heads), of the longest chain in
// chunks, of tokens × value heads and of value heads per query head; 1/4 more where the initial
// state differs, 1 more where both gate profiles are known and differ.
inline double distance(const Shape& a, const Shape& b) {
  const auto times = [](std::int64_t n, int heads) { return static_cast<double>(n) * heads; };
  const bool other_gates = !a.gates.empty() && !b.gates.empty() && a.gates != b.gates;
  return apart(times(a.sequences, a.value_heads), times(b.sequences, b.value_heads)) +
         apart(chunks(a), chunks(b)) +
         apart(times(a.tokens, a.value_heads), times(b.tokens, b.value_heads)) +
         apart(times(1, a.value_heads) / a.query_heads, times(1, b.value_heads) / b.query_heads) +
         (a.initial_state != b.initial_state ? 0.25 : 0) + (other_gates ? 1 : 0);
}

// The nearest entry of this scope and timing, of equally near ones one of the same beta_max, then
// the first; null where there is none.
inline const Entry* find(const Shape& shape, std::string_view scope, std::string_view timing) {
  const auto rank = [&](const Shape& s) {
    return std::pair(distance(shape, s), s.beta_max != shape.beta_max);
  };
  const Entry* best = nullptr;
  for (const Entry& entry : entries) {
    if (entry.scope != scope || entry.timing != timing) continue;
    if (best == nullptr || rank(entry.shape) < rank(best->shape)) best = &entry;
  }
  return best;
}

}  // namespace gdnbench_wisdom
)";

// JSON's escapes are C++'s where nothing is a control character; ?? might begin a trigraph.
std::string literal(std::string_view text) {
  std::string escaped;
  for (const char c : dump(printable(text))) {
    if (c == '?') escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string initialiser(const WisdomEntry& entry) {
  const Problem& problem = entry.problem;
  int sequences = 0;
  std::int32_t longest = 0;
  for (int s = 0; s < problem.sequences(); ++s) {
    sequences += problem.length(s) > 0;
    longest = std::max(longest, problem.length(s));
  }
  return fmt::format(
      "    {{{}, {{{}, {}, {}, {}, {}, {}, \"{}\", {}}}, \"{}\", \"{}\", {}, {}}},\n",
      literal(entry.case_name), sequences, longest, problem.tokens(), problem.query_heads,
      problem.value_heads, problem.initial_state, name_of(entry.gates), entry.beta_max,
      name_of(entry.scope), name_of(entry.timing), literal(entry.winner.variant),
      entry.winner.median_s);
}

}  // namespace

std::string cpp_header(const Wisdom& wisdom) {
  std::string text(begin);
  text += fmt::format("\ninline constexpr std::string_view device = {};\n", literal(wisdom.device));
  text += fmt::format("\ninline constexpr std::array<Entry, {}> entries = {{{{\n",
                      wisdom.entries.size());
  for (const WisdomEntry& entry : wisdom.entries) text += initialiser(entry);
  text += "}};\n";
  return text + std::string(end);
}

}  // namespace gdn
