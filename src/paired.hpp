// A against B in interleaved pairs: the drift of a machine, which hits both halves of a pair alike,
// falls out of their ratio.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "src/compare.hpp"
#include "src/statistics.hpp"

namespace gdn {

// Times of the two sides; pair i is a_s[i] and b_s[i], taken right after one another.
struct Pairs {
  std::vector<double> a_s, b_s;
};

struct PairPlan {
  double difference_percent = 1;  // that must not be overlooked
  double timeout_s = 2;           // of one comparison
  int min_pairs = 20;
  std::uint64_t seed = 1;  // of the order within pairs
};

// b / a over pairs, and what tests say of it.
struct PairedRatio {
  double value = 1;                  // median of the pairs' ratios
  std::optional<Interval> interval;  // 95 %, of that median
  double rank_p = 1;                 // Wilcoxon's signed ranks, two-sided: that there is no shift
  double equivalence_p = 1;  // two one-sided sign tests: that it lies beyond half the difference
  std::size_t pairs = 0;
};
PairedRatio paired_ratio(const Pairs& pairs, const PairPlan& plan);

// Of B against A. faster, slower: the whole interval lies beyond half of the wanted difference and
// beyond the noise floor, and the rank test says so too (1 %). So a difference as large as the
// wanted one is found, and none of less than the floor is claimed. same: the equivalence test rules
// out half of the wanted difference (2.5 % a side), which the noise floor must not exceed.
Verdict verdict_of(const PairedRatio& ratio, const PairPlan& plan, double noise_floor);

// Takes one pair, A first or B first, and appends it.
using TakePair = std::function<void(bool a_first, Pairs& pairs)>;

// Takes pairs, in an order shuffled by the seed but balanced over every two, until there is a
// verdict, or the interval is narrower than a quarter of the wanted difference and there is none,
// or the time is up.
Pairs take_pairs(const TakePair& take, const PairPlan& plan, double noise_floor);

// From pairs of an instance with itself: the largest departure from 1 that they do not rule out.
double noise_floor_of(const PairedRatio& of_itself);

}  // namespace gdn
