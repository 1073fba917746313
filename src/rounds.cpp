#include "src/rounds.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/statistics.hpp"

namespace gdn {
namespace {

using Json = nlohmann::json;

// As many samples of each round, one round after the other.
std::vector<double> equal_shares(const Row& so_far, const Row& next) {
  const std::size_t rounds = so_far.round_medians_s.size();
  const std::size_t kept = so_far.samples_s.size() / rounds;
  const std::size_t share = std::min({kept, next.samples_s.size(), kept_samples / (rounds + 1)});
  std::vector<double> all;
  const auto add = [&](auto begin, std::size_t count) {
    const std::vector<double> picked =
        thin({begin, begin + static_cast<std::ptrdiff_t>(count)}, share);
    all.insert(all.end(), picked.begin(), picked.end());
  };
  for (std::size_t round = 0; round < rounds; ++round)
    add(so_far.samples_s.begin() + static_cast<std::ptrdiff_t>(round * kept), kept);
  add(next.samples_s.begin(), next.samples_s.size());
  return all;
}

std::optional<Interval> interval_of(const std::vector<double>& round_medians_s,
                                    const TimeSummary& so_far, const TimeSummary& next) {
  if (const auto interval = median_interval(round_medians_s)) return interval;
  if (!so_far.ci95 || !next.ci95) return std::nullopt;
  return Interval{std::min(so_far.ci95->first, next.ci95->first),
                  std::max(so_far.ci95->second, next.ci95->second)};
}

// Ranges widen and counts add up; what is told once (an empty kernel's time, the span by CUPTI) is
// the later round's.
Json merged_telemetry(const Json& so_far, const Json& next) {
  Json all = so_far;
  all.update(next);
  for (const auto& [key, earlier] : so_far.items()) {
    if (!next.contains(key)) continue;
    const Json& later = next[key];
    if (key == "samples") {
      all[key] = earlier.get<std::int64_t>() + later.get<std::int64_t>();
    } else if (key == "throttle") {
      for (const Json& reason : earlier)
        if (std::ranges::find(later, reason) == later.end()) all[key].push_back(reason);
    } else if (later.is_object()) {
      all[key] = {{"min", std::min(earlier.at("min"), later.at("min"))},
                  {"max", std::max(earlier.at("max"), later.at("max"))}};
    }
  }
  return all;
}

// What the rounds before have to say beside the latest. The rest of the row is the latest round's:
// kernels and their span, the host's time, and what is the same in all of them.
void add_earlier(const Row& so_far, Row& next) {
  next.samples_s = equal_shares(so_far, next);
  next.samples += so_far.samples;
  next.round_medians_s.insert(next.round_medians_s.begin(), so_far.round_medians_s.begin(),
                              so_far.round_medians_s.end());
  TimeSummary time = summarize(next.samples_s);
  time.median = median(next.round_medians_s);
  time.min = std::min(so_far.time_s->min, next.time_s->min);  // also of samples not kept
  time.ci95 = interval_of(next.round_medians_s, *so_far.time_s, *next.time_s);
  next.time_s = time;
  add_flags(so_far.flags, next.flags);
  next.telemetry = merged_telemetry(so_far.telemetry, next.telemetry);
}

}  // namespace

void merge_round(Row& so_far, Row next) {
  const std::size_t round = so_far.round_medians_s.size() + 1;
  if (next.status != Status::passed)
    next.reason = fmt::format("round {}: {}", round, next.reason);
  else if (next.output_hash != so_far.output_hash)
    give_up(next, Status::incorrect,
            fmt::format("round {} gives another result bit for bit", round));
  else
    add_earlier(so_far, next);
  so_far = std::move(next);
}

}  // namespace gdn
