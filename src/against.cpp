#include "src/against.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <utility>

#include "src/error.hpp"
#include "src/variant_select.hpp"

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

struct StandLost {};

double one_sample(Bench::Stand& stand) {
  const std::vector<double> samples = stand.take();
  if (samples.empty()) throw StandLost();
  return median(samples);
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void append(const Pairs& some, Pairs& all) {
  all.a_s.insert(all.a_s.end(), some.a_s.begin(), some.a_s.end());
  all.b_s.insert(all.b_s.end(), some.b_s.begin(), some.b_s.end());
}

WorkerOptions of_build(WorkerOptions worker, const std::string& program) {
  worker.program = program;
  return worker;
}

}  // namespace

Pairs take_pairs(Bench::Stand& a, Bench::Stand& b, const PairPlan& plan, double noise_floor) {
  const auto take = [&](bool a_first, Pairs& pairs) {
    const double first_s = one_sample(a_first ? a : b);
    const double second_s = one_sample(a_first ? b : a);
    pairs.a_s.push_back(a_first ? first_s : second_s);
    pairs.b_s.push_back(a_first ? second_s : first_s);
  };
  try {
    return take_pairs(take, plan, noise_floor);
  } catch (const StandLost&) {
    return {};
  }
}

PairedBench::PairedBench(Bench& own, const WorkerOptions& worker, const AgainstOptions& options)
    : options_(options), own_(own) {
  if (options.program.empty()) return;
  int obstacle = access(options.program.c_str(), X_OK) == 0 ? 0 : errno;
  if (std::filesystem::is_directory(options.program)) obstacle = EISDIR;
  if (obstacle != 0)
    throw UserError(fmt::format("--against {}: {}; give the gdnbench of another build",
                                options.program, std::strerror(obstacle)));
  other_ = std::make_unique<Bench>(of_build(worker, options.program));
  like_ = std::make_unique<Bench>(of_build(worker, options.program));
}

Planned PairedBench::other_of(const Planned& planned) const {
  if (options_.variant.empty()) return planned;
  Planned other = planned;
  const SelectedVariant a = instance_of(options_.variant).value();  // as `the_one` found it
  other.variant = a.variant;
  other.instance = a.instance;
  return other;
}

PairedBench::Comparison PairedBench::compare(const Planned& a, const Planned& b,
                                             std::uint64_t seed) {
  const Clock::time_point start = Clock::now();
  PairPlan plan = options_.plan;
  plan.seed = seed;
  PairPlan of_itself = plan;  // what it finds must be well below what is looked for
  of_itself.difference_percent /= 2;
  of_itself.timeout_s /= 3;

  Comparison comparison{.row = blank_row(b), .pairs = {}};
  const auto give_up_for_a = [&](const Row& row_of_a) {
    give_up(comparison.row, row_of_a.status,
            fmt::format("A, {}: {}", row_of_a.variant, row_of_a.reason));
  };
  Bench::Stand first = (other_ ? *other_ : own_).open(a);
  Bench::Stand like = first.stands() ? (like_ ? *like_ : own_).open(a) : Bench::Stand();
  const Clock::time_point floor_start = Clock::now();
  const Pairs alike = take_pairs(first, like, of_itself, 0);
  const double floor_s = seconds_since(floor_start);
  like.close();
  if (other_ && first.row().reason.starts_with(no_such_instance)) {
    give_up(comparison.row, Status::skipped, "the other build has no such instance");
    return comparison;
  }
  if (alike.a_s.empty() || like.row().status != Status::passed) {
    first.close();
    give_up_for_a(first.row().status != Status::passed ? first.row() : like.row());
    return comparison;
  }
  comparison.noise_floor = noise_floor_of(paired_ratio(alike, of_itself));
  plan.timeout_s -= floor_s;

  Bench::Stand second = own_.open(b);
  if (second.row().input_hash != first.row().input_hash && second.stands()) {
    second.close();
    first.close();
    comparison.row = second.row();
    give_up(comparison.row, Status::failed, "the other build makes other inputs of this case");
    return comparison;
  }
  comparison.pairs = take_pairs(first, second, plan, comparison.noise_floor);
  first.close();
  second.close();  // the last of a bench: its row has what the machine did meanwhile
  comparison.row = second.row();
  add_flags(first.row().flags, comparison.row.flags);
  comparison.seconds = seconds_since(start);
  if (first.row().status == Status::incorrect || second.row().status == Status::incorrect)
    comparison.row = culprit_of(a, b, first.row(), second.row());
  else if (second.row().status == Status::passed && first.row().status != Status::passed)
    give_up_for_a(first.row());
  else if (second.row().status == Status::passed && comparison.pairs.a_s.empty())
    give_up(comparison.row, Status::failed, "A and B do not fit on the device side by side");
  return comparison;
}

// Both lie on the same inputs, so that what one of them wrote where it must not is found by the
// check of either. By itself it shows.
Row PairedBench::culprit_of(const Planned& a, const Planned& b, const Row& row_of_a,
                            const Row& row_of_b) {
  const auto alone = [](Bench& bench, const Planned& planned) {
    Bench::Stand stand = bench.open(planned);
    stand.take();
    stand.close();
    return stand.row();
  };
  Row row = alone(own_, b);
  if (row.status != Status::passed) return row;
  const Row of_a = alone(other_ ? *other_ : own_, a);
  const Row& found = row_of_b.status == Status::incorrect ? row_of_b : row_of_a;
  const bool is_a = of_a.status != Status::passed;
  give_up(row, is_a ? of_a.status : Status::incorrect,
          fmt::format("A, {}{}: {}", row_of_a.variant, is_a ? "" : ", or B, beside each other",
                      is_a ? of_a.reason : found.reason));
  return row;
}

Row PairedBench::measure(const Planned& planned) {
  const Planned a = other_of(planned);
  Comparison whole;
  Against against{.variant = blank_row(a).variant,
                  .revision = other_ ? other_->build().value("revision", "unknown") : "",
                  .difference_percent = options_.plan.difference_percent};
  for (int i = 0; i < options_.repeat; ++i) {
    Comparison comparison = compare(a, planned, options_.plan.seed + static_cast<std::uint64_t>(i));
    if (comparison.row.status != Status::passed) return comparison.row;
    const PairedRatio ratio = paired_ratio(comparison.pairs, options_.plan);
    if (options_.repeat > 1)
      against.repeats.push_back(
          {.ratio = ratio.value,
           .ci95 = ratio.interval,
           .noise_floor = comparison.noise_floor,
           .pairs = static_cast<std::int64_t>(ratio.pairs),
           .seconds = comparison.seconds,
           .verdict = verdict_of(ratio, options_.plan, comparison.noise_floor)});
    append(comparison.pairs, whole.pairs);
    whole.row = std::move(comparison.row);
    whole.noise_floor = std::max(whole.noise_floor, comparison.noise_floor);
  }
  const PairedRatio ratio = paired_ratio(whole.pairs, options_.plan);
  against.ratio = ratio.value;
  against.ci95 = ratio.interval;
  against.rank_p = ratio.rank_p;
  against.equivalence_p = ratio.equivalence_p;
  against.pairs = static_cast<std::int64_t>(ratio.pairs);
  against.noise_floor = whole.noise_floor;
  against.verdict = verdict_of(ratio, options_.plan, whole.noise_floor);
  against.median_s = median(whole.pairs.a_s);
  against.samples_s = thin(whole.pairs.a_s, kept_samples);

  Row row = std::move(whole.row);
  row.time_s = summarize(whole.pairs.b_s);
  row.samples = against.pairs;
  row.samples_s = thin(whole.pairs.b_s, kept_samples);
  row.round_medians_s = {row.time_s->median};
  row.against = std::move(against);
  return row;
}

}  // namespace gdn
