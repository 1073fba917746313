// Taking samples until the median is known well enough. How one sample is taken is the backend's.
#pragma once

#include <functional>
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

struct Samples {
  std::vector<double> seconds;
  double host_s = 0;
  std::vector<std::string> flags;  // noisy, few_samples, timeout
};

// Samples until the interval is narrower than max_noise_percent and min_samples are there, or the
// time is up. `lab` always takes its 100 (or what fits the time). A few times, at random and at the
// end, `poison` is called, a sample is taken that does not count, and `verify` must find the
// results there again.
Samples take_samples(Sampler& sampler, Timing timing, const Sampling& plan,
                     const std::function<void()>& poison, const std::function<void()>& verify);

inline constexpr int lab_warm_ups = 10;
inline constexpr int lab_samples = 100;

}  // namespace gdn
