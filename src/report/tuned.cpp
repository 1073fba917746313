#include "src/report/tuned.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "src/report/json_field.hpp"
#include "src/report/render.hpp"
#include "src/report/text.hpp"
#include "src/statistics.hpp"

namespace gdn {
namespace {

const std::string none = "—";

std::string ratio_of(const Rival& rival) { return significant(rival.ratio, 4) + "×"; }

std::string interval_of(const Rival& rival) {
  if (!rival.interval) return none;
  return fmt::format("{} … {}", significant(rival.interval->first, 4),
                     significant(rival.interval->second, 4));
}

class Lines {
 public:
  explicit Lines(const TunedProblem& tuned) : tuned_(tuned) {}

  void winner() {
    const Outcome& outcome = tuned_.outcome;
    if (outcome.winner.empty()) return;
    add(outcome.winner, "1×", none, "winner", Tone::good);
  }

  void rivals(const std::vector<Rival>& rivals, const char* verdict) {
    for (const Rival& rival : rivals)
      add(rival.candidate, ratio_of(rival), interval_of(rival),
          fmt::format("{}{}", verdict, rival.paired ? ", in pairs" : ""), Tone::plain);
  }

  void losers() {
    for (const Loser& loser : tuned_.outcome.out)
      lines_.push_back({{printable(loser.candidate), none, none, none, none, none,
                         fmt::format("{}: {}", name_of(loser.status), printable(loser.reason))},
                        loser.status == Status::skipped ? Tone::plain : Tone::bad});
  }

  std::vector<Line> take() { return std::move(lines_); }

 private:
  void add(const std::string& candidate, const std::string& ratio, const std::string& interval,
           const std::string& verdict, Tone tone) {
    const std::vector<double>& samples = tuned_.evaluations.at(candidate).samples_s;
    const TimeSummary time = summarize(samples);
    const double reach =
        time.ci95 ? std::max(time.median - time.ci95->first, time.ci95->second - time.median) : 0;
    lines_.push_back({{printable(candidate), format_time(time.median),
                       time.ci95 ? "±" + percent(reach / time.median) : none,
                       std::to_string(samples.size()), ratio, interval, verdict},
                      tone});
  }

  const TunedProblem& tuned_;
  std::vector<Line> lines_;
};

std::string completeness(const TunedProblem& tuned) {
  const Outcome& outcome = tuned.outcome;
  const std::string limit = outcome.ended_by == Limit::none
                                ? ""
                                : fmt::format("; ended by --{}", name_of(outcome.ended_by));
  return fmt::format("{}: {} of {} candidates evaluated, {} fully; {} samples, {} s{}",
                     name_of(tuned.strategy), outcome.evaluated, outcome.candidates, outcome.fully,
                     outcome.samples, significant(outcome.spent_s, 3), limit);
}

std::vector<std::string> notes_of(const TunedProblem& tuned) {
  std::vector<std::string> notes = {completeness(tuned)};
  if (!tuned.replay) return notes;
  const ReplayNotes& replay = *tuned.replay;
  notes.push_back(fmt::format(
      "an exhaustive search of this record takes {} s, this one {}; regret {}",
      significant(replay.exhaustive_s, 3),
      replay.exhaustive_s > 0 ? percent(tuned.outcome.spent_s / replay.exhaustive_s) : none,
      replay.regret ? percent(*replay.regret) : none));
  if (!replay.missing.empty())
    notes.push_back(fmt::format("missing from the record: {}", fmt::join(replay.missing, ", ")));
  return notes;
}

Json json_of(const std::vector<Rival>& rivals) {
  Json all = Json::array();
  for (const Rival& rival : rivals)
    all.push_back({{"candidate", rival.candidate},
                   {"ratio", rival.ratio},
                   {"interval",
                    rival.interval ? Json{rival.interval->first, rival.interval->second} : Json()},
                   {"paired", rival.paired}});
  return all;
}

Json json_of(const TunedProblem& tuned) {
  const Outcome& outcome = tuned.outcome;
  Json out = Json::array();
  for (const Loser& loser : outcome.out)
    out.push_back({{"candidate", loser.candidate},
                   {"status", name_of(loser.status)},
                   {"reason", loser.reason}});
  Json json = {{"problem", to_json(tuned.problem)},
               {"winner", outcome.winner.empty() ? Json() : Json(outcome.winner)},
               {"time_s", Json()},
               {"tied", json_of(outcome.tied)},
               {"slower", json_of(outcome.slower)},
               {"out", out},
               {"strategy", name_of(tuned.strategy)},
               {"seed", tuned.seed},
               {"candidates", outcome.candidates},
               {"evaluated", outcome.evaluated},
               {"fully", outcome.fully},
               {"ended_by", name_of(outcome.ended_by)},
               {"samples", outcome.samples},
               {"spent_s", outcome.spent_s}};
  if (const std::optional<TimeSummary>& time = outcome.time_s)
    json["time_s"] = {{"median", time->median},
                      {"min", time->min},
                      {"ci95", time->ci95 ? Json{time->ci95->first, time->ci95->second} : Json()}};
  if (tuned.replay)
    json["replay"] = {{"exhaustive_s", tuned.replay->exhaustive_s},
                      {"regret", tuned.replay->regret ? Json(*tuned.replay->regret) : Json()},
                      {"missing", tuned.replay->missing}};
  return json;
}

// "wide:stages=1" in this problem: {"variant": "wide", "stages": "1", "case": …}.
Json configuration(const TuningProblem& problem, const std::string& candidate) {
  Json json = {{"case", problem.c.name},
               {"scope", name_of(problem.scope)},
               {"timing", name_of(problem.timing)},
               {"variant", candidate.substr(0, candidate.find(':'))}};
  for (std::size_t colon = candidate.find(':'); colon != std::string::npos;) {
    const std::size_t end = candidate.find(':', colon + 1);
    const std::string knob = candidate.substr(colon + 1, end - colon - 1);
    json[knob.substr(0, knob.find('='))] = knob.substr(knob.find('=') + 1);
    colon = end;
  }
  return json;
}

const char* invalidity(Status status) {
  switch (status) {
    case Status::passed:
      return "correct";
    case Status::incorrect:
      return "correctness";
    case Status::skipped:
      return "constraints";
    case Status::failed:
      break;
  }
  return "runtime";
}

}  // namespace

Table table(const TunedProblem& tuned) {
  Lines lines(tuned);
  lines.winner();
  lines.rivals(tuned.outcome.tied, "tied");
  lines.rivals(tuned.outcome.slower, "slower");
  lines.losers();
  return {.title = printable(tuned.problem.c.name),
          .subtitle =
              fmt::format("{}, {}", name_of(tuned.problem.scope), name_of(tuned.problem.timing)),
          .columns = {{"candidate"},
                      {"median", true},
                      {"±", true},
                      {"samples", true},
                      {"ratio", true},
                      {"interval", true},
                      {"verdict"}},
          .groups = {{"", lines.take()}},
          .notes = notes_of(tuned)};
}

std::string json(const Json& fingerprint, const Json& options,
                 const std::vector<TunedProblem>& tuned) {
  Json problems = Json::array();
  for (const TunedProblem& one : tuned) problems.push_back(json_of(one));
  const Json whole = {{"schema", tune_schema},
                      {"fingerprint", fingerprint},
                      {"options", options},
                      {"problems", problems}};
  return whole.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

std::string t4(const std::vector<TunedProblem>& tuned, const std::string& written) {
  Json results = Json::array();
  for (const TunedProblem& one : tuned)
    for (const auto& [candidate, evaluation] : one.evaluations) {
      const bool timed = !evaluation.samples_s.empty() && evaluation.status == Status::passed;
      Json measurements = Json::array();
      if (timed)
        measurements.push_back(
            {{"name", "time"}, {"value", median(evaluation.samples_s)}, {"unit", "s"}});
      results.push_back({{"timestamp", written},
                         {"configuration", configuration(one.problem, candidate)},
                         {"objectives", {"time"}},
                         {"times",
                          {{"compilation_time", 0},  // every instance was compiled beforehand
                           {"benchmark", evaluation.sampling_s},
                           {"validation", evaluation.setup_s},
                           {"framework", 0},
                           {"search_algorithm", 0},
                           {"runtimes", evaluation.samples_s}}},
                         {"invalidity", invalidity(evaluation.status)},
                         {"correctness", evaluation.status == Status::passed ? 1 : 0},
                         {"measurements", measurements}});
    }
  const Json whole = {{"schema_version", "1.0.0"},
                      {"metadata", {{"tool", "gdnbench"}, {"unit_of_times", "s"}}},
                      {"results", results}};
  return whole.dump(1, ' ', false, Json::error_handler_t::replace) + '\n';
}

}  // namespace gdn
