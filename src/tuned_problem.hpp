// What a search has found for one problem: shown, written to files, and kept as wisdom.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "src/strategy.hpp"
#include "src/tuning_record.hpp"
#include "src/wisdom.hpp"

namespace gdn {

// A search in a record, against an exhaustive one in the same record.
struct ReplayNotes {
  double exhaustive_s = 0;           // what that would have cost
  std::optional<double> regret;      // median of the winner / best median, of all samples, - 1
  std::vector<std::string> missing;  // candidates that the record does not have: never chosen
};

struct TunedProblem {
  TuningProblem problem;
  Outcome outcome;
  Strategy strategy = Strategy::racing;
  std::uint64_t seed = 1;
  std::map<std::string, Evaluation> evaluations;  // of each candidate that was evaluated
  std::optional<ReplayNotes> replay;
  std::string measured_at;  // UTC, of a replayed record; "": now
};

// The entry of the device's wisdom; none where no candidate has won. A search in a record that
// lacks candidates counts these, and as limited.
std::optional<WisdomEntry> wisdom_of(const TunedProblem& tuned, const nlohmann::json& fingerprint);

}  // namespace gdn
