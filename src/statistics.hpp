// Statistics of timing samples. No outlier is ever removed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/result.hpp"

namespace gdn {

using Interval = std::pair<double, double>;

// Linear interpolation between order statistics (R type 7, numpy's default). `sorted` is not empty.
double quantile(std::span<const double> sorted, double probability);
double median(std::vector<double> samples);

// Distribution-free 95 % interval of the median: the order statistics x[k] and x[n+1-k] (1-based)
// with the largest k such that P(Binomial(n, 1/2) < k) <= 2.5 %. Absent for n < 6.
std::optional<Interval> median_interval(std::vector<double> samples);

TimeSummary summarize(const std::vector<double>& samples);

// At most `limit` of the samples, evenly picked, in their order.
std::vector<double> thin(const std::vector<double>& samples, std::size_t limit);

// Ratio of medians head/base and its interval at `confidence` (0.95) by a seeded bootstrap
// (percentile, deterministic). Absent when either side has fewer than 6 samples.
struct Ratio {
  double value = 1;
  std::optional<Interval> interval;
};
Ratio ratio_of_medians(const std::vector<double>& base, const std::vector<double>& head,
                       double confidence);

double geometric_mean(std::span<const double> values);

}  // namespace gdn
