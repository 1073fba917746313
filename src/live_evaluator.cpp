#include "src/live_evaluator.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>

#include "src/error.hpp"

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

// Every question brings as many samples: a search asks again where it wants more.
WorkerOptions asked_in_batches(WorkerOptions options) {
  constexpr double any_noise_percent = 1e6;
  options.sampling.min_samples = static_cast<int>(first_samples);
  options.sampling.max_noise_percent = any_noise_percent;
  return options;
}

}  // namespace

// The worker, and the case that lies on it.
class LiveBench::Process {
 public:
  explicit Process(const WorkerOptions& options)
      : options_(asked_in_batches(options)),
        worker_(std::make_unique<Worker>(options_)),
        timeout_s(options.sampling.timeout_s),
        device(worker_->device()),
        fingerprint(worker_->fingerprint()) {}

  // Never throws for what the candidate does.
  Row measure(const TuningProblem& problem, const std::string& candidate) {
    Row row;
    row.status = Status::skipped;
    row.reason = too_large(problem.c.problem, device.memory_bytes);
    if (!row.reason.empty()) return row;
    row.status = Status::failed;
    try {
      lay_out(problem.c);
      Row measured = worker_->measure(candidate, problem.scope, problem.timing);
      // What went wrong may have written anywhere, and an error of the device sticks.
      if (measured.status == Status::failed) worker_.reset();
      if (measured.status == Status::failed || measured.status == Status::incorrect)
        laid_out_.reset();
      return measured;
    } catch (const UserError&) {
      throw;
    } catch (const std::exception& e) {  // the worker has died, or the case cannot be laid out
      row.reason = e.what();
      worker_.reset();
      laid_out_.reset();
    }
    return row;
  }

  class Candidates;

 private:
  void lay_out(const Case& c) {
    if (!worker_) worker_ = std::make_unique<Worker>(options_);
    if (laid_out_ == c) return;
    laid_out_.reset();
    worker_->load(c);
    laid_out_ = c;
  }

  WorkerOptions options_;
  std::unique_ptr<Worker> worker_;
  std::optional<Case> laid_out_;

 public:
  const double timeout_s;  // of sampling one candidate
  const Device device;
  const nlohmann::json fingerprint;
};

class LiveBench::Process::Candidates : public Evaluator {
 public:
  Candidates(Process& process, TuningProblem problem)
      : process_(process), problem_(std::move(problem)) {}

  const Evaluation& evaluate(const std::string& candidate, std::size_t samples) override {
    Evaluation& known = known_[candidate];
    while (known.status == Status::passed && known.samples_s.size() < samples &&
           known.sampling_s < process_.timeout_s)
      measure(candidate, known);
    return known;
  }

  Pairs pair(const std::string& a, const std::string& b, const PairPlan& plan,
             double noise_floor) override {
    const auto samples_of = [&](const std::string& candidate) {
      Evaluation now;  // what it costs is the pair's, not the candidate's
      measure(candidate, now);
      if (now.status == Status::passed) return now.samples_s;
      known_[candidate].status = now.status;
      known_[candidate].reason = now.reason;
      throw Fallen();
    };
    try {
      return take_pairs(
          [&](bool a_first, Pairs& pairs) {
            std::vector<double> first = samples_of(a_first ? a : b);
            std::vector<double> second = samples_of(a_first ? b : a);
            first.resize(std::min(first.size(), second.size()));
            second.resize(first.size());
            if (!a_first) first.swap(second);
            std::ranges::copy(first, std::back_inserter(pairs.a_s));
            std::ranges::copy(second, std::back_inserter(pairs.b_s));
          },
          plan, noise_floor);
    } catch (const Fallen&) {
      return {};
    }
  }

  double spent_s() const override { return spent_s_; }

 private:
  struct Fallen {};  // a candidate, while it was paired

  // Checks it anew and takes some more samples.
  void measure(const std::string& candidate, Evaluation& known) {
    const Clock::time_point begin = Clock::now();
    const Row row = process_.measure(problem_, candidate);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    known.status = row.status;
    known.reason = row.reason;
    const double sampling_s =
        std::min(seconds, std::accumulate(row.samples_s.begin(), row.samples_s.end(), 0.0));
    known.sampling_s += sampling_s;
    known.setup_s += seconds - sampling_s;
    spent_s_ += seconds;
    std::ranges::copy(row.samples_s, std::back_inserter(known.samples_s));
  }

  Process& process_;
  TuningProblem problem_;
  std::map<std::string, Evaluation> known_;
  double spent_s_ = 0;
};

LiveBench::LiveBench(const WorkerOptions& options) : process_(std::make_unique<Process>(options)) {}
LiveBench::~LiveBench() = default;

const Device& LiveBench::device() const { return process_->device; }
const nlohmann::json& LiveBench::of_backend() const { return process_->fingerprint; }

std::unique_ptr<Evaluator> LiveBench::evaluator(const TuningProblem& problem) {
  return std::make_unique<Process::Candidates>(*process_, problem);
}

}  // namespace gdn
