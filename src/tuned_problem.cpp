#include "src/tuned_problem.hpp"

#include "src/variant_select.hpp"

namespace gdn {
namespace {

// Of an instance that this build may not have any more (a replay): then they are in its id alone.
std::vector<Knob> knobs_of(const std::string& id) {
  const std::optional<SelectedVariant> selected = instance_of(id);
  return selected ? selected->instance->knobs : std::vector<Knob>();
}

// Of what the choice was between.
std::vector<std::string> flags_of(const TunedProblem& tuned) {
  std::vector<std::string> best = {tuned.outcome.winner};
  for (const Rival& rival : tuned.outcome.tied) best.push_back(rival.candidate);
  std::vector<std::string> flags;
  for (const std::string& candidate : best)
    if (const auto known = tuned.evaluations.find(candidate); known != tuned.evaluations.end())
      add_flags(known->second.flags, flags);
  return flags;
}

}  // namespace

std::optional<WisdomEntry> wisdom_of(const TunedProblem& tuned, const nlohmann::json& fingerprint) {
  const Outcome& outcome = tuned.outcome;
  const std::size_t missing = tuned.replay ? tuned.replay->missing.size() : 0;
  if (outcome.winner.empty() || !outcome.time_s) return std::nullopt;
  WisdomEntry entry{
      .case_name = tuned.problem.c.name,
      .problem = tuned.problem.c.problem,
      .gates = tuned.problem.c.recipe.gates,
      .beta_max = tuned.problem.c.recipe.beta_max,
      .scope = tuned.problem.scope,
      .timing = tuned.problem.timing,
      .winner = {.variant = outcome.winner,
                 .knobs = knobs_of(outcome.winner),
                 .median_s = outcome.time_s->median,
                 .ci95 = outcome.time_s->ci95},
      .tied = {},
      .slower = {},
      .failed = {},
      .search = {.strategy = std::string(name_of(tuned.strategy)),
                 .seed = tuned.seed,
                 .candidates = static_cast<std::int64_t>(outcome.candidates + missing),
                 .evaluated = static_cast<std::int64_t>(outcome.evaluated),
                 .evaluated_fully = static_cast<std::int64_t>(outcome.fully),
                 .limited = outcome.ended_by != Limit::none || missing > 0,
                 .seconds = outcome.spent_s},
      .flags = flags_of(tuned),
      .tuned_at = tuned.measured_at.empty() ? utc_now() : tuned.measured_at,
      .fingerprint = fingerprint};
  for (const Rival& rival : outcome.tied)
    entry.tied.push_back({rival.candidate, knobs_of(rival.candidate), rival.ratio, rival.interval});
  for (const Rival& rival : outcome.slower) entry.slower.push_back({rival.candidate, rival.ratio});
  for (const Loser& loser : outcome.out) entry.failed.push_back({loser.candidate, loser.reason});
  return entry;
}

}  // namespace gdn
