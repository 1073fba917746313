#include "src/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "src/fingerprint.hpp"
#include "src/report/render.hpp"
#include "src/thresholds.hpp"

namespace gdn {
namespace {

struct Pair {
  const Row* base = nullptr;
  const Row* head = nullptr;
};

// In BASE's order, then what only HEAD has.
std::vector<Pair> match(const Report& base, const Report& head) {
  std::vector<Pair> pairs;
  std::map<std::string, std::size_t> places;
  const auto add = [&](const Report& report, const Row* Pair::*side, const char* name) {
    for (const Row& row : report.rows) {
      const auto [place, is_new] = places.emplace(row_key(row), pairs.size());
      if (is_new) pairs.emplace_back();
      const Row*& own = pairs[place->second].*side;
      if (own != nullptr) {
        throw UserError(fmt::format("{}: the row {} stands there twice; measure again, or keep one",
                                    name, row_key(row)));
      }
      own = &row;
    }
  };
  add(base, &Pair::base, "BASE");
  add(head, &Pair::head, "HEAD");
  const bool common = std::any_of(pairs.begin(), pairs.end(), [](const Pair& pair) {
    return pair.base != nullptr && pair.head != nullptr;
  });
  if (!common) {
    throw UserError(
        "BASE and HEAD have no row in common; compare runs of the same cases, variants, scopes and "
        "timing");
  }
  return pairs;
}

bool timed(const Row& row) { return row.status == Status::passed && row.time_s.has_value(); }

// What makes times incomparable, each in one sentence.
std::vector<std::string> differences(const Report& base, const Report& head,
                                     const std::vector<Pair>& pairs) {
  std::vector<std::string> found =
      differing(facts_of_times, base.fingerprint, "in BASE", head.fingerprint, "in HEAD");
  for (const auto& [b, h] : pairs) {
    if (b == nullptr || h == nullptr) continue;
    const auto expect_equal = [&, row = b](const char* name, const std::string& in_base,
                                           const std::string& in_head) {
      if (in_base == in_head) return;
      found.push_back(fmt::format("{}: the {} differs: \"{}\" in BASE, \"{}\" in HEAD",
                                  row_key(*row), name, in_base, in_head));
    };
    if (!b->input_hash.empty() && !h->input_hash.empty()) {
      expect_equal("input hash", b->input_hash, h->input_hash);
    }
    if (timed(*b) && timed(*h)) {  // a row that was not timed may not know its timer
      if (b->input_hash.empty() || h->input_hash.empty()) {
        expect_equal("input hash", b->input_hash, h->input_hash);
      }
      expect_equal("timer", b->timer, h->timer);
      expect_equal("flush", b->flush, h->flush);
    }
  }
  return found;
}

void refuse(const std::vector<std::string>& differences) {
  constexpr std::size_t shown_at_most = 5;
  std::string message = "BASE and HEAD may not be compared (--force does it all the same)";
  for (std::size_t i = 0; i < std::min(differences.size(), shown_at_most); ++i) {
    message += "\n  " + differences[i];
  }
  if (differences.size() > shown_at_most) {
    message += fmt::format("\n  and {} more", differences.size() - shown_at_most);
  }
  throw UserError(message);
}

bool identical(const Row& base, const Row& head) {
  return base.samples_s == head.samples_s && base.time_s->median == head.time_s->median &&
         base.round_medians_s == head.round_medians_s;
}

// Where both rows have enough rounds for an interval, the medians of those are compared: the
// samples of one process share what differs from process to process.
bool enough_rounds(const Row& base, const Row& head) {
  return median_interval(base.round_medians_s) && median_interval(head.round_medians_s);
}

const std::vector<double>& compared(const Row& row, bool by_rounds) {
  return by_rounds ? row.round_medians_s : row.samples_s;
}

double median_of(const Row& row, bool by_rounds) {
  if (!row.time_s) return 0;
  const std::vector<double>& times = compared(row, by_rounds);
  return times.empty() ? row.time_s->median : median(times);
}

std::string why(const Row& row) {
  return fmt::format("{}{}{}", name_of(row.status), row.reason.empty() ? "" : ": ", row.reason);
}

void judge_times(const Row& base, const Row& head, double confidence, ComparedRow& row) {
  const double slow = 1 + row.threshold_percent / 100;
  const double fast = 1 / slow;  // so that BASE and HEAD exchanged mirror the verdict
  if (identical(base, head)) {
    row.verdict = Verdict::same;
    row.reason = "identical samples";
    return;
  }
  const bool by_rounds = enough_rounds(base, head);
  const char* const unit = by_rounds ? "rounds" : "samples";
  const std::vector<double>& base_times = compared(base, by_rounds);
  const std::vector<double>& head_times = compared(head, by_rounds);
  if (!base_times.empty() && !head_times.empty()) {
    row.ratio = ratio_of_medians(base_times, head_times, confidence);
  }
  if (!row.ratio.interval) {
    row.verdict = Verdict::inconclusive;
    row.reason = fmt::format("{} and {} {} are too few for an interval at {:.4g} %, which takes {}",
                             base_times.size(), head_times.size(), unit, 100 * confidence,
                             fewest_for(confidence));
    return;
  }
  const auto [low, high] = *row.ratio.interval;
  if (low > slow) {
    row.verdict = Verdict::slower;
  } else if (high < fast) {
    row.verdict = Verdict::faster;
  } else if (low >= fast && high <= slow) {
    row.verdict = Verdict::same;
  } else {
    row.verdict = Verdict::inconclusive;
    row.reason = high < 1
                     ? "a gain, but the interval reaches across the threshold"
                     : fmt::format("the interval reaches across the threshold; take more {}", unit);
  }
}

void judge(const Pair& pair, double confidence, ComparedRow& row) {
  const Status base = pair.base != nullptr ? pair.base->status : Status::skipped;
  const Status head = pair.head != nullptr ? pair.head->status : Status::skipped;
  if (head == Status::incorrect || head == Status::failed) {
    row.verdict = head == Status::incorrect ? Verdict::incorrect : Verdict::failed;
    row.reason = pair.head->reason;
  } else if (head == Status::skipped) {
    row.verdict = base == Status::skipped ? Verdict::skipped : Verdict::missing;
    row.reason = pair.head != nullptr ? why(*pair.head) : "not in HEAD";
  } else if (base != Status::passed) {
    row.verdict = Verdict::added;
    row.reason = pair.base != nullptr ? "BASE " + why(*pair.base) : "not in BASE";
  } else if (timed(*pair.base) && timed(*pair.head)) {
    judge_times(*pair.base, *pair.head, confidence, row);
  } else {
    const bool neither = !pair.base->time_s && !pair.head->time_s;
    row.verdict = neither ? Verdict::same : Verdict::inconclusive;
    row.reason = "without a time";
  }
}

bool both_timed(const Pair& pair) {
  return pair.base != nullptr && pair.head != nullptr && timed(*pair.base) && timed(*pair.head);
}

// So that all the intervals together hold at 95 %, each holds at 1 - 5 %/m (Bonferroni); m counts
// the rows whose times are not the same to the last bit.
double confidence_of_each(const std::vector<Pair>& pairs) {
  const auto uncertain = std::count_if(pairs.begin(), pairs.end(), [](const Pair& pair) {
    return both_timed(pair) && !identical(*pair.base, *pair.head);
  });
  return 1 - 0.05 / static_cast<double>(std::max<std::ptrdiff_t>(uncertain, 1));
}

// Of several exit codes the first of 4, 2, 1, 3.
Exit worse(Exit a, Exit b) {
  for (const Exit exit : {Exit::usage, Exit::incorrect, Exit::regression, Exit::inconclusive}) {
    if (a == exit || b == exit) return exit;
  }
  return Exit::fine;
}

}  // namespace

std::vector<std::string> differences(const Report& base, const Report& head) {
  return differences(base, head, match(base, head));
}

Comparison compare(const Report& base, const Report& head, const CompareOptions& options) {
  if (!(options.threshold_percent >= 0 && options.threshold_percent <= 1000)) {
    throw UserError(
        fmt::format("--threshold {}: write a number of per cent from 0 to 1000, like 2.5",
                    options.threshold_percent));
  }
  const std::vector<Pair> pairs = match(base, head);
  const Thresholds thresholds =
      options.thresholds_file.empty()
          ? Thresholds(options.threshold_percent)
          : Thresholds::read(options.thresholds_file, options.threshold_percent);

  Comparison comparison;
  comparison.warnings = differences(base, head, pairs);
  if (!comparison.warnings.empty() && !options.force) refuse(comparison.warnings);
  comparison.confidence = confidence_of_each(pairs);

  std::vector<std::string> case_names;
  std::vector<double> ratios;
  for (const Pair& pair : pairs) {
    const Row& known = pair.base != nullptr ? *pair.base : *pair.head;
    case_names.push_back(known.case_name);
    ComparedRow row;
    row.case_name = known.case_name;
    row.variant = known.variant;
    row.scope = known.scope;
    row.timing = known.timing;
    row.threshold_percent = thresholds.percent_for(known.case_name);
    const bool by_rounds = both_timed(pair) && enough_rounds(*pair.base, *pair.head);
    if (pair.base != nullptr) row.base_s = median_of(*pair.base, by_rounds);
    if (pair.head != nullptr) row.head_s = median_of(*pair.head, by_rounds);
    if (row.base_s > 0 && row.head_s > 0) row.ratio.value = row.head_s / row.base_s;
    if (both_timed(pair) && row.base_s > 0 && row.head_s > 0) ratios.push_back(row.ratio.value);
    judge(pair, comparison.confidence, row);
    comparison.exit = worse(comparison.exit, exit_of(row));
    comparison.rows.push_back(std::move(row));
  }
  comparison.timed_rows = static_cast<int>(ratios.size());
  comparison.geomean = geometric_mean(ratios);
  for (std::string& warning : thresholds.unused(case_names)) {
    comparison.warnings.push_back(std::move(warning));
  }
  return comparison;
}

Exit exit_of(const ComparedRow& row) {
  switch (row.verdict) {
    case Verdict::incorrect:
    case Verdict::failed:
    case Verdict::missing:
      return Exit::incorrect;
    case Verdict::slower:
      return Exit::regression;
    case Verdict::inconclusive: {
      const bool gain = row.ratio.interval && row.ratio.interval->second < 1;
      return gain ? Exit::fine : Exit::inconclusive;
    }
    case Verdict::same:
    case Verdict::faster:
    case Verdict::added:
    case Verdict::skipped:
      break;
  }
  return Exit::fine;
}

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return "same";
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::inconclusive:
      return "inconclusive";
    case Verdict::incorrect:
      return "incorrect";
    case Verdict::failed:
      return "failed";
    case Verdict::missing:
      return "missing";
    case Verdict::added:
      return "added";
    case Verdict::skipped:
      return "skipped";
  }
  return "";
}

}  // namespace gdn
