#include "src/paired.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "src/statistics.hpp"

namespace gdn {
namespace {

// Twenty-four ratios. The figures below are SciPy 1.17's:
//   stats.wilcoxon(d, zero_method='wilcox', correction=False, method='asymptotic').pvalue
//   max of stats.binomtest((x > low).sum(), n, alternative='greater').pvalue and of (x < high)
//   the interpolated interval by stats.binom.cdf and the formula of Hettmansperger and Sheather
const std::vector<double> ratios = {1.012, 0.998, 1.004, 1.021, 0.987, 1.009, 1.015, 1.002,
                                    0.995, 1.018, 1.007, 1.011, 0.991, 1.006, 1.013, 1.001,
                                    1.024, 0.999, 1.008, 1.010, 1.003, 1.016, 0.994, 1.005};

TEST(Paired, TheRankTestIsScipys) {
  std::vector<double> shifts;
  for (const double ratio : ratios) shifts.push_back(std::round((ratio - 1) * 1000) / 1000);
  EXPECT_NEAR(signed_rank_p(shifts), 0.006075155092447807, 1e-12);
  EXPECT_NEAR(signed_rank_p({0, 1, 1, -1, 2, 2, 2, -2, 3, -3, 3, 4, 5, -1, 2, 0, 4, 4, -2, 6}),
              0.019041294725654585, 1e-12);  // ties and zeros
  EXPECT_EQ(signed_rank_p({0, 0, 0}), 1);
}

TEST(Paired, TheEquivalenceTestIsScipys) {
  EXPECT_NEAR(equivalence_p(ratios, 0.99, 1.02), 1.7940998077392578e-05, 1e-15);
  EXPECT_NEAR(equivalence_p(ratios, 0.995, 1.012), 0.03195732831954956, 1e-12);
  EXPECT_NEAR(equivalence_p(ratios, 1.0, 1.01), 0.15372812747955322, 1e-12);
}

TEST(Paired, TheInterpolatedIntervalIsThatOfScipysBinomial) {
  const auto interval = interpolated_median_interval(ratios);
  ASSERT_TRUE(interval);
  EXPECT_NEAR(interval->first, 1.0018267638314842, 1e-12);
  EXPECT_NEAR(interval->second, 1.0111732361685157, 1e-12);
  EXPECT_FALSE(interpolated_median_interval({1, 2, 3, 4, 5}));
}

// 94 to 96 % of the intervals hold the true median, whatever the distribution and the number.
TEST(Paired, TheIntervalCoversTheMedianInNinetyFivePercent) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> normal;
  std::exponential_distribution<double> exponential;
  constexpr int trials = 20'000;
  for (const std::size_t count : {20U, 37U, 100U, 250U}) {
    int held_normal = 0, held_exponential = 0;
    std::vector<double> samples(count);
    for (int trial = 0; trial < trials; ++trial) {
      for (double& x : samples) x = normal(random);
      const auto a = interpolated_median_interval(samples);
      held_normal += a->first <= 0 && 0 <= a->second ? 1 : 0;
      for (double& x : samples) x = exponential(random);
      const auto b = interpolated_median_interval(samples);
      held_exponential += b->first <= std::log(2) && std::log(2) <= b->second ? 1 : 0;
    }
    EXPECT_NEAR(held_normal * 100.0 / trials, 95, 1) << count;
    EXPECT_NEAR(held_exponential * 100.0 / trials, 95, 1) << count;
  }
}

// A machine whose clock drifts by half within a few hundred samples, with a noise of 0.5 %.
class Machine {
 public:
  Machine(double ratio, unsigned seed) : ratio_(ratio), random_(seed) {}

  TakePair pairs() {
    return [this](bool a_first, Pairs& pairs) {
      const double first = sample(a_first ? 1 : ratio_);
      const double second = sample(a_first ? ratio_ : 1);
      pairs.a_s.push_back(a_first ? first : second);
      pairs.b_s.push_back(a_first ? second : first);
    };
  }

 private:
  double sample(double time) {
    drift_ *= 1.001;
    return time * drift_ * noise_(random_);
  }

  double ratio_;
  double drift_ = 1;
  std::mt19937 random_;
  std::lognormal_distribution<double> noise_{0, 0.005};
};

Verdict verdict_for(double ratio, unsigned seed, double noise_floor = 0) {
  const PairPlan plan{.timeout_s = 60, .seed = seed};
  const Pairs pairs = take_pairs(Machine(ratio, seed).pairs(), plan, noise_floor);
  return verdict_of(paired_ratio(pairs, plan), plan, noise_floor);
}

int count(Verdict verdict, double ratio) {
  int found = 0;
  for (unsigned seed = 1; seed <= 100; ++seed) found += verdict_for(ratio, seed) == verdict;
  return found;
}

// A fault seen elsewhere: base-then-head order turns clock drift into a verdict.
TEST(Paired, DriftIsNoDifferenceAndADifferenceIsFoundInIt) {
  EXPECT_GE(count(Verdict::same, 1), 99);
  EXPECT_GE(count(Verdict::slower, 1.01), 99);
  EXPECT_GE(count(Verdict::faster, 1 / 1.01), 99);
}

TEST(Paired, BothOrdersComeEquallyOftenAndByTheSeed) {
  const auto orders = [](std::uint64_t seed) {
    std::vector<bool> all;
    const auto take = [&](bool a_first, Pairs& pairs) {
      all.push_back(a_first);
      pairs.a_s.push_back(1);
      pairs.b_s.push_back(2);
    };
    take_pairs(take, {.timeout_s = 60, .min_pairs = 200, .seed = seed}, 0);
    return all;
  };
  const std::vector<bool> first = orders(1);
  EXPECT_EQ(std::ranges::count(first, true) * 2, static_cast<std::ptrdiff_t>(first.size()));
  for (std::size_t i = 0; i + 1 < first.size(); i += 2) EXPECT_NE(first[i], first[i + 1]);
  EXPECT_EQ(orders(1), first);
  EXPECT_NE(orders(2), first);
}

TEST(Paired, NothingIsClaimedBelowTheNoiseFloor) {
  EXPECT_EQ(verdict_for(1.01, 1), Verdict::slower);
  EXPECT_EQ(verdict_for(1.01, 1, 0.02), Verdict::inconclusive);
  EXPECT_EQ(verdict_for(1.05, 1, 0.02), Verdict::slower);
  EXPECT_EQ(verdict_for(1, 1), Verdict::same);
  EXPECT_EQ(verdict_for(1, 1, 0.02), Verdict::inconclusive);  // it could not be told
  // What A against itself does not rule out is its own larger end.
  EXPECT_NEAR(noise_floor_of({.value = 1, .interval = Interval{0.97, 1.01}}), 0.03, 1e-12);
  EXPECT_NEAR(noise_floor_of({.value = 1.2, .interval = std::nullopt}), 0.2, 1e-12);
}

TEST(Paired, ADifferenceOfHalfTheWantedOneIsNotForcedIntoAVerdict) {
  EXPECT_GE(count(Verdict::inconclusive, 1.005), 80);
}

TEST(Paired, TheTimeOutEndsIt) {
  const Pairs pairs = take_pairs(Machine(1, 1).pairs(), {.timeout_s = 0}, 0);
  EXPECT_EQ(pairs.a_s.size(), 2U);
  EXPECT_EQ(verdict_of(paired_ratio(pairs, {}), {}, 0), Verdict::inconclusive);
}

}  // namespace
}  // namespace gdn
