#include "src/strategy.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

#include "src/error.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

constexpr double confidence = 0.95;
constexpr double hopeless_ratio = 1.05;  // no drift between two candidates explains that much

// What is known of a candidate. Ordered by time, those that are out come last.
struct Known {
  bool evaluated = false;
  bool fully = false;
  bool exhausted = false;  // no more samples can be had
  Status status = Status::passed;
  std::string reason;
  std::vector<double> samples_s;
  double median_s = std::numeric_limits<double>::infinity();
  double low_s = 0, high_s = std::numeric_limits<double>::infinity();  // 95 % of the median

  bool in_the_race() const { return evaluated && status == Status::passed && !samples_s.empty(); }
};

class Search {
 public:
  Search(const std::vector<std::string>& candidates, Evaluator& evaluator, const SearchPlan& plan)
      : ids_(candidates),
        evaluator_(evaluator),
        plan_(plan),
        known_(candidates.size()),
        begin_s_(evaluator.spent_s()),
        random_(plan.seed) {}

  Outcome run() {
    switch (plan_.strategy) {
      case Strategy::racing:
        race();
        break;
      case Strategy::exhaustive:
        sample_all_fully(in_order());
        break;
      case Strategy::random:
        sample_all_fully(shuffled());
        break;
      case Strategy::annealing:
        anneal();
        break;
    }
    return decide();
  }

 private:
  using Numbers = std::vector<std::size_t>;  // of candidates

  Numbers in_order() const {
    Numbers all(ids_.size());
    std::iota(all.begin(), all.end(), 0);
    return all;
  }

  Numbers shuffled() {
    Numbers all = in_order();
    std::ranges::shuffle(all, random_);
    return all;
  }

  bool out_of_time() {
    if (evaluator_.spent_s() - begin_s_ < plan_.time_limit_s) return false;
    ended_by_ = Limit::time;
    return true;
  }

  // Sees to it that the candidate has so many samples, if they can be had. False where a limit is
  // in the way.
  bool sample(std::size_t c, std::size_t samples) {
    Known& known = known_[c];
    if (out_of_time()) return false;
    if (!known.evaluated && evaluated_ == plan_.max_evaluations) {
      ended_by_ = Limit::evaluations;
      return false;
    }
    evaluated_ += known.evaluated ? 0 : 1;
    learn(c, evaluator_.evaluate(ids_[c], samples));
    known.exhausted = known.samples_s.size() < samples;
    return true;
  }

  void learn(std::size_t c, const Evaluation& evaluation) {
    Known& known = known_[c];
    known.evaluated = true;
    known.status = evaluation.status;
    known.reason = evaluation.reason;
    known.samples_s = evaluation.samples_s;
    if (!known.in_the_race()) return;
    known.median_s = median(known.samples_s);
    const std::optional<Interval> interval = median_interval(known.samples_s);
    if (interval) std::tie(known.low_s, known.high_s) = *interval;
    const bool narrow = interval && (known.high_s - known.low_s) * 100 <=
                                        plan_.sampling.max_noise_percent * known.median_s;
    const std::size_t n = known.samples_s.size();
    known.fully = (narrow && n >= fewest_samples()) || n >= most_samples ||
                  evaluation.sampling_s >= plan_.sampling.timeout_s;
  }

  std::size_t fewest_samples() const {
    return static_cast<std::size_t>(std::max(plan_.sampling.min_samples, 1));
  }

  // As sample(), unless the candidate has enough or is out.
  bool sample_more(std::size_t c, std::size_t samples) {
    const Known& known = known_[c];
    const bool done =
        known.evaluated && (known.fully || known.exhausted || known.samples_s.size() >= samples);
    return done || sample(c, samples);
  }

  bool sample_fully(std::size_t c) {
    const Known& known = known_[c];
    if (!sample_more(c, fewest_samples())) return false;
    while (known.in_the_race() && !known.fully && !known.exhausted) {
      const std::size_t so_far = known.samples_s.size();
      if (!sample_more(c, std::min(so_far + so_far / 2 + 1, most_samples))) return false;
    }
    return true;
  }

  void sample_all_fully(const Numbers& order) {
    for (const std::size_t c : order)
      if (!sample_fully(c)) return;
  }

  // The candidates that are in the race, fastest first.
  Numbers ranked(Numbers numbers) const {
    std::erase_if(numbers, [&](std::size_t c) { return !known_[c].in_the_race(); });
    std::ranges::stable_sort(numbers, {}, [&](std::size_t c) { return known_[c].median_s; });
    return numbers;
  }

  // Up to where the interval of another one may begin that is as good, but for a difference that
  // does not matter: samples of two are taken at two times, between which a machine drifts.
  double as_good_as(std::size_t best) const {
    return known_[best].high_s * (1 + plan_.pairs.difference_percent / 100);
  }

  // In an order drawn by the seed, so that chance decides whom a limit leaves out.
  void race() {
    Numbers alive = shuffled();
    for (std::size_t samples = first_samples;; samples *= 2) {
      for (const std::size_t c : alive)
        if (!sample_more(c, samples) && ended_by_ == Limit::time) return;
      alive = ranked(alive);  // without those that --max-evals leaves out
      const bool done = std::ranges::all_of(
          alive, [&](std::size_t c) { return known_[c].fully || known_[c].exhausted; });
      if (alive.size() <= most_finalists || done) break;
      const double hopeless_s = hopeless_ratio * known_[alive[0]].high_s;
      std::erase_if(alive, [&](std::size_t c) { return known_[c].low_s > hopeless_s; });
      if (alive.size() <= most_finalists) break;
      const std::size_t half = std::max((alive.size() + 1) / 2, most_finalists);
      const double last_s = std::max(known_[alive[half - 1]].high_s, as_good_as(alive[0]));
      const auto told_apart = [&](std::size_t c) { return known_[c].low_s > last_s; };
      alive.erase(std::remove_if(alive.begin() + static_cast<std::ptrdiff_t>(half), alive.end(),
                                 told_apart),
                  alive.end());
    }
    sample_all_fully(alive);
  }

  void anneal() {
    constexpr double hot = 0.2, cold = 0.005;
    const double budget = static_cast<double>(std::min(plan_.max_evaluations, ids_.size()));
    std::size_t at = 0;
    std::size_t visits = 0;  // in a row, to what is known already
    while (evaluated_ < ids_.size()) {
      Numbers choice = in_order();
      std::erase_if(choice, [&](std::size_t c) { return !are_neighbours(ids_[at], ids_[c]); });
      const bool starts = evaluated_ == 0 || choice.empty() || visits > choice.size();
      if (starts) choice = unknown();
      const std::size_t next = any_of(choice);
      visits = known_[next].evaluated ? visits + 1 : 0;
      if (!sample_fully(next)) return;
      const double cooled = std::min(static_cast<double>(evaluated_) / budget, 1.0);
      const double temperature = hot * std::pow(cold / hot, cooled);
      // Who is out takes infinitely long, and anyone is better than that.
      const double rise = std::log(known_[next].median_s) - std::log(known_[at].median_s);
      if (starts || !(rise > 0) || chance() < std::exp(-rise / temperature)) at = next;
    }
  }

  Numbers unknown() const {
    Numbers numbers = in_order();
    std::erase_if(numbers, [&](std::size_t c) { return known_[c].evaluated; });
    return numbers;
  }

  double chance() { return std::uniform_real_distribution<double>()(random_); }

  std::size_t any_of(const Numbers& numbers) {
    return numbers[std::uniform_int_distribution<std::size_t>(0, numbers.size() - 1)(random_)];
  }

  struct Met {
    std::size_t rival;
    PairedRatio ratio;
    Verdict verdict;
  };

  // Of the second against the first. None where one of the two fails, which is then known, or where
  // there is no room for both side by side.
  Pairs pairs_of(std::size_t a, std::size_t b, double noise_floor) {
    Pairs pairs = evaluator_.pair(ids_[a], ids_[b], plan_.pairs, noise_floor);
    if (!pairs.a_s.empty()) return pairs;
    for (const std::size_t c : {a, b}) {
      const Evaluation& evaluation = evaluator_.evaluate(ids_[c], 0);
      if (evaluation.status != Status::passed) learn(c, evaluation);
    }
    return pairs;
  }

  // A finalist and the winner so far.
  std::optional<Met> meet(std::size_t winner, std::size_t rival, double noise_floor) {
    const Pairs pairs = pairs_of(winner, rival, noise_floor);
    if (pairs.a_s.empty()) return std::nullopt;
    const PairedRatio ratio = paired_ratio(pairs, plan_.pairs);
    return Met{rival, ratio, verdict_of(ratio, plan_.pairs, noise_floor)};
  }

  // Of the first finalist that does not fail beside itself; those before it are dropped.
  std::optional<double> noise_floor(Numbers& finalists) {
    while (finalists.size() > 1 && !out_of_time()) {
      const Pairs pairs = pairs_of(finalists[0], finalists[0], 0);
      if (!pairs.a_s.empty()) return noise_floor_of(paired_ratio(pairs, plan_.pairs));
      if (known_[finalists[0]].in_the_race()) return std::nullopt;
      finalists = still_in(finalists);
    }
    return std::nullopt;
  }

  // The meetings of the winner, who is the first of `finalists` afterwards. A former winner does
  // not win again: whatever it shows then is noise. Nobody meets where the noise is not known.
  std::vector<Met> shoot_out(Numbers& finalists) {
    std::vector<Met> met;
    const std::optional<double> floor = noise_floor(finalists);
    if (!floor) return met;
    std::set<std::size_t> former;
    for (std::size_t next = 1; next < finalists.size() && !out_of_time();) {
      const std::size_t winner = finalists[0], rival = finalists[next];
      const std::optional<Met> meeting = meet(winner, rival, *floor);
      const bool falls = !known_[winner].in_the_race();
      const bool is_beaten =
          meeting && meeting->verdict == Verdict::faster && !former.contains(rival);
      if (falls || is_beaten) {
        former.insert(winner);
        const auto at = finalists.begin() + static_cast<std::ptrdiff_t>(next);
        if (is_beaten) std::rotate(finalists.begin(), at, at + 1);
        finalists = still_in(finalists);
        met.clear();
        next = 1;
      } else {
        if (meeting) met.push_back(*meeting);
        ++next;
      }
    }
    finalists = still_in(finalists);
    return met;
  }

  Numbers still_in(Numbers numbers) const {
    std::erase_if(numbers, [&](std::size_t c) { return !known_[c].in_the_race(); });
    return numbers;
  }

  // The fastest, and those that may be as good.
  Numbers finalists() const {
    Numbers numbers = ranked(in_order());
    if (numbers.empty()) return numbers;
    const double best_s = as_good_as(numbers[0]);
    std::erase_if(numbers, [&](std::size_t c) { return known_[c].low_s > best_s; });
    numbers.resize(std::min(numbers.size(), most_finalists));
    return numbers;
  }

  Outcome decide() {
    Numbers best = finalists();
    std::vector<Met> met = shoot_out(best);
    // Where all finalists fell in the shoot-out, the next ones take their places.
    while (best.empty() && !(best = finalists()).empty()) met = shoot_out(best);
    Outcome outcome;
    if (!best.empty()) {
      outcome.winner = ids_[best[0]];
      outcome.time_s = summarize(known_[best[0]].samples_s);
      place_rivals(best[0], met, outcome);
    }
    outcome.candidates = ids_.size();
    outcome.evaluated = evaluated_;
    for (std::size_t c = 0; c < ids_.size(); ++c) {
      const Known& known = known_[c];
      outcome.fully += known.in_the_race() && known.fully ? 1 : 0;
      outcome.samples += known.samples_s.size();
      if (known.evaluated && !known.in_the_race())
        outcome.out.push_back({ids_[c], known.status, known.reason});
    }
    outcome.ended_by = ended_by_;
    outcome.spent_s = evaluator_.spent_s() - begin_s_;
    return outcome;
  }

  void place_rivals(std::size_t winner, const std::vector<Met>& met, Outcome& outcome) const {
    const std::vector<double> of_winner = thin(known_[winner].samples_s, kept_samples);
    for (const std::size_t c : ranked(in_order())) {
      if (c == winner) continue;
      const auto pairs = std::ranges::find(met, c, &Met::rival);
      if (pairs != met.end()) {
        const Rival rival = {ids_[c], pairs->ratio.value, pairs->ratio.interval, true};
        (pairs->verdict == Verdict::slower ? outcome.slower : outcome.tied).push_back(rival);
        continue;
      }
      const Ratio ratio =
          ratio_of_medians(of_winner, thin(known_[c].samples_s, kept_samples), confidence);
      const bool is_slower =
          ratio.interval && ratio.interval->first > 1 + plan_.pairs.difference_percent / 200;
      (is_slower ? outcome.slower : outcome.tied)
          .push_back({ids_[c], ratio.value, ratio.interval, false});
    }
    std::ranges::stable_sort(outcome.tied, {}, &Rival::ratio);
    std::ranges::stable_sort(outcome.slower, {}, &Rival::ratio);
  }

  const std::vector<std::string>& ids_;
  Evaluator& evaluator_;
  const SearchPlan& plan_;
  std::vector<Known> known_;
  std::size_t evaluated_ = 0;
  Limit ended_by_ = Limit::none;
  double begin_s_;
  std::mt19937_64 random_;
};

std::vector<std::string> parts_of(const std::string& id) {
  std::vector<std::string> parts;
  for (std::size_t at = 0, colon = 0; colon != std::string::npos; at = colon + 1) {
    colon = id.find(':', at);
    parts.push_back(id.substr(at, colon - at));
  }
  return parts;
}

}  // namespace

std::string_view name_of(Strategy strategy) {
  constexpr std::array<std::string_view, 4> names = {"racing", "exhaustive", "random", "annealing"};
  return names[static_cast<std::size_t>(strategy)];
}

Strategy strategy_named(const std::string& name) {
  std::vector<std::string> known;
  for (const Strategy strategy : strategies) {
    if (name_of(strategy) == name) return strategy;
    known.emplace_back(name_of(strategy));
  }
  throw UserError(fmt::format("--strategy {} is none{}; one of {}", excerpt(name),
                              did_you_mean(name, known), fmt::join(known, ", ")));
}

std::string_view name_of(Limit limit) {
  constexpr std::array<std::string_view, 3> names = {"", "max-evals", "time-limit"};
  return names[static_cast<std::size_t>(limit)];
}

Outcome search(const std::vector<std::string>& candidates, Evaluator& evaluator,
               const SearchPlan& plan) {
  return Search(candidates, evaluator, plan).run();
}

bool are_neighbours(const std::string& a, const std::string& b) {
  const std::vector<std::string> of_a = parts_of(a), of_b = parts_of(b);
  int differing = 0;
  for (std::size_t i = 1; i < of_a.size(); ++i)
    for (std::size_t j = 1; j < of_b.size(); ++j) {
      const std::string knob = of_a[i].substr(0, of_a[i].find('=') + 1);
      if (of_b[j].starts_with(knob) && of_a[i] != of_b[j]) ++differing;
    }
  return of_a[0] == of_b[0] ? differing == 1 : differing == 0;
}

}  // namespace gdn
