// The statistics against SciPy on fixed samples (data/statistics_scipy.py), and what their
// intervals promise, by simulation.
#include "src/statistics.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>

namespace gdn {
namespace {

using Samples = std::vector<double>;

const nlohmann::json& scipy() {
  static const nlohmann::json data = [] {
    std::ifstream file(GDNBENCH_SOURCE_DIR "/tests/data/statistics_scipy.json");
    return nlohmann::json::parse(file);
  }();
  return data;
}

Samples up_to(std::size_t n) {
  Samples samples(n);
  std::iota(samples.begin(), samples.end(), 1.0);
  return samples;
}

// Skewed, as times are.
Samples lognormal(std::mt19937_64& generator, std::size_t n, double median, double spread) {
  std::lognormal_distribution<double> distribution(std::log(median), spread);
  Samples samples(n);
  for (double& x : samples) x = distribution(generator);
  return samples;
}

TEST(Statistics, QuantilesAreThoseOfNumpy) {
  for (const auto& summary : scipy()["summaries"]) {
    Samples sorted = summary["samples"];
    const double scale = sorted.front();
    const double middle = median(sorted);
    std::sort(sorted.begin(), sorted.end());
    for (const auto& expected : summary["quantiles"]) {
      EXPECT_NEAR(quantile(sorted, expected[0]), expected[1], 1e-15 * scale) << expected;
    }
    EXPECT_EQ(middle, quantile(sorted, 0.5));
    EXPECT_NEAR(geometric_mean(sorted), summary["gmean"], 1e-13 * scale);
  }
}

TEST(Statistics, IntervalsOfTheMedianAreThoseOfScipy) {
  for (const auto& summary : scipy()["summaries"]) {
    const Samples samples = summary["samples"];
    const TimeSummary ours = summarize(samples);
    EXPECT_EQ(ours.ci95, median_interval(samples));
    ASSERT_EQ(ours.ci95.has_value(), !summary["interval"].is_null()) << samples.size();
    if (ours.ci95) {
      EXPECT_EQ(*ours.ci95, summary["interval"].get<Interval>());
    }
    EXPECT_EQ(ours.min, *std::min_element(samples.begin(), samples.end()));
    EXPECT_LE(ours.min, ours.q1);
    EXPECT_LE(ours.q1, ours.median);
    EXPECT_LE(ours.median, ours.q3);
  }
}

TEST(Statistics, RanksOfTheIntervalAreThoseOfTheBinomialDistribution) {
  for (const auto& [n, k] : scipy()["ranks"].get<std::vector<std::pair<int, int>>>()) {
    const Samples sorted = up_to(n);
    EXPECT_EQ(median_interval_of_sorted(sorted), Interval(k, n + 1 - k)) << n;
    EXPECT_EQ(median_interval(Samples(sorted.rbegin(), sorted.rend())), Interval(k, n + 1 - k));
  }
}

TEST(Statistics, FewSamplesHaveNoInterval) {
  EXPECT_EQ(median_interval(up_to(5)), std::nullopt);
  EXPECT_EQ(median_interval({}), std::nullopt);
  EXPECT_EQ(median_interval(up_to(6)), Interval(1, 6));
  EXPECT_EQ(summarize({2}).median, 2);
  EXPECT_THROW(summarize({}), std::invalid_argument);
  EXPECT_THROW(median({}), std::invalid_argument);
}

// The exact coverage lies at 95 % or a little above, whatever the distribution.
TEST(Statistics, TheIntervalCoversTheMedian) {
  std::mt19937_64 generator(2024);
  for (const std::size_t n : {6, 10, 25, 100, 200}) {
    const int trials = 20000;
    int covered = 0;
    double width = 0;
    for (int trial = 0; trial < trials; ++trial) {
      const auto [low, high] = *median_interval(lognormal(generator, n, 1, 0.1));
      covered += low <= 1 && 1 <= high;
      width += (high - low) / trials;
    }
    const double share = static_cast<double>(covered) / trials;
    EXPECT_GE(share, 0.95 - 0.005) << n;  // three standard errors of the simulation
    EXPECT_LE(share, n < 25 ? 0.985 : 0.97) << n;
    // The normal theory of the median: 2 · 1.96 · 1.2533 · spread / sqrt(n).
    if (n >= 25) {
      EXPECT_LT(width, 1.2 * 4.913 * 0.1 / std::sqrt(n)) << n;
    }
  }
}

TEST(Statistics, RatiosOfMediansAreThoseOfScipysBootstrap) {
  for (const auto& expected : scipy()["ratios"]) {
    const Ratio ratio =
        ratio_of_medians(expected["base"], expected["head"], expected["confidence"]);
    EXPECT_NEAR(ratio.value, expected["value"], 1e-14);
    ASSERT_TRUE(ratio.interval);
    const auto [low, high] = *ratio.interval;
    const double rounding = 1e-9;
    EXPECT_GE(low, expected["low"][0].get<double>() - rounding);
    EXPECT_LE(low, expected["low"][1].get<double>() + rounding);
    EXPECT_GE(high, expected["high"][0].get<double>() - rounding);
    EXPECT_LE(high, expected["high"][1].get<double>() + rounding);
  }
}

TEST(Statistics, TheRatiosIntervalCoversTheRatio) {
  std::mt19937_64 generator(7);
  for (const std::size_t n : {6, 7, 20, 51, 200}) {
    const int trials = 1000;
    int covered = 0;
    for (int trial = 0; trial < trials; ++trial) {
      const Samples base = lognormal(generator, n, 1e-3, 0.02);
      const Samples head = lognormal(generator, n, 1.03e-3, 0.05);
      const auto [low, high] = *ratio_of_medians(base, head, 0.95).interval;
      covered += low <= 1.03 && 1.03 <= high;
    }
    EXPECT_GE(covered, 0.93 * trials) << n;
    EXPECT_LE(covered, 0.99 * trials) << n;
  }
}

TEST(Statistics, RatiosOfMediansAtTheEdges) {
  EXPECT_FALSE(ratio_of_medians(up_to(5), up_to(50), 0.95).interval);
  EXPECT_FALSE(ratio_of_medians(up_to(50), up_to(5), 0.95).interval);
  EXPECT_TRUE(ratio_of_medians(up_to(6), up_to(6), 0.95).interval);
  // 99.9 % need 11: not even the smallest and the largest of 10 hold a median so often.
  EXPECT_FALSE(ratio_of_medians(up_to(10), up_to(10), 0.999).interval);
  EXPECT_TRUE(ratio_of_medians(up_to(11), up_to(11), 0.999).interval);
  EXPECT_FALSE(ratio_of_medians({0, 1, 1, 1, 1, 1}, up_to(6), 0.95).interval);

  const Samples ones(8, 1.0);
  EXPECT_EQ(ratio_of_medians(ones, ones, 0.95).interval, Interval(1, 1));
  const Samples more(9, 1.03);
  EXPECT_EQ(ratio_of_medians(ones, more, 0.95).interval, Interval(1.03, 1.03));
  EXPECT_EQ(ratio_of_medians(ones, more, 0.95).value, 1.03);
}

TEST(Statistics, TheRatioIsTheSameWhateverTheOrder) {
  std::mt19937_64 generator(3);
  Samples base = lognormal(generator, 30, 1, 0.1);
  Samples head = lognormal(generator, 31, 1, 0.1);
  const Ratio first = ratio_of_medians(base, head, 0.95);
  std::shuffle(base.begin(), base.end(), generator);
  std::shuffle(head.begin(), head.end(), generator);
  const Ratio second = ratio_of_medians(base, head, 0.95);
  EXPECT_EQ(first.value, second.value);
  EXPECT_EQ(first.interval, second.interval);
  // Exchanged sides mirror the interval.
  const Ratio mirrored = ratio_of_medians(head, base, 0.95);
  EXPECT_NEAR(mirrored.interval->first, 1 / first.interval->second, 1e-9);
  EXPECT_NEAR(mirrored.interval->second, 1 / first.interval->first, 1e-9);
}

TEST(Statistics, ThinningPicksEvenlyAndKeepsTheOrder) {
  EXPECT_EQ(thin(up_to(3), 200), up_to(3));
  EXPECT_EQ(thin(up_to(10), 5), (Samples{1, 3, 5, 7, 9}));
  EXPECT_EQ(thin(up_to(10), 0), Samples{});
  const Samples picked = thin(up_to(100'001), 200);
  EXPECT_EQ(picked.size(), 200U);
  for (std::size_t i = 1; i < picked.size(); ++i) EXPECT_NEAR(picked[i] - picked[i - 1], 500, 1);
}

TEST(Statistics, GeometricMean) {
  EXPECT_EQ(geometric_mean({}), 1);
  EXPECT_NEAR(geometric_mean(Samples{0.5, 2}), 1, 1e-15);
  EXPECT_NEAR(geometric_mean(Samples{1e-300, 1e-300, 1e-300}), 1e-300, 1e-312);
}

// Generous: it is to catch a quadratic algorithm, not a slow machine.
TEST(Statistics, ManySamplesAreQuick) {
  std::mt19937_64 generator(1);
  const Samples samples = lognormal(generator, 100'000, 1, 0.1);
  const auto start = std::chrono::steady_clock::now();
  const TimeSummary summary = summarize(samples);
  const auto interval = median_interval(samples);
  const Ratio ratio = ratio_of_medians(samples, samples, 0.95);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(summary.ci95, interval);
  EXPECT_TRUE(ratio.interval);
  EXPECT_LT(taken.count(), 5.0);
}

}  // namespace
}  // namespace gdn
