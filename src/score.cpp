#include "src/score.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace gdn {
namespace {

struct Threshold {
  std::string_view case_name;
  double t60_ms, t100_ms;
};

// Measured by the lab on an H800 PCIe MIG 1g.10gb (14 multiprocessors).
constexpr std::array<Threshold, 8> thresholds = {{
    {"short_tail_state", .573952, .346048},
    {"chain_equal", 3.999968, .497792},
    {"parallel_equal", 2.017248, .511264},
    {"parallel_gva", 1.899072, .491552},
    {"long_low_gva", 15.825312, 1.858816},
    {"batch_split_gva", 11.320448, 1.532128},
    {"wide_gva_state", 20.600449, 2.426656},
    {"deep_gva_state", 22.717567, 2.831104},
}};

}  // namespace

LabScore lab_points(double t_s, double t60_s, double t100_s) {
  const double p = t100_s / t_s;
  const double p60 = t100_s / t60_s;
  if (p >= 2) return {.points = 120};
  if (p > 1) return {.points = 100 + 20 * (p - 1)};
  if (p <= p60) return {.points = 60 * p / p60, .estimated = p < p60};
  const double u = (p - p60) / (1 - p60);
  return {.points = 60 + 40 * std::expm1(1.5 * u) / std::expm1(1.5)};
}

std::optional<LabScore> lab_score(const Row& row) {
  if (row.scope != Scope::core || row.timing != Timing::lab || !row.time_s) return std::nullopt;
  for (const Threshold& threshold : thresholds)
    if (threshold.case_name == row.case_name)
      return lab_points(row.time_s->median, threshold.t60_ms * 1e-3, threshold.t100_ms * 1e-3);
  return std::nullopt;
}

std::string lab_summary(const Report& report) {
  std::vector<std::string> variants;
  for (const Row& row : report.rows)
    if (lab_score(row) && std::ranges::find(variants, row.variant) == variants.end())
      variants.push_back(row.variant);
  if (variants.empty())
    return "Lab score: no row has one; it is of the lab's cases, core scope, --timing lab\n";
  std::string text =
      "Lab score (thresholds of an H800 MIG slice with 14 multiprocessors: they say nothing about "
      "another device; ~ = estimate)\n";
  for (const std::string& variant : variants) {
    double sum = 0;
    int cases = 0;
    std::string each;
    for (const Row& row : report.rows) {
      const std::optional<LabScore> score = row.variant == variant ? lab_score(row) : std::nullopt;
      if (!score) continue;
      each +=
          fmt::format("  {} {}{:.1f}", row.case_name, score->estimated ? "~" : "", score->points);
      sum += score->points;
      ++cases;
    }
    text += fmt::format("  {}: mean {:.1f} of {} public case{};{}\n", variant, sum / cases, cases,
                        cases == 1 ? "" : "s", each);
  }
  return text;
}

}  // namespace gdn
