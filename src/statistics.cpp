#include "src/statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <stdexcept>

namespace gdn {
namespace {

void require_samples(std::size_t count) {
  if (count == 0) throw std::invalid_argument("statistics of no samples");
}

double midpoint(double low, double high) { return low + 0.5 * (high - low); }

// Largest k with P(Binomial(n, 1/2) < k) <= 2.5 %; 0 where there is none (n < 6).
// The weights C(n, j) are followed from the middle outwards, scaled so that the middle one is 1:
// nothing overflows, and all but some multiple of sqrt(n) of them vanish.
std::size_t interval_rank(std::size_t n) {
  const std::size_t middle = n / 2;
  const auto next_below = [n](double weight, std::size_t j) {
    return weight * static_cast<double>(j) / static_cast<double>(n - j + 1);
  };
  double below = 0;  // weights of 0 … middle - 1
  double weight = 1;
  for (std::size_t j = middle; j > 0; --j) {
    weight = next_below(weight, j);
    if (weight < 1e-30) break;
    below += weight;
  }
  const double total = 2 * below + (n % 2 == 0 ? 1 : 2);

  std::size_t k = middle;
  weight = 1;
  while (k > 0 && below > 0.025 * total) {
    weight = next_below(weight, k);
    below -= weight;
    --k;
  }
  return k;
}

// log(n!). std::lgamma writes a sign that all threads share; searches run side by side.
double log_factorial(double n) {
  int sign = 0;
  return lgamma_r(n + 1, &sign);
}

// P(Binomial(n, 1/2) < k).
double probability_below(std::size_t n, std::size_t k) {
  const auto count = static_cast<double>(n);
  double sum = 0;
  for (std::size_t j = 0; j < k; ++j) {
    const auto i = static_cast<double>(j);
    sum += std::exp(log_factorial(count) - log_factorial(i) - log_factorial(count - i) -
                    count * std::log(2.0));
  }
  return sum;
}

// P(Binomial(n, p) >= least), 0 < least.
double binomial_upper_tail(std::size_t n, double p, std::size_t least) {
  if (p >= 1) return 1;
  const auto count = static_cast<double>(n);
  const auto first = static_cast<double>(least);
  const double odds = p / (1 - p);
  double term =
      std::exp(log_factorial(count) - log_factorial(first) - log_factorial(count - first) +
               first * std::log(p) + (count - first) * std::log1p(-p));
  double sum = term;
  for (std::size_t j = least; j < n; ++j) {
    const double growth = static_cast<double>(n - j) / static_cast<double>(j + 1) * odds;
    term *= growth;
    sum += term;
    if (growth < 1 && term < 1e-18 * sum) break;
  }
  return std::min(sum, 1.0);
}

struct Outcome {
  double value;
  double probability;
};

// The distribution of the median of n draws with replacement, in order of its values. The median
// of odd n is one order statistic of the draws (B. Efron, Ann. Statist. 7 (1979), section 3):
//   P(rank <= i) = P(Binomial(n, i/n) >= (n+1)/2).
// That of even n is the middle of two, of ranks i <= j. With m = n/2, i < j means that m draws are
// at most i, one of them i, and that the other m are at least j, one of them j:
//   P(i, j) = a(i) a(n+1-j),  a(i) = A(i) - A(i-1),  A(i) = sqrt(C(n, m)) (i/n)^m,
// and P(i, i) is what these leave of P(rank of the m-th <= i) - P(... <= i-1).
std::vector<Outcome> bootstrapped_median(const std::vector<double>& sorted) {
  const std::size_t n = sorted.size();
  const std::size_t half = (n + 1) / 2;
  const bool even = n % 2 == 0;
  constexpr double negligible = 1e-17;

  const auto up_to_rank = [&](std::size_t i) {
    return i == 0 ? 0
                  : binomial_upper_tail(n, static_cast<double>(i) / static_cast<double>(n), half);
  };
  // In logarithms, as A alone overflows.
  const double log_root =
      log_factorial(static_cast<double>(n)) / 2 - log_factorial(static_cast<double>(half));
  const auto log_A = [&](std::size_t i) {
    return log_root +
           static_cast<double>(half) * std::log(static_cast<double>(i) / static_cast<double>(n));
  };
  const auto log_a = [&](std::size_t i) {
    const double kept = std::pow(1 - 1 / static_cast<double>(i), static_cast<double>(half));
    return log_A(i) + std::log1p(-kept);
  };

  // The standard deviation of the rank is about sqrt(n)/2: ten of them hold all that counts.
  const auto reach = static_cast<std::size_t>(5 * std::sqrt(static_cast<double>(n))) + 2;
  const std::size_t first = half > reach ? half - reach : 1;
  const std::size_t last = std::min(n, half + reach);

  std::vector<Outcome> outcomes;
  double previous = up_to_rank(first - 1);
  for (std::size_t i = first; i <= last; ++i) {
    const double current = up_to_rank(i);
    double single = current - previous;
    previous = current;
    if (even) {
      single -= std::exp(log_a(i) + log_A(n - i));
      for (std::size_t j = i + 1; j <= n; ++j) {
        const double probability = std::exp(log_a(i) + log_a(n + 1 - j));
        if (probability < negligible) break;
        outcomes.push_back({midpoint(sorted[i - 1], sorted[j - 1]), probability});
      }
    }
    if (single > negligible) outcomes.push_back({sorted[i - 1], single});
  }
  std::sort(outcomes.begin(), outcomes.end(),
            [](const Outcome& a, const Outcome& b) { return a.value < b.value; });
  return outcomes;
}

// P(head / base <= ratio). As base grows, so does what head may be: one pass over both.
double probability_at_most(double ratio, const std::vector<Outcome>& base,
                           const std::vector<Outcome>& head) {
  double sum = 0;
  double head_sum = 0;
  auto next = head.begin();
  for (const Outcome& b : base) {
    for (; next != head.end() && next->value <= ratio * b.value; ++next) {
      head_sum += next->probability;
    }
    sum += b.probability * head_sum;
  }
  return sum;
}

// The least ratio that head / base does not exceed with this probability.
double ratio_quantile(double probability, const std::vector<Outcome>& base,
                      const std::vector<Outcome>& head) {
  double low = head.front().value / base.back().value * (1 - 1e-9);
  double high = head.back().value / base.front().value;
  for (int halvings = 0; halvings < 200 && high - low > 1e-13 * high; ++halvings) {
    const double middle = midpoint(low, high);
    (probability_at_most(middle, base, head) < probability ? low : high) = middle;
  }
  return high;
}

}  // namespace

double quantile(std::span<const double> sorted, double probability) {
  require_samples(sorted.size());
  const double position =
      static_cast<double>(sorted.size() - 1) * std::clamp(probability, 0.0, 1.0);
  const auto below = static_cast<std::size_t>(position);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (position - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

double median(std::vector<double> samples) {
  require_samples(samples.size());
  const auto upper = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), upper, samples.end());
  if (samples.size() % 2 == 1) return *upper;
  return midpoint(*std::max_element(samples.begin(), upper), *upper);
}

std::optional<Interval> median_interval(std::vector<double> samples) {
  const std::size_t k = interval_rank(samples.size());
  if (k == 0) return std::nullopt;
  const auto low = samples.begin() + static_cast<std::ptrdiff_t>(k - 1);
  const auto high = samples.end() - static_cast<std::ptrdiff_t>(k);
  std::nth_element(samples.begin(), low, samples.end());
  std::nth_element(low + 1, high, samples.end());
  return Interval{*low, *high};
}

std::optional<Interval> median_interval_of_sorted(std::span<const double> sorted) {
  const std::size_t k = interval_rank(sorted.size());
  if (k == 0) return std::nullopt;
  return Interval{sorted[k - 1], sorted[sorted.size() - k]};
}

std::optional<Interval> interpolated_median_interval(std::vector<double> samples) {
  const std::size_t n = samples.size();
  const std::size_t k = interval_rank(n);
  if (k == 0) return std::nullopt;
  std::sort(samples.begin(), samples.end());
  if (2 * k >= n) return Interval{samples[k - 1], samples[n - k]};
  const double wide = 1 - 2 * probability_below(n, k);
  const double narrow = 1 - 2 * probability_below(n, k + 1);
  const double share = (wide - 0.95) / (wide - narrow);
  const auto rank = static_cast<double>(k);
  const auto rest = static_cast<double>(n - k);
  const double weight = rest * share / (rank + (rest - rank) * share);
  return Interval{samples[k - 1] + weight * (samples[k] - samples[k - 1]),
                  samples[n - k] + weight * (samples[n - k - 1] - samples[n - k])};
}

double signed_rank_p(const std::vector<double>& differences) {
  std::vector<double> nonzero;
  for (const double d : differences)
    if (d != 0 && std::isfinite(d)) nonzero.push_back(d);
  const std::size_t n = nonzero.size();
  if (n == 0) return 1;
  std::sort(nonzero.begin(), nonzero.end(),
            [](double x, double y) { return std::abs(x) < std::abs(y); });
  double positive = 0;  // sum of the ranks of positive differences
  double ties = 0;
  for (std::size_t first = 0, next = 0; first < n; first = next) {
    while (next < n && std::abs(nonzero[next]) == std::abs(nonzero[first])) ++next;
    const double rank = 0.5 * static_cast<double>(first + 1 + next);  // the mean of theirs
    for (std::size_t i = first; i < next; ++i)
      if (nonzero[i] > 0) positive += rank;
    const auto tied = static_cast<double>(next - first);
    ties += tied * tied * tied - tied;
  }
  const auto count = static_cast<double>(n);
  const double mean = count * (count + 1) / 4;
  const double variance = count * (count + 1) * (2 * count + 1) / 24 - ties / 48;
  return std::erfc(std::abs(positive - mean) / std::sqrt(2 * variance));
}

double equivalence_p(const std::vector<double>& samples, double low, double high) {
  require_samples(samples.size());
  const std::size_t n = samples.size();
  const auto above = static_cast<std::size_t>(
      std::count_if(samples.begin(), samples.end(), [&](double x) { return x > low; }));
  const auto below = static_cast<std::size_t>(
      std::count_if(samples.begin(), samples.end(), [&](double x) { return x < high; }));
  // P(Binomial(n, 1/2) >= successes) = P(Binomial(n, 1/2) < n - successes + 1)
  return probability_below(n, n - std::min(above, below) + 1);
}

TimeSummary summarize(const std::vector<double>& samples) {
  std::vector<double> sorted = samples;
  std::sort(sorted.begin(), sorted.end());
  return {.median = quantile(sorted, 0.5),
          .q1 = quantile(sorted, 0.25),
          .q3 = quantile(sorted, 0.75),
          .min = sorted.front(),
          .ci95 = median_interval_of_sorted(sorted)};
}

std::vector<double> thin(const std::vector<double>& samples, std::size_t limit) {
  if (samples.size() <= limit) return samples;
  std::vector<double> picked(limit);
  for (std::size_t i = 0; i < limit; ++i) picked[i] = samples[i * samples.size() / limit];
  return picked;
}

std::size_t fewest_for(double confidence) {
  return static_cast<std::size_t>(std::ceil(1 - std::log2(1 - confidence)));
}

Ratio ratio_of_medians(const std::vector<double>& base, const std::vector<double>& head,
                       double confidence) {
  Ratio ratio{.value = median(head) / median(base), .interval = std::nullopt};

  std::vector<double> base_sorted = base;
  std::vector<double> head_sorted = head;
  std::sort(base_sorted.begin(), base_sorted.end());
  std::sort(head_sorted.begin(), head_sorted.end());
  if (std::min(base.size(), head.size()) < fewest_for(confidence)) return ratio;
  if (base_sorted.front() <= 0 || head_sorted.front() <= 0) return ratio;

  const std::vector<Outcome> base_medians = bootstrapped_median(base_sorted);
  const std::vector<Outcome> head_medians = bootstrapped_median(head_sorted);
  const double tail = (1 - confidence) / 2;
  ratio.interval = Interval{ratio_quantile(tail, base_medians, head_medians),
                            ratio_quantile(1 - tail, base_medians, head_medians)};
  return ratio;
}

double geometric_mean(std::span<const double> values) {
  if (values.empty()) return 1;
  const double sum = std::accumulate(values.begin(), values.end(), 0.0,
                                     [](double total, double v) { return total + std::log(v); });
  return std::exp(sum / static_cast<double>(values.size()));
}

}  // namespace gdn
