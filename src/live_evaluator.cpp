#include "src/live_evaluator.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <map>
#include <utility>

#include "src/against.hpp"
#include "src/variant_select.hpp"

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

class LiveEvaluator : public Evaluator {
 public:
  LiveEvaluator(Bench& bench, TuningProblem problem, double timeout_s)
      : bench_(bench), problem_(std::move(problem)), timeout_s_(timeout_s) {}

  ~LiveEvaluator() override {
    for (auto& [candidate, stand] : stands_) stand.close();
  }
  LiveEvaluator(const LiveEvaluator&) = delete;
  LiveEvaluator& operator=(const LiveEvaluator&) = delete;

  const Evaluation& evaluate(const std::string& candidate, std::size_t samples) override {
    Evaluation& known = known_[candidate];
    const auto wants_more = [&] {
      return known.status == Status::passed && known.samples_s.size() < samples &&
             known.sampling_s < timeout_s_;
    };
    if (!wants_more()) return known;
    const Clock::time_point start = Clock::now();
    bench_.lay_out_ahead(problem_.c);  // which is the problem's cost and no candidate's
    const Clock::time_point laid_out = Clock::now();
    Bench::Stand& stand = stand_of(candidate);
    learn(stand, known);
    known.setup_s += seconds_since(laid_out);
    while (wants_more()) {
      const Clock::time_point begin = Clock::now();
      std::ranges::copy(stand.take(), std::back_inserter(known.samples_s));
      known.sampling_s += seconds_since(begin);
      learn(stand, known);
    }
    stand.check();
    learn(stand, known);
    spent_s_ += seconds_since(start);
    return known;
  }

  Pairs pair(const std::string& a, const std::string& b, const PairPlan& plan,
             double noise_floor) override {
    const Clock::time_point start = Clock::now();
    Bench::Stand& first = stand_of(a);
    Bench::Stand like;
    if (a == b) like = open(a);
    Bench::Stand& second = a == b ? like : stand_of(b);
    Pairs pairs = take_pairs(first, second, plan, noise_floor);
    first.check();
    second.check();
    learn(first, known_[a]);
    learn(second, known_[b]);
    add_flags(second.row().flags, known_[a].flags);
    add_flags(first.row().flags, known_[b].flags);
    like.close();
    if (first.row().status != Status::passed || second.row().status != Status::passed) pairs = {};
    spent_s_ += seconds_since(start);
    return pairs;
  }

  double spent_s() const override { return spent_s_; }

 private:
  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  static void learn(const Bench::Stand& stand, Evaluation& known) {
    known.status = stand.row().status;
    known.reason = stand.row().reason;
    add_flags(stand.row().flags, known.flags);
  }

  // What another candidate did may have ended it: then it is set up anew.
  Bench::Stand& stand_of(const std::string& candidate) {
    Bench::Stand& stand = stands_[candidate];
    const bool tried = !stand.row().variant.empty();
    if (!stand.stands() && (!tried || stand.row().status == Status::passed))
      stand = open(candidate);
    return stand;
  }

  // A set-up that finds no room may find it without the others.
  Bench::Stand open(const std::string& candidate) {
    const bool alone =
        std::ranges::none_of(stands_, [](const auto& s) { return s.second.stands(); });
    const Planned planned = planned_of(candidate);
    Bench::Stand stand = bench_.open(planned);
    if (stand.row().status == Status::failed && stand.row().reason == out_of_memory && !alone)
      stand = bench_.open(planned);  // on a fresh worker
    return stand;
  }

  Planned planned_of(const std::string& candidate) const {
    const SelectedVariant selected = instance_of(candidate).value();
    return {&problem_.c, selected.variant, selected.instance, problem_.scope, problem_.timing};
  }

  Bench& bench_;
  TuningProblem problem_;
  double timeout_s_;
  std::map<std::string, Evaluation> known_;
  std::map<std::string, Bench::Stand> stands_;
  double spent_s_ = 0;
};

}  // namespace

std::unique_ptr<Evaluator> live_evaluator(Bench& bench, const TuningProblem& problem,
                                          double timeout_s) {
  return std::make_unique<LiveEvaluator>(bench, problem, timeout_s);
}

}  // namespace gdn
