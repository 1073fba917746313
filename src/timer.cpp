#include "src/timer.hpp"

#include <algorithm>
#include <chrono>
#include <random>

#include "src/statistics.hpp"

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_samples = 100'000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool narrow_enough(const std::vector<double>& samples, double max_noise_percent) {
  const std::optional<Interval> interval = median_interval(samples);
  if (!interval) return false;
  return (interval->second - interval->first) * 100 <= max_noise_percent * median(samples);
}

}  // namespace

Samples take_samples(Sampler& sampler, Timing timing, const Sampling& plan,
                     const std::function<void()>& poison, const std::function<void()>& verify) {
  Samples result;
  std::vector<double>& samples = result.seconds;
  std::mt19937 random(static_cast<unsigned>(Clock::now().time_since_epoch().count()));
  std::uniform_int_distribution<std::size_t> gap(0, 20);
  std::size_t next_recheck = gap(random);
  int rechecks_left = 3;

  const std::size_t fixed = timing == Timing::lab ? lab_samples : 0;
  const auto wanted = static_cast<std::size_t>(std::max(plan.min_samples, 1));
  std::size_t next_look = wanted;  // the interval is looked at every 10 % more samples
  double rechecking_s = 0;
  std::vector<double> uncounted;
  const auto recheck = [&] {
    poison();
    sampler.take(uncounted);
    verify();
  };
  const Clock::time_point start = Clock::now();
  while (true) {
    sampler.take(samples);
    if (rechecks_left > 0 && samples.size() > next_recheck) {
      const Clock::time_point pause = Clock::now();
      recheck();
      sampler.take(uncounted);  // caches are again as a launch leaves them
      rechecking_s += seconds_since(pause);
      --rechecks_left;
      next_recheck = samples.size() * 2 + gap(random);
    }
    if (fixed > 0) {
      if (samples.size() >= fixed) break;
    } else if (samples.size() >= next_look) {
      if (samples.size() >= most_samples || narrow_enough(samples, plan.max_noise_percent)) break;
      next_look = samples.size() + samples.size() / 10 + 1;
    }
    if (seconds_since(start) - rechecking_s >= plan.timeout_s) {
      if (samples.size() < std::max(wanted, fixed)) result.flags.emplace_back("timeout");
      break;
    }
  }
  recheck();  // the last ones, always
  if (!median_interval(samples)) result.flags.emplace_back("few_samples");
  if (!narrow_enough(samples, plan.max_noise_percent)) result.flags.emplace_back("noisy");
  result.host_s = sampler.host_s();
  for (const std::string& flag : sampler.flags()) result.flags.push_back(flag);
  return result;
}

}  // namespace gdn
