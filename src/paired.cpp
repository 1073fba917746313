#include "src/paired.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace gdn {
namespace {

double half_of(const PairPlan& plan) { return plan.difference_percent / 200; }

}  // namespace

PairedRatio paired_ratio(const Pairs& pairs) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < pairs.a_s.size(); ++i) ratios.push_back(pairs.b_s[i] / pairs.a_s[i]);
  return {.value = median(ratios),
          .interval = median_interval(ratios),
          .rank_p = 1,
          .pairs = ratios.size()};
}

Verdict verdict_of(const PairedRatio& ratio, const PairPlan& plan, double noise_floor) {
  if (!ratio.interval) return Verdict::inconclusive;
  const double boundary = std::max(half_of(plan), noise_floor);
  if (ratio.interval->second < 1 - boundary) return Verdict::faster;
  if (ratio.interval->first > 1 + boundary) return Verdict::slower;
  const bool within =
      ratio.interval->first >= 1 - half_of(plan) && ratio.interval->second <= 1 + half_of(plan);
  return within ? Verdict::same : Verdict::inconclusive;
}

Pairs take_pairs(const TakePair& take, const PairPlan& plan, double noise_floor) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(plan.timeout_s);
  std::mt19937_64 random(plan.seed);
  Pairs pairs;
  while (true) {
    const bool a_first = std::bernoulli_distribution(0.5)(random);
    take(a_first, pairs);
    take(!a_first, pairs);
    if (Clock::now() >= until) return pairs;
    if (pairs.a_s.size() < static_cast<std::size_t>(plan.min_pairs)) continue;
    const PairedRatio ratio = paired_ratio(pairs);
    if (verdict_of(ratio, plan, noise_floor) != Verdict::inconclusive) return pairs;
    if (ratio.interval->second - ratio.interval->first < half_of(plan) / 2) return pairs;
  }
}

double noise_floor_of(const PairedRatio& of_itself) {
  if (!of_itself.interval) return 0;
  return std::max(std::abs(of_itself.interval->first - 1),
                  std::abs(of_itself.interval->second - 1));
}

}  // namespace gdn
