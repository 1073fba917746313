// Taking samples until the median is known well enough. How one sample is taken is the backend's.
#pragma once

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "src/result.hpp"

namespace gdn {

// When enough is enough.
struct Sampling {
  int min_samples = 30;
  double max_noise_percent = 0.5;  // width of the 95 % interval of the median, relative to it
  double timeout_s = 5;            // of sampling one row; a flag, not an error
};

// Takes samples of one launch in one timing mode, warmed up by its maker.
class Sampler {
 public:
  virtual ~Sampler() = default;
  virtual void take(std::vector<double>& samples_s) = 0;         // appends one sample or more
  virtual double host_s() const = 0;                             // host time of one launch
  virtual std::vector<std::string> flags() const { return {}; }  // what was wrong with the samples
};

// Re-checks of an instance while it is timed, a few at random and one at the end: `poison` is
// called, a sample is taken that does not count, and `verify` must find the results there again.
class SpotChecks {
 public:
  SpotChecks(std::function<void()> poison, std::function<void()> verify);

  // Perhaps one, after `taken` samples.
  void maybe(Sampler& sampler, std::size_t taken);
  void last(Sampler& sampler);
  double spent_s() const { return spent_s_; }

 private:
  std::function<void()> poison_, verify_;
  std::mt19937 random_;
  std::size_t next_;
  int left_ = 3;
  double spent_s_ = 0;
};

struct Samples {
  std::vector<double> seconds;
  double host_s = 0;
  std::vector<std::string> flags;  // noisy, few_samples, timeout
};

// Samples until the interval is narrower than max_noise_percent and min_samples are there, or the
// time is up. `lab` always takes its 100 (or what fits the time).
Samples take_samples(Sampler& sampler, Timing timing, const Sampling& plan, SpotChecks checks);

inline constexpr int lab_warm_ups = 10;
inline constexpr int lab_samples = 100;

}  // namespace gdn
