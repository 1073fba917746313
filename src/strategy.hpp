// How the fastest of the candidates of one problem is looked for, and what is known in the end.
//
//   racing      Everyone gets a few samples; the better half, and whoever cannot be told from the
//               last of it, gets twice as many, and so on until 4 are left, which are sampled
//               fully.
//   exhaustive  Everyone fully, in the order of the ladder.
//   random      The same in an order drawn by the seed: for --max-evals.
//   annealing   From one to a neighbour: by one knob of the same variant, or to another variant
//               with the same knobs. A slower one is accepted by Metropolis on the logarithm of the
//               times, at a temperature that falls from 20 to 0.5 per cent. Where it meets nobody
//               new any more it starts again from someone new.
//
// Each ends with a shoot-out: the fastest by its samples meets the others whose 95 % intervals
// overlap its own, 3 at most, in interleaved pairs. One that is faster takes its place and meets
// the rest again.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/evaluator.hpp"
#include "src/timer.hpp"

namespace gdn {

enum class Strategy { racing, exhaustive, random, annealing };
inline constexpr std::array strategies = {Strategy::racing, Strategy::exhaustive, Strategy::random,
                                          Strategy::annealing};
std::string_view name_of(Strategy strategy);
Strategy strategy_named(const std::string& name);  // throws UserError with a suggestion

inline constexpr std::size_t first_samples =
    6;  // of each candidate in a race: the fewest with an interval
inline constexpr std::size_t most_samples = 1000;  // of a candidate: it is fully sampled then
inline constexpr std::size_t most_finalists = 4;

struct SearchPlan {
  Strategy strategy = Strategy::racing;
  std::uint64_t seed = 1;
  std::size_t max_evaluations = std::numeric_limits<std::size_t>::max();  // candidates begun
  double time_limit_s = std::numeric_limits<double>::infinity();          // of Evaluator::spent_s()
  // A candidate is fully sampled when its interval is as narrow as this, its time is up, or it has
  // most_samples.
  Sampling sampling;
  PairPlan pairs;
};

// A candidate against the winner.
struct Rival {
  std::string candidate;
  double ratio = 1;                  // its time / the winner's
  std::optional<Interval> interval;  // 95 %
  bool paired = false;               // by pairs, not by the samples that each has
};

// A candidate that has no time: it can never win.
struct Loser {
  std::string candidate;
  Status status = Status::failed;
  std::string reason;
};

enum class Limit { none, evaluations, time };
std::string_view name_of(Limit limit);  // "", "max-evals", "time-limit"

struct Outcome {
  std::string winner;                 // "" where no candidate has passed
  std::optional<TimeSummary> time_s;  // of the winner, from its samples
  // Not told from the winner: in pairs same or inconclusive; without pairs, slower by less than
  // half of the difference that matters.
  std::vector<Rival> tied;    // fastest first
  std::vector<Rival> slower;  // fastest first
  std::vector<Loser> out;     // failed, incorrect, skipped
  // How complete the search was.
  std::size_t candidates = 0, evaluated = 0, fully = 0;
  Limit ended_by = Limit::none;
  std::size_t samples = 0;
  double spent_s = 0;
};

// Deterministic for a plan and the evaluator's answers. Candidates are ids, each once.
Outcome search(const std::vector<std::string>& candidates, Evaluator& evaluator,
               const SearchPlan& plan);

// Whether annealing may step from one candidate to the other.
bool are_neighbours(const std::string& a, const std::string& b);

}  // namespace gdn
