// Statistics of timing samples. No outlier is ever removed.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "src/result.hpp"

namespace gdn {

using Interval = std::pair<double, double>;

// Linear interpolation between order statistics (R type 7, numpy's default).
// Like all of these, throws std::invalid_argument where there is no sample to speak of.
double quantile(std::span<const double> sorted, double probability);
double median(std::vector<double> samples);

// Distribution-free 95 % interval of the median: the order statistics x[k] and x[n+1-k] (1-based)
// with the largest k such that P(Binomial(n, 1/2) < k) <= 2.5 %. Absent for n < 6.
// O(n): cheap enough to be asked after every batch of samples.
std::optional<Interval> median_interval(std::vector<double> samples);
std::optional<Interval> median_interval_of_sorted(std::span<const double> sorted);

// Nearly exact 95 % where the other, which must be at least that, covers up to 99 %: between the
// two neighbouring intervals of order statistics (T. Hettmansperger, S. Sheather, Statist. Probab.
// Lett. 4 (1986)). Absent for n < 6.
std::optional<Interval> interpolated_median_interval(std::vector<double> samples);

// Wilcoxon's signed ranks: two-sided p that the differences are symmetric about 0. By the normal
// limit with correction for ties; zeros are left out. 1 where none is left.
double signed_rank_p(const std::vector<double>& differences);

// Equivalence by two one-sided sign tests: p that the median lies outside low … high. Below 2.5 %
// exactly when the interval by order statistics lies within.
double equivalence_p(const std::vector<double>& samples, double low, double high);

TimeSummary summarize(const std::vector<double>& samples);

// At most `limit` of the samples, evenly picked, in their order.
std::vector<double> thin(const std::vector<double>& samples, std::size_t limit);

// How many samples the interval of a median needs to hold at this confidence: 6 at 95 %. All n of
// them reach 1 - 2^(1-n).
std::size_t fewest_for(double confidence);

// Ratio of medians head/base and its interval at `confidence` (0.95): the percentile bootstrap,
// both sides resampled independently. It is computed, not simulated: no seed, the same numbers
// everywhere, exact at any confidence. Absent when a side has fewer samples than that confidence
// takes, or when a sample is not positive.
struct Ratio {
  double value = 1;
  std::optional<Interval> interval;
};
Ratio ratio_of_medians(const std::vector<double>& base, const std::vector<double>& head,
                       double confidence);

double geometric_mean(std::span<const double> values);  // 1 of none

}  // namespace gdn
