#include "src/timer.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/statistics.hpp"

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_samples = 100'000;
constexpr unsigned gap = 21;  // samples between spot checks, at most, beside the doubling

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool narrow_enough(const std::vector<double>& samples, double max_noise_percent) {
  const std::optional<Interval> interval = median_interval(samples);
  if (!interval) return false;
  return (interval->second - interval->first) * 100 <= max_noise_percent * median(samples);
}

}  // namespace

SpotChecks::SpotChecks(std::function<void()> poison, std::function<void()> verify)
    : poison_(std::move(poison)),
      verify_(std::move(verify)),
      random_(static_cast<unsigned>(Clock::now().time_since_epoch().count())),
      next_(random_() % gap) {}

void SpotChecks::maybe(Sampler& sampler, std::size_t taken) {
  if (left_ == 0 || taken <= next_) return;
  const Clock::time_point start = Clock::now();
  last(sampler);
  std::vector<double> uncounted;
  sampler.take(uncounted);  // caches are again as a launch leaves them
  --left_;
  next_ = taken * 2 + random_() % gap;
  spent_s_ += seconds_since(start);
}

void SpotChecks::last(Sampler& sampler) {
  std::vector<double> uncounted;
  poison_();
  sampler.take(uncounted);
  verify_();
}

Samples take_samples(Sampler& sampler, Timing timing, const Sampling& plan, SpotChecks checks) {
  Samples result;
  std::vector<double>& samples = result.seconds;
  const std::size_t fixed = timing == Timing::lab ? lab_samples : 0;
  const auto wanted = static_cast<std::size_t>(std::max(plan.min_samples, 1));
  std::size_t next_look = wanted;  // the interval is looked at every 10 % more samples
  const Clock::time_point start = Clock::now();
  while (true) {
    sampler.take(samples);
    checks.maybe(sampler, samples.size());
    if (fixed > 0) {
      if (samples.size() >= fixed) break;
    } else if (samples.size() >= next_look) {
      if (samples.size() >= most_samples || narrow_enough(samples, plan.max_noise_percent)) break;
      next_look = samples.size() + samples.size() / 10 + 1;
    }
    if (seconds_since(start) - checks.spent_s() >= plan.timeout_s) {
      if (samples.size() < std::max(wanted, fixed)) result.flags.emplace_back("timeout");
      break;
    }
  }
  checks.last(sampler);
  if (!median_interval(samples)) result.flags.emplace_back("few_samples");
  if (!narrow_enough(samples, plan.max_noise_percent)) result.flags.emplace_back("noisy");
  result.host_s = sampler.host_s();
  for (const std::string& flag : sampler.flags()) result.flags.push_back(flag);
  return result;
}

}  // namespace gdn
