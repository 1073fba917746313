// Strategies on candidates whose times are known, because they are drawn here.
#include "src/strategy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "src/error.hpp"

namespace gdn {
namespace {

struct Truth {
  double time_s = 1e-3;
  double noise = 0.01;  // standard deviation of a sample, relative
  double bias = 0;      // of the samples alone, relative: what pairs do not show
  Status status = Status::passed;
  bool dies_in_pairs = false;  // with another
  bool dies_beside_itself = false;
  bool fills_the_device = false;  // no room for another beside it
};

// Answers by the truth and a generator of its own for each candidate, so that what a candidate
// shows does not depend on when it is asked.
class Drawn : public Evaluator {
 public:
  Drawn(std::map<std::string, Truth> truths, unsigned seed)
      : truths_(std::move(truths)), seed_(seed) {
    for (const auto& [id, truth] : truths_)
      randoms_.emplace(id, std::mt19937_64(std::hash<std::string>()(id) + seed));
  }

  const Evaluation& evaluate(const std::string& id, std::size_t samples) override {
    const Truth& truth = truths_.at(id);
    Evaluation& known = known_[id];
    if (std::ranges::find(order, id) == order.end()) {
      order.push_back(id);
      known.setup_s = 0.1;
      spent_s_ += known.setup_s;
      known.status = truth.status;
      if (truth.status != Status::passed) known.reason = "as planned";
    }
    while (known.status == Status::passed && known.samples_s.size() < samples) {
      known.samples_s.push_back(draw(id) * (1 + truth.bias));
      known.sampling_s += sample_cost_s;
      spent_s_ += sample_cost_s;
    }
    return known;
  }

  Pairs pair(const std::string& a, const std::string& b, const PairPlan& plan,
             double noise_floor) override {
    met.insert({a, b});
    for (const std::string& id : {a, b})
      if (a == b ? truths_.at(id).dies_beside_itself : truths_.at(id).dies_in_pairs) {
        known_[id].status = Status::failed;
        known_[id].reason = "died";
        return {};
      }
    if (truths_.at(a).fills_the_device || truths_.at(b).fills_the_device) return {};
    Pairs pairs;
    while (static_cast<double>(pairs.a_s.size()) * 2 * sample_cost_s < plan.timeout_s) {
      const double drift = std::normal_distribution<double>(1, 0.05)(drift_);  // hits both alike
      pairs.a_s.push_back(draw(a) * drift);
      pairs.b_s.push_back(draw(b) * drift);
      spent_s_ += 2 * sample_cost_s;
      if (pairs.a_s.size() >= static_cast<std::size_t>(plan.min_pairs) &&
          verdict_of(paired_ratio(pairs, plan), plan, noise_floor) != Verdict::inconclusive)
        break;
    }
    return pairs;
  }

  double spent_s() const override { return spent_s_; }

  static constexpr double sample_cost_s = 0.01;
  std::vector<std::string> order;  // of first evaluations
  std::set<std::pair<std::string, std::string>> met;

 private:
  double draw(const std::string& id) {
    const Truth& truth = truths_.at(id);
    return truth.time_s *
           std::max(0.5, std::normal_distribution<double>(1, truth.noise)(randoms_.at(id)));
  }

  std::map<std::string, Truth> truths_;
  unsigned seed_;
  std::map<std::string, std::mt19937_64> randoms_;
  std::map<std::string, Evaluation> known_;
  std::mt19937_64 drift_{7};
  double spent_s_ = 0;
};

// 24 candidates of three variants, from 1.00 to 1.92 ms by steps of 4 %; the fastest is
// "b:stages=2:width=3".
std::map<std::string, Truth> ladder_of_24() {
  std::map<std::string, Truth> truths;
  int step = 9;
  for (const char* variant : {"a", "b", "c"})
    for (const char* stages : {"1", "2"})
      for (const char* width : {"1", "2", "3", "4"}) {
        const std::string id = std::string(variant) + ":stages=" + stages + ":width=" + width;
        truths[id].time_s = 1e-3 * (1 + 0.04 * step);
        step = (step + 7) % 24;
      }
  for (auto& [id, truth] : truths)
    if (truth.time_s == 1e-3) std::swap(truth.time_s, truths["b:stages=2:width=3"].time_s);
  return truths;
}

std::vector<std::string> ids_of(const std::map<std::string, Truth>& truths) {
  std::vector<std::string> ids;
  for (const auto& [id, truth] : truths) ids.push_back(id);
  return ids;
}

std::vector<std::string> names_of(const std::vector<Rival>& rivals) {
  std::vector<std::string> names;
  for (const Rival& rival : rivals) names.push_back(rival.candidate);
  return names;
}

TEST(Strategy, EachFindsTheFastest) {
  const std::map<std::string, Truth> truths = ladder_of_24();
  for (const Strategy strategy : strategies)
    for (unsigned seed = 1; seed <= 5; ++seed) {
      Drawn evaluator(truths, seed);
      const Outcome outcome =
          search(ids_of(truths), evaluator, {.strategy = strategy, .seed = seed, .sampling = {}});
      EXPECT_EQ(outcome.winner, "b:stages=2:width=3") << name_of(strategy) << " " << seed;
      EXPECT_EQ(outcome.evaluated, 24U) << name_of(strategy);
      EXPECT_EQ(outcome.tied.size(), 0U);
      ASSERT_EQ(outcome.slower.size(), 23U);
      EXPECT_EQ(outcome.ended_by, Limit::none);
      ASSERT_TRUE(outcome.time_s);
      EXPECT_NEAR(outcome.time_s->median, 1e-3, 5e-6);
      EXPECT_NEAR(outcome.slower[0].ratio, 1.04, 0.01);
      if (strategy != Strategy::racing) {
        EXPECT_EQ(outcome.fully, 24U) << name_of(strategy);
      }
      EXPECT_DOUBLE_EQ(outcome.spent_s, evaluator.spent_s());
    }
}

// On ladders as real ones are: most candidates far behind, a handful within a few per cent.
TEST(Strategy, RacingTakesAtMostTwoFifthsOfTheTimeAndLosesLessThanOnePerCent) {
  double racing_s = 0, exhaustive_s = 0;
  for (unsigned seed = 1; seed <= 40; ++seed) {
    std::mt19937_64 random(seed);
    std::map<std::string, Truth> truths;
    double best_s = 1;
    for (const auto& [id, truth] : ladder_of_24()) {
      truths[id] = {.time_s = 3e-4 * std::exp(std::exponential_distribution<double>(4)(random)),
                    .noise = std::uniform_real_distribution<double>(0.005, 0.03)(random)};
      best_s = std::min(best_s, truths[id].time_s);
    }
    Drawn raced(truths, seed), whole(truths, seed);
    const Outcome outcome = search(ids_of(truths), raced, {.seed = seed, .sampling = {}});
    search(ids_of(truths), whole, {.strategy = Strategy::exhaustive, .sampling = {}});
    EXPECT_LE(truths[outcome.winner].time_s, 1.01 * best_s) << seed;
    racing_s += raced.spent_s();
    exhaustive_s += whole.spent_s();
  }
  EXPECT_LE(racing_s, 0.4 * exhaustive_s);
  RecordProperty("share", std::to_string(racing_s / exhaustive_s));
}

TEST(Strategy, EqualsAreTied) {
  std::map<std::string, Truth> truths = ladder_of_24();
  truths["c:stages=1:width=1"].time_s = 1e-3;
  for (const Strategy strategy : strategies) {
    Drawn evaluator(truths, 3);
    const Outcome outcome =
        search(ids_of(truths), evaluator, {.strategy = strategy, .sampling = {}});
    const std::set<std::string> two = {outcome.winner,
                                       outcome.tied.empty() ? "" : outcome.tied[0].candidate};
    EXPECT_EQ(two, (std::set<std::string>{"b:stages=2:width=3", "c:stages=1:width=1"}))
        << name_of(strategy);
    ASSERT_EQ(outcome.tied.size(), 1U);
    EXPECT_TRUE(outcome.tied[0].paired);
    EXPECT_EQ(outcome.slower.size(), 22U);
  }
}

TEST(Strategy, IsDeterministicByItsSeed) {
  const std::map<std::string, Truth> truths = ladder_of_24();
  for (const Strategy strategy : strategies) {
    std::set<std::vector<std::string>> orders;
    for (const unsigned seed : {1U, 1U, 2U}) {
      Drawn evaluator(truths, 1);
      search(ids_of(truths), evaluator,
             {.strategy = strategy, .seed = seed, .max_evaluations = 12, .sampling = {}});
      orders.insert(evaluator.order);
    }
    EXPECT_EQ(orders.size(), strategy == Strategy::exhaustive ? 1U : 2U) << name_of(strategy);
  }
}

TEST(Strategy, KeepsItsLimits) {
  const std::map<std::string, Truth> truths = ladder_of_24();
  for (const Strategy strategy : strategies) {
    Drawn few(truths, 1);
    const Outcome of_few =
        search(ids_of(truths), few, {.strategy = strategy, .max_evaluations = 5, .sampling = {}});
    EXPECT_EQ(few.order.size(), 5U) << name_of(strategy);
    EXPECT_EQ(of_few.evaluated, 5U);
    EXPECT_EQ(of_few.candidates, 24U);
    EXPECT_EQ(of_few.ended_by, Limit::evaluations);
    EXPECT_EQ(1 + of_few.tied.size() + of_few.slower.size(), 5U);
    EXPECT_GT(of_few.fully, 0U) << name_of(strategy);

    Drawn brief(truths, 1);
    const Outcome of_brief =
        search(ids_of(truths), brief, {.strategy = strategy, .time_limit_s = 1, .sampling = {}});
    EXPECT_EQ(of_brief.ended_by, Limit::time) << name_of(strategy);
    EXPECT_GE(brief.spent_s(), 1);
    // What was begun is finished: one answer at most, of the first samples and the set-up.
    EXPECT_LT(brief.spent_s(), 1 + 0.1 + 100 * Drawn::sample_cost_s);
    EXPECT_LT(of_brief.evaluated, 24U);
    EXPECT_FALSE(of_brief.winner.empty());
    EXPECT_TRUE(brief.met.empty());

    Drawn none(truths, 1);
    EXPECT_EQ(
        search(ids_of(truths), none, {.strategy = strategy, .time_limit_s = 0, .sampling = {}})
            .winner,
        "");
    EXPECT_TRUE(none.order.empty());
  }
}

TEST(Strategy, WhatFailsIsListedAndNeverWins) {
  std::map<std::string, Truth> truths = ladder_of_24();
  truths["a:stages=1:width=1"] = {.time_s = 1e-5, .status = Status::incorrect};
  truths["b:stages=2:width=3"].status = Status::failed;  // the fastest
  truths["c:stages=2:width=4"].status = Status::skipped;
  for (const Strategy strategy : strategies) {
    Drawn evaluator(truths, 1);
    const Outcome outcome =
        search(ids_of(truths), evaluator, {.strategy = strategy, .sampling = {}});
    EXPECT_NEAR(truths[outcome.winner].time_s, 1.04e-3, 1e-6) << outcome.winner;
    ASSERT_EQ(outcome.out.size(), 3U);
    EXPECT_EQ(outcome.out[0].candidate, "a:stages=1:width=1");
    EXPECT_EQ(outcome.out[0].status, Status::incorrect);
    EXPECT_EQ(outcome.out[0].reason, "as planned");
    EXPECT_EQ(outcome.slower.size() + outcome.tied.size(), 20U);
  }
  for (auto& [id, truth] : truths) truth.status = Status::failed;
  Drawn evaluator(truths, 1);
  const Outcome outcome = search(ids_of(truths), evaluator, {.sampling = {}});
  EXPECT_EQ(outcome.winner, "");
  EXPECT_EQ(outcome.out.size(), 24U);
}

// Samples in which "b" looks 0.5 % slower, as by drift, within a noise that leaves it open; in
// pairs it is 3 % faster. "c" is slower in both.
TEST(Strategy, TheShootOutDecidesWhatSamplesCannot) {
  const std::map<std::string, Truth> truths = {
      {"a", {.time_s = 1.00e-3, .noise = 0.03}},
      {"b", {.time_s = 0.97e-3, .noise = 0.03, .bias = 0.035}},
      {"c", {.time_s = 1.02e-3, .noise = 0.03}}};
  Drawn evaluator(truths, 1);
  const Sampling brief = {.timeout_s = 0.3};  // 30 samples
  const Outcome outcome =
      search(ids_of(truths), evaluator, {.strategy = Strategy::exhaustive, .sampling = brief});
  EXPECT_EQ(outcome.winner, "b");
  ASSERT_EQ(names_of(outcome.slower), (std::vector<std::string>{"a", "c"}));
  EXPECT_NEAR(outcome.slower[0].ratio, 1 / 0.97, 0.01);
  EXPECT_TRUE(outcome.slower[0].paired && outcome.slower[1].paired);
  EXPECT_TRUE(evaluator.met.contains({"b", "c"}));  // the rest met the new winner
}

TEST(Strategy, AWinnerThatDiesInTheShootOutIsOut) {
  const std::map<std::string, Truth> truths = {
      {"a", {.time_s = 1e-3, .noise = 0.03, .dies_in_pairs = true}},
      {"b", {.time_s = 1.002e-3, .noise = 0.03}},
      {"c", {.time_s = 1.001e-3, .noise = 0.03}}};
  Drawn evaluator(truths, 2);
  const Outcome outcome =
      search(ids_of(truths), evaluator,
             {.strategy = Strategy::exhaustive, .sampling = {.timeout_s = 0.3}});
  EXPECT_TRUE(outcome.winner == "b" || outcome.winner == "c") << outcome.winner;
  EXPECT_EQ(outcome.tied.size(), 1U);
  ASSERT_EQ(outcome.out.size(), 1U);
  EXPECT_EQ(outcome.out[0].candidate, "a");
  EXPECT_EQ(outcome.out[0].reason, "died");
}

// The fastest by its samples, which are told apart from nobody's: it is the first to be paired with
// itself.
TEST(Strategy, AWinnerThatDiesBesideItselfIsOutAndTheNextShowsTheNoise) {
  const std::map<std::string, Truth> truths = {
      {"a", {.time_s = 0.99e-3, .noise = 0.03, .dies_beside_itself = true}},
      {"b", {.time_s = 1.002e-3, .noise = 0.03}},
      {"c", {.time_s = 1.001e-3, .noise = 0.03}}};
  Drawn evaluator(truths, 2);
  const Outcome outcome =
      search(ids_of(truths), evaluator,
             {.strategy = Strategy::exhaustive, .sampling = {.timeout_s = 0.3}});
  EXPECT_TRUE(outcome.winner == "b" || outcome.winner == "c") << outcome.winner;
  ASSERT_EQ(outcome.out.size(), 1U);
  EXPECT_EQ(outcome.out[0].candidate, "a");
  EXPECT_EQ(outcome.out[0].reason, "died");
  ASSERT_TRUE(evaluator.met.contains({"a", "a"}));
  EXPECT_TRUE(evaluator.met.contains({"b", "b"}) || evaluator.met.contains({"c", "c"}));
  EXPECT_FALSE(evaluator.met.contains({"a", "b"}) || evaluator.met.contains({"a", "c"}));
  ASSERT_EQ(outcome.tied.size(), 1U);
  EXPECT_TRUE(outcome.tied[0].paired);
}

// Samples decide where pairs cannot be had: of a rival, or of the winner with itself.
TEST(Strategy, WhoFindsNoRoomForPairsIsPlacedByItsSamples) {
  for (const char* large : {"a", "b"}) {
    std::map<std::string, Truth> truths = {{"a", {.time_s = 1.00e-3, .noise = 0.03}},
                                           {"b", {.time_s = 1.02e-3, .noise = 0.03}}};
    truths[large].fills_the_device = true;
    Drawn evaluator(truths, 1);
    const Outcome outcome =
        search(ids_of(truths), evaluator,
               {.strategy = Strategy::exhaustive, .sampling = {.timeout_s = 0.3}});
    EXPECT_EQ(outcome.winner, "a");
    EXPECT_EQ(evaluator.met.contains({"a", "b"}), std::string(large) == "b");
    std::vector<Rival> rivals = outcome.tied;
    rivals.insert(rivals.end(), outcome.slower.begin(), outcome.slower.end());
    ASSERT_EQ(rivals.size(), 1U);
    EXPECT_FALSE(rivals[0].paired);
    EXPECT_NEAR(rivals[0].ratio, 1.02, 0.02);
    EXPECT_TRUE(rivals[0].interval);
    EXPECT_TRUE(outcome.out.empty());
  }
}

// Every two differ in two knobs.
TEST(Strategy, AnnealingStartsAgainWhereThereIsNoNeighbour) {
  const std::map<std::string, Truth> truths = {{"a:stages=1:width=1", {.time_s = 3e-3}},
                                               {"a:stages=2:width=2", {.time_s = 1e-3}},
                                               {"a:stages=3:width=3", {.time_s = 2e-3}}};
  Drawn evaluator(truths, 1);
  const Outcome outcome =
      search(ids_of(truths), evaluator, {.strategy = Strategy::annealing, .sampling = {}});
  EXPECT_EQ(outcome.winner, "a:stages=2:width=2");
  EXPECT_EQ(outcome.evaluated, 3U);
}

TEST(Strategy, NeighboursDifferInOneKnobOrInTheVariant) {
  EXPECT_TRUE(are_neighbours("a:stages=1:width=1", "a:stages=1:width=2"));
  EXPECT_FALSE(are_neighbours("a:stages=1:width=1", "a:stages=2:width=2"));
  EXPECT_FALSE(are_neighbours("a:stages=1:width=1", "a:stages=1:width=1"));
  EXPECT_TRUE(are_neighbours("a:stages=1:width=1", "b:stages=1:width=1"));
  EXPECT_FALSE(are_neighbours("a:stages=1", "b:stages=2"));
  EXPECT_TRUE(are_neighbours("a:stages=1", "b:stages=1:width=4"));
  EXPECT_TRUE(are_neighbours("a", "b:stages=2"));
}

TEST(Strategy, NamesAreUnderstood) {
  EXPECT_EQ(strategy_named("annealing"), Strategy::annealing);
  EXPECT_THROW(strategy_named("raceing"), UserError);
}

}  // namespace
}  // namespace gdn
