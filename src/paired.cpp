#include "src/paired.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_pairs = 20'000;
constexpr double claim_p = 0.01;  // of the rank test, which a claim needs beside the interval
constexpr double same_p = 0.025;  // of the equivalence test

double half_difference(const PairPlan& plan) { return plan.difference_percent / 200; }

// Whether pairs enough are there, or no more are worth taking.
bool is_settled(const Pairs& pairs, const PairPlan& plan, double noise_floor) {
  const PairedRatio ratio = paired_ratio(pairs, plan);
  if (!ratio.interval) return false;
  const double width = ratio.interval->second - ratio.interval->first;
  if (width * 100 > plan.difference_percent) return false;
  return verdict_of(ratio, plan, noise_floor) != Verdict::inconclusive ||
         width * 400 <= plan.difference_percent;
}

}  // namespace

PairedRatio paired_ratio(const Pairs& pairs, const PairPlan& plan) {
  std::vector<double> ratios, logarithms;
  for (std::size_t i = 0; i < pairs.a_s.size(); ++i) {
    ratios.push_back(pairs.b_s[i] / pairs.a_s[i]);
    logarithms.push_back(std::log(ratios.back()));
  }
  if (ratios.empty()) return {};
  return {.value = median(ratios),
          .interval = interpolated_median_interval(ratios),
          .rank_p = signed_rank_p(logarithms),
          .equivalence_p =
              equivalence_p(ratios, 1 / (1 + half_difference(plan)), 1 + half_difference(plan)),
          .pairs = ratios.size()};
}

Verdict verdict_of(const PairedRatio& ratio, const PairPlan& plan, double noise_floor) {
  if (!ratio.interval) return Verdict::inconclusive;
  const double boundary = 1 + std::max(half_difference(plan), noise_floor);
  if (ratio.rank_p < claim_p && ratio.interval->first > boundary) return Verdict::slower;
  if (ratio.rank_p < claim_p && ratio.interval->second < 1 / boundary) return Verdict::faster;
  const bool could_tell = noise_floor <= half_difference(plan);
  return could_tell && ratio.equivalence_p <= same_p ? Verdict::same : Verdict::inconclusive;
}

Pairs take_pairs(const TakePair& take, const PairPlan& plan, double noise_floor) {
  Pairs pairs;
  std::mt19937_64 random(plan.seed);
  const auto enough = static_cast<std::size_t>(std::max(plan.min_pairs, 1));
  std::size_t next_look = enough;
  const Clock::time_point start = Clock::now();
  while (pairs.a_s.size() < most_pairs) {
    const bool a_first = (random() & 1) != 0;
    take(a_first, pairs);
    take(!a_first, pairs);
    const std::chrono::duration<double> spent = Clock::now() - start;
    if (spent.count() >= plan.timeout_s) break;
    if (pairs.a_s.size() < next_look) continue;
    if (is_settled(pairs, plan, noise_floor)) break;
    next_look = pairs.a_s.size() + pairs.a_s.size() / 10 + 1;
  }
  return pairs;
}

double noise_floor_of(const PairedRatio& of_itself) {
  if (!of_itself.interval) return std::abs(of_itself.value - 1);
  return std::max(std::abs(of_itself.interval->first - 1),
                  std::abs(of_itself.interval->second - 1));
}

}  // namespace gdn
