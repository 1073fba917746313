// `gdnbench tune`: the fastest candidate for every problem, on a device or in a record.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <future>
#include <mutex>
#include <optional>

#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/file.hpp"
#include "src/fingerprint.hpp"
#include "src/interrupt.hpp"
#include "src/live_evaluator.hpp"
#include "src/profiler_commands.hpp"
#include "src/progress.hpp"
#include "src/report/json_text.hpp"
#include "src/report/render.hpp"
#include "src/report/tuned.hpp"
#include "src/run_record.hpp"
#include "src/search_space.hpp"
#include "src/streams.hpp"
#include "src/tuned.hpp"

namespace gdn {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::string>;

std::vector<Case> cases_of(const TuneOptions& options) {
  const CaseSelection& wanted = options.measured.cases;
  return select_cases(wanted.selectors, wanted.overrides, SIZE_MAX);
}

// Of all problems every shards-th, from number `shard` on.
std::vector<TuningProblem> problems_of(const TuneOptions& options, const std::vector<Case>& cases) {
  std::vector<TuningProblem> problems;
  std::size_t number = 0;
  for (const Case& c : cases)
    for (const Scope scope : options.measured.scopes)
      for (const Timing timing : options.measured.timings)
        if (number++ % options.shards == options.shard - 1) problems.push_back({c, scope, timing});
  if (problems.empty())
    throw UserError(fmt::format("--shard {}/{}: there are {} problems; give fewer shards",
                                options.shard, options.shards, number));
  return problems;
}

std::string title_of(const TuningProblem& problem) {
  return fmt::format("{} {} {}", problem.c.name, name_of(problem.scope), name_of(problem.timing));
}

// What the record keeps of what was asked for: --resume needs nothing else.
Json record_of(const TuneOptions& options, const std::vector<Case>& cases, const Ids& candidates) {
  Json json = record_of(options.measured, cases);
  json["space"] = recorded_path(options.space);
  json["candidates"] = candidates;
  json["strategy"] = name_of(options.strategy);
  json["search_seed"] = options.seed;
  json["max_evals"] = options.max_evals ? Json(*options.max_evals) : Json();
  json["time_limit_s"] = options.time_limit_s ? Json(*options.time_limit_s) : Json();
  json["shard"] = {options.shard, options.shards};
  json["devices"] = options.devices;
  return json;
}

TuneOptions recalled(const TuneOptions& given, const Json& record) {
  TuneOptions options = given;
  options.measured = recalled(given.measured, record);
  const Asked asked(given.measured.resume, record);
  asked.take("space", options.space);
  options.strategy = strategy_named(asked.get<std::string>("strategy"));
  asked.take("search_seed", options.seed);
  if (asked.has("max_evals")) options.max_evals = asked.get<std::size_t>("max_evals");
  if (asked.has("time_limit_s")) options.time_limit_s = asked.get<double>("time_limit_s");
  const auto shard = asked.get<std::array<int, 2>>("shard");
  options.shard = shard[0], options.shards = shard[1];
  asked.take("devices", options.devices);
  if (options.shard < 1 || options.shard > options.shards || options.devices.empty())
    throw UserError(fmt::format("{}:1: its shard or devices cannot have been asked for; start anew",
                                given.measured.resume));
  return options;
}

void require_outputs_of(const TuneOptions& options) {
  std::vector<NamedPath> inputs = {{"--space", options.space}, {"--replay", options.replay}};
  if (options.replay.empty())
    for (const auto& path : case_files(options.measured.cases.selectors))
      inputs.push_back({"--case", path});
  require_outputs(inputs, {{"--json", options.measured.json},
                           {"--t4", options.t4},
                           {"--output", options.output},
                           {"the record", options.measured.resume + options.record}});
}

// Two candidates are paired for two fifths of the time in which one is sampled: 2 s as a rule.
SearchPlan plan_of(const TuneOptions& options, double spent_s) {
  const double pairs_s = 0.4 * options.measured.worker.sampling.timeout_s;
  SearchPlan plan = {.strategy = options.strategy,
                     .seed = options.seed,
                     .sampling = options.measured.worker.sampling,
                     .pairs = {.timeout_s = pairs_s, .seed = options.seed}};
  if (options.max_evals) plan.max_evaluations = *options.max_evals;
  if (options.time_limit_s) plan.time_limit_s = *options.time_limit_s - spent_s;
  return plan;
}

// Keeps what was answered, and shows it where there is a progress to be seen.
class Watched : public Evaluator {
 public:
  Watched(Evaluator& inner, SearchProgress* progress) : inner_(inner), progress_(progress) {}

  const Evaluation& evaluate(const std::string& candidate, std::size_t samples) override {
    if (progress_ != nullptr) progress_->doing(candidate);
    const Evaluation& now = inner_.evaluate(candidate, samples);
    const auto [seen, is_new] = evaluations_.try_emplace(candidate);
    const bool changed = is_new || seen->second.status != now.status ||
                         seen->second.samples_s.size() != now.samples_s.size();
    if (changed) seen->second = now;
    if (changed && progress_ != nullptr) show(candidate, now);
    return now;
  }

  Pairs pair(const std::string& a, const std::string& b, const PairPlan& plan,
             double noise_floor) override {
    const std::string what = fmt::format("{} against {}", b, a);
    if (progress_ != nullptr) progress_->doing(what);
    Pairs pairs = inner_.pair(a, b, plan, noise_floor);
    if (progress_ != nullptr) progress_->finished(what, fmt::format("{} pairs", pairs.a_s.size()));
    for (const std::string& candidate : {a, b})
      evaluations_[candidate].flags = inner_.evaluate(candidate, 0).flags;
    return pairs;
  }

  double spent_s() const override { return inner_.spent_s(); }

  std::map<std::string, Evaluation> take() { return std::move(evaluations_); }

 private:
  void show(const std::string& candidate, const Evaluation& now) {
    medians_s_.erase(candidate);
    std::string outcome = fmt::format("{}, {}", name_of(now.status), now.reason);
    if (now.status == Status::passed && !now.samples_s.empty()) {
      medians_s_[candidate] = median(now.samples_s);
      outcome =
          fmt::format("{} of {} samples", format_time(medians_s_[candidate]), now.samples_s.size());
    }
    const auto best =
        std::ranges::min_element(medians_s_, {}, [](const auto& m) { return m.second; });
    if (best != medians_s_.end())
      progress_->best(fmt::format("{} {}", best->first, format_time(best->second)));
    progress_->finished(candidate, outcome);
  }

  Evaluator& inner_;
  SearchProgress* progress_;
  std::map<std::string, Evaluation> evaluations_;
  std::map<std::string, double> medians_s_;
};

TunedProblem search_in(const TuningProblem& problem, const Ids& candidates, Evaluator& evaluator,
                       const SearchPlan& plan, SearchProgress* progress = nullptr) {
  Watched watched(evaluator, progress);
  TunedProblem tuned = {.problem = problem,
                        .outcome = search(candidates, watched, plan),
                        .strategy = plan.strategy,
                        .seed = plan.seed,
                        .evaluations = {},
                        .replay = {},
                        .measured_at = {}};
  tuned.evaluations = watched.take();
  return tuned;
}

// The tables go to standard output unless a file format was asked for there.
std::FILE* tables_of(const TuneOptions& options) {
  const std::vector<std::string> outputs = {options.measured.json, options.t4};
  return std::ranges::any_of(outputs, is_standard_output) ? stderr : stdout;
}

void show(const TunedProblem& tuned, std::FILE* tables) {
  print(tables, console(tuned, in_colour(tables)) + "\n");
}

// What of the cases asked for selects this one again, or, of a record that was merged, of the
// folder. None for a replay whose case files are not here.
std::optional<std::string> selector_again(const CaseSelection& asked, const std::string& name) {
  Ids selectors = asked.selectors;
  selectors.emplace_back("*");
  for (const std::string& selector : selectors) {
    try {
      if (auto found = selector_of(name, selector, asked.overrides)) return found;
    } catch (const UserError&) {  // another may select it
    }
  }
  return std::nullopt;
}

// The words that select the case of a problem again; none where nothing does.
Ids selection_of(const TuneOptions& options, const TuningProblem& problem) {
  const CaseSelection& asked = options.measured.cases;
  const std::optional<std::string> selector = selector_again(asked, problem.c.name);
  if (!selector) return {};
  Ids words = {"--case", *selector};
  for (const Override& o : asked.overrides) {
    words.emplace_back("--set");
    words.push_back(o.field + "=" + o.value);
  }
  return words;
}

std::string next_step(const TuneOptions& options, const std::vector<TunedProblem>& tuned) {
  const auto cut_short = std::ranges::count_if(
      tuned, [](const TunedProblem& one) { return one.outcome.ended_by != Limit::none; });
  if (cut_short > 0)
    return fmt::format("{} of {} searches ended by a limit: a larger one leaves less open",
                       cut_short, tuned.size());
  const auto won = std::ranges::find_if(
      tuned, [](const TunedProblem& one) { return !one.outcome.winner.empty(); });
  if (won == tuned.end())
    return "no candidate passed: `gdnbench run --dump DIR` shows what is wrong";
  const Ids selection = selection_of(options, won->problem);
  if (selection.empty())
    return fmt::format(
        "the file of case {} is missing or has changed; bring it back to run the winner",
        won->problem.c.name);
  Ids words = {"gdnbench", "run"};
  const auto add = [&](const Ids& more) { words.insert(words.end(), more.begin(), more.end()); };
  add(selection);
  if (const std::string& backend = options.measured.worker.backend.name; backend != "auto")
    add({"--backend", backend});
  add({"--variant", options.output.empty() ? won->outcome.winner : tuned_variant});
  if (!options.output.empty()) add({"--wisdom", options.output});
  add({"--scope", std::string(name_of(won->problem.scope)), "--timing",
       std::string(name_of(won->problem.timing))});
  return "next: " + shell_line(words);
}

Exit exit_of(const std::vector<TunedProblem>& tuned) {
  Exit exit = Exit::fine;
  for (const TunedProblem& one : tuned) {
    if (std::ranges::any_of(one.outcome.out,
                            [](const Loser& loser) { return loser.status != Status::skipped; }))
      return Exit::incorrect;
    if (one.outcome.winner.empty()) exit = Exit::inconclusive;
  }
  return exit;
}

// Before anything is measured: wisdom of another device, or what is none, cannot be added to.
void require_wisdom_of(const TuneOptions& options, const Json& fingerprint) {
  if (options.output.empty() || !std::filesystem::exists(options.output)) return;
  const std::string device = fingerprint.at("device").at("name");
  if (const std::string of_file = read_wisdom(options.output).device; of_file != device)
    throw UserError(
        fmt::format("--output {}: it is the wisdom of {}, this is {}; give another file",
                    options.output, of_file, device));
}

// At once, so that a kill costs the search that is under way and no more.
void keep(const TunedProblem& tuned, const TuneOptions& options, const Json& fingerprint) {
  if (options.output.empty()) return;
  const std::optional<WisdomEntry> entry = wisdom_of(tuned, fingerprint);
  if (!entry) return;
  for (const WisdomEntry& wider : add_to_wisdom_file(options.output, {*entry}))
    print(stderr,
          fmt::format("gdnbench: warning: {}: the entry of {} {} {} stays: its search evaluated {} "
                      "candidates, this one {}; give another --output to keep this one\n",
                      options.output, wider.case_name, name_of(wider.scope), name_of(wider.timing),
                      wider.search.evaluated, entry->search.evaluated));
}

int deliver_all(const TuneOptions& options, const Json& fingerprint, const Json& record,
                const std::vector<TunedProblem>& tuned, std::FILE* tables) {
  try_each({[&] { deliver(options.measured.json, json(fingerprint, record, tuned)); },
            [&] { deliver(options.t4, t4(tuned, utc_now())); }});
  print(tables, next_step(options, tuned) + "\n");
  return static_cast<int>(exit_of(tuned));
}

Target target_of(const BackendOptions& backend) {
  if (backend.name == "cpu") return Target::cpu;
  if (backend.name == "cuda") return Target::cuda;
  return make_backend(backend)->device().target;
}

// How many candidates a strategy samples fully, of those that it evaluates.
struct Effort {
  std::size_t evaluated, fully;
};

Effort effort_of(Strategy strategy, const TuneOptions& options, std::size_t candidates) {
  const std::size_t evaluated = std::min(options.max_evals.value_or(candidates), candidates);
  return {evaluated,
          strategy == Strategy::racing ? std::min(evaluated, most_finalists) : evaluated};
}

int dry_run(const TuneOptions& options, const std::vector<TuningProblem>& problems,
            const Ids& candidates) {
  std::string text =
      fmt::format("{} problem{}:\n", problems.size(), problems.size() == 1 ? "" : "s");
  for (const TuningProblem& problem : problems) text += fmt::format("  {}\n", title_of(problem));
  text += fmt::format("{} candidate{} each:\n  {}\n", candidates.size(),
                      candidates.size() == 1 ? "" : "s", fmt::join(candidates, "\n  "));
  // Set-up and check of a candidate take about this long; sampling takes --timeout at most.
  constexpr double setup_s = 1;
  const Sampling& sampling = options.measured.worker.sampling;
  for (const Strategy strategy : strategies) {
    const auto [evaluated, fully] = effort_of(strategy, options, candidates.size());
    const double problem_s =
        static_cast<double>(evaluated) * setup_s + static_cast<double>(fully) * sampling.timeout_s +
        static_cast<double>(std::min(fully, most_finalists)) * plan_of(options, 0).pairs.timeout_s;
    double seconds = problem_s * static_cast<double>(problems.size());
    seconds /= static_cast<double>(std::min(options.devices.size(), problems.size()));
    if (options.time_limit_s) seconds = std::min(seconds, *options.time_limit_s);
    text += fmt::format("{:<10}  {} evaluations a problem, {} of them full; about {:.0f} s{}\n",
                        name_of(strategy), evaluated, fully, seconds,
                        strategy == options.strategy ? "  (chosen)" : "");
  }
  print(stdout, text);
  return static_cast<int>(Exit::fine);
}

double seconds_of_exhaustive(const RecordedProblem& recorded, const Ids& candidates,
                             SearchPlan plan) {
  plan.strategy = Strategy::exhaustive;
  plan.max_evaluations = SearchPlan().max_evaluations;
  plan.time_limit_s = SearchPlan().time_limit_s;
  return search(candidates, *replay_evaluator(recorded), plan).spent_s;
}

// By all samples that the record has.
std::optional<double> regret_of(const RecordedProblem& recorded, const Ids& candidates,
                                const std::string& winner) {
  if (winner.empty()) return std::nullopt;
  const auto all = recorded.evaluations();
  double best_s = std::numeric_limits<double>::infinity();
  for (const std::string& candidate : candidates)
    if (const Evaluation& whole = all.at(candidate);
        whole.status == Status::passed && !whole.samples_s.empty())
      best_s = std::min(best_s, median(whole.samples_s));
  return median(all.at(winner).samples_s) / best_s - 1;
}

int replay(const TuneOptions& given) {
  const TuningRecord record = read_record(given.replay);
  if (record.problems.empty())
    throw UserError(fmt::format(
        "--replay {}: it has no answer yet; measure some with: gdnbench tune --resume {}",
        given.replay, shell_quoted(given.replay)));
  TuneOptions options = given;
  RunOptions of_record = given.measured;
  of_record.resume = given.replay;  // what errors name
  of_record = recalled(of_record, record.options);
  options.measured.worker = of_record.worker;
  options.measured.cases = of_record.cases;
  const Ids all = meant_by(given.measured.variants, record.candidates);

  require_wisdom_of(options, record.fingerprint);
  std::FILE* const tables = tables_of(options);
  std::vector<TunedProblem> tuned;
  double spent_s = 0;
  for (const RecordedProblem& recorded : record.problems) {
    const auto known = recorded.evaluations();
    Ids candidates;
    ReplayNotes notes;
    for (const std::string& id : all)
      (known.contains(id) ? candidates : notes.missing).push_back(id);
    const SearchPlan plan = plan_of(options, spent_s);
    const TuningProblem problem =
        naming(given.replay, [&] { return problem_from_json(recorded.problem); });
    tuned.push_back(search_in(problem, candidates, *replay_evaluator(recorded), plan));
    notes.exhaustive_s = seconds_of_exhaustive(recorded, candidates, plan);
    notes.regret = regret_of(recorded, candidates, tuned.back().outcome.winner);
    tuned.back().replay = notes;
    tuned.back().measured_at = record.measured_at;
    spent_s += tuned.back().outcome.spent_s;
    show(tuned.back(), tables);
    keep(tuned.back(), options, record.fingerprint);
  }
  return deliver_all(options, record.fingerprint, record.options, tuned, tables);
}

// One for each device. A winner is one of a kind of device.
std::vector<std::unique_ptr<Bench>> benches_of(const TuneOptions& options) {
  std::vector<std::unique_ptr<Bench>> benches;
  for (const int device : options.devices) {
    WorkerOptions worker = options.measured.worker;
    worker.backend.device = device;
    benches.push_back(std::make_unique<Bench>(worker));
    const std::vector<std::string> differences =
        differing(facts_of_twins, benches.front()->of_backend(),
                  fmt::format("of device {}", options.devices[0]), benches.back()->of_backend(),
                  fmt::format("of device {}", device));
    if (!differences.empty())
      throw UserError(
          fmt::format("--device {}: {}; give devices of one kind, and tune the other by itself",
                      fmt::join(options.devices, ","), fmt::join(differences, "; ")));
  }
  return benches;
}

// What searches have found that run side by side: kept at once, shown in the order of the problems.
class Findings {
 public:
  Findings(const TuneOptions& options, std::FILE* tables, std::size_t problems)
      : options_(options), tables_(tables), found_(problems) {}

  // `fingerprint` is of the device that it was found on.
  void add(std::size_t number, TunedProblem tuned, const Json& fingerprint,
           const SearchProgress& progress) {
    const std::lock_guard lock(mutex_);
    progress.clear();
    keep(tuned, options_, fingerprint);
    found_[number] = std::move(tuned);
    for (; shown_ < found_.size() && found_[shown_]; ++shown_) show(*found_[shown_], tables_);
  }

  std::vector<TunedProblem> take() {
    std::vector<TunedProblem> all;
    for (std::optional<TunedProblem>& tuned : found_) all.push_back(std::move(*tuned));
    return all;
  }

 private:
  const TuneOptions& options_;
  std::FILE* tables_;
  std::mutex mutex_;
  std::vector<std::optional<TunedProblem>> found_;
  std::size_t shown_ = 0;
};

// Every bench takes the next problem that waits, until there is none, or one of them is in trouble:
// then the others finish theirs, and the trouble is thrown on.
void search_all(const TuneOptions& options, const std::vector<TuningProblem>& problems,
                const Ids& candidates, const std::vector<std::unique_ptr<Bench>>& benches,
                std::optional<RecordFile>& record, Findings& findings) {
  std::atomic<std::size_t> next = 0;
  const auto search_on = [&](Bench& bench) {
    SearchProgress progress(problems.size());
    const Json of_machine = fingerprint(bench.of_backend());
    double spent_s = 0;
    for (std::size_t number = next++; number < problems.size(); number = next++) {
      const TuningProblem& problem = problems[number];
      const std::unique_ptr<Evaluator> live =
          live_evaluator(bench, problem, options.measured.worker.sampling.timeout_s);
      const std::unique_ptr<Evaluator> recording =
          record ? recording_evaluator(*live, *record, to_json(problem)) : nullptr;
      progress.begin(number + 1, title_of(problem));
      TunedProblem tuned = search_in(problem, candidates, recording ? *recording : *live,
                                     plan_of(options, spent_s), &progress);
      if (record) record->finish(to_json(problem));
      spent_s += tuned.outcome.spent_s;
      findings.add(number, std::move(tuned), of_machine, progress);
    }
  };
  std::vector<std::future<void>> searches;
  for (const std::unique_ptr<Bench>& bench : benches)
    searches.push_back(std::async(std::launch::async, [&] {
      try {
        search_on(*bench);
      } catch (...) {
        next = problems.size();
        throw;
      }
    }));
  for (const std::future<void>& search : searches) search.wait();
  for (std::future<void>& search : searches) search.get();
}

}  // namespace

int tune(const TuneOptions& given) {
  TuneOptions options = given;
  std::optional<RecordFile> record;
  if (!given.measured.resume.empty()) {
    record.emplace(RecordFile::reopen(given.measured.resume));
    options = recalled(given, record->before().options);
  }
  require_outputs_of(options);
  if (!options.replay.empty()) return replay(options);

  const std::vector<Case> cases = cases_of(options);
  const std::vector<TuningProblem> problems = problems_of(options, cases);
  const auto candidates_for = [&](Target target) {
    return meant_by(options.measured.variants, search_space(options.space, target));
  };
  if (options.dry_run)
    return dry_run(options, problems, candidates_for(target_of(options.measured.worker.backend)));

  const std::vector<std::unique_ptr<Bench>> benches = benches_of(options);
  const Ids candidates = candidates_for(benches[0]->device().target);
  const Json of_machine = fingerprint(benches[0]->of_backend());
  require_wisdom_of(options, of_machine);
  const Json asked = record_of(options, cases, candidates);
  if (record)
    record->go_on(of_machine, asked);
  else if (!options.record.empty())
    record.emplace(RecordFile::create(options.record, of_machine, asked));
  if (record)
    say_when_interrupted(fmt::format("\ngdnbench: stopped; go on with: gdnbench tune --resume {}\n",
                                     shell_quoted(given.measured.resume + given.record)));

  std::FILE* const tables = tables_of(options);
  if (record || tables == stderr) outlive_readers();
  Findings findings(options, tables, problems.size());
  search_all(options, problems, candidates, benches, record, findings);
  return deliver_all(options, of_machine, asked, findings.take(), tables);
}

}  // namespace gdn
