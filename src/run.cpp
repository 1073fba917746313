// `gdnbench run`: every selected variant on every selected case, one row after the other, and all
// of it again in every further round.
#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "src/against.hpp"
#include "src/auto_variant.hpp"
#include "src/bench.hpp"
#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/file.hpp"
#include "src/fingerprint.hpp"
#include "src/inputs.hpp"
#include "src/interrupt.hpp"
#include "src/journal.hpp"
#include "src/profiler_commands.hpp"
#include "src/progress.hpp"
#include "src/report/render.hpp"
#include "src/rounds.hpp"
#include "src/run_record.hpp"
#include "src/score.hpp"
#include "src/streams.hpp"
#include "src/tuned.hpp"
#include "src/variant_select.hpp"
#include "src/workbench.hpp"

namespace gdn {
namespace {

using Json = nlohmann::json;

std::vector<Case> cases_of(const RunOptions& options, const Device& device) {
  if (!options.worker.inputs_file.empty()) {
    const InputFile file = read_inputs(options.worker.inputs_file);
    if (const std::string why = too_large(file.problem, device.memory_bytes); !why.empty())
      throw UserError(fmt::format("{}: {}; give fewer tokens, sequences or heads",
                                  options.worker.inputs_file, why));
    return {{.name = file.name, .problem = file.problem, .recipe = {}}};
  }
  const CaseSelection& wanted = options.cases;
  // A case that was named must fit; what a glob brings and does not fit is skipped.
  for (const std::string& selector : wanted.selectors)
    if (select_cases({selector}, wanted.overrides, SIZE_MAX).size() == 1)
      select_cases({selector}, wanted.overrides, device.memory_bytes);
  return select_cases(wanted.selectors, wanted.overrides, SIZE_MAX);
}

// The id that a glob means, which must be one.
std::string the_one(const std::string& glob, Target target) {
  const std::vector<SelectedVariant> selected = select_variants({glob}, target, "--a");
  if (selected.size() == 1) return variant_id(*selected[0].variant, *selected[0].instance);
  std::string ids;
  for (const SelectedVariant& s : selected)
    ids += fmt::format("\n  {}", variant_id(*s.variant, *s.instance));
  throw UserError(
      fmt::format("--a {}: one instance is wanted, these are {}:{}", glob, selected.size(), ids));
}

// Variants for every case, in one value: those that globs select, the lookup of the tuned one, and
// whether one is to be chosen.
struct Wanted {
  std::vector<SelectedVariant> selected;
  std::optional<TunedVariants> tuned;
  bool chosen = false;
};

Wanted wanted_variants(const RunOptions& options, const Device& device, const Json& fingerprint) {
  std::vector<std::string> globs = options.variants;
  Wanted wanted;
  if (std::erase(globs, tuned_variant) > 0)
    wanted.tuned.emplace(options.wisdom, device, fingerprint, options.strict);
  wanted.chosen = std::erase(globs, auto_variant) > 0;
  const char* const option = options.against.variant.empty() ? "--variant" : "--b";
  if (!globs.empty() || (!wanted.tuned && !wanted.chosen))
    wanted.selected = select_variants(globs, device.target, option);
  return wanted;
}

// The row of a variant among those of one case, scope and timing, where it is added if need be.
Planned& row_of(const SelectedVariant& selected, const Case& c, Scope scope, Timing timing,
                std::vector<Planned>& rows) {
  auto row = std::ranges::find(rows, selected.instance, &Planned::instance);
  if (row == rows.end())
    row = rows.insert(row, {&c, selected.variant, selected.instance, scope, timing});
  return *row;
}

TunedVariant tuned_for(const Case& c, Scope scope, Timing timing, const RunOptions& options,
                       TunedVariants& tuned) {
  const bool own_inputs = !options.worker.inputs_file.empty();
  return tuned.select(c.problem, own_inputs ? std::nullopt : std::optional(c.recipe.gates), scope,
                      timing, c.recipe.beta_max);
}

std::vector<Planned> plan_rows(const RunOptions& options, const std::vector<Case>& cases,
                               const Device& device, Wanted& wanted) {
  std::set<std::string> names;
  for (const Case& c : cases)
    if (!names.insert(c.name).second)
      throw UserError(
          fmt::format("--case: two different cases are named \"{}\"; rename one", c.name));
  std::vector<Planned> plan;
  for (const Case& c : cases) {
    const KnownInputs known =
        wanted.chosen ? known_inputs(c, options.worker.inputs_file, options.exact) : KnownInputs();
    for (const Scope scope : options.scopes)
      for (const Timing timing : options.timings) {
        std::vector<Planned> rows;
        for (const SelectedVariant& s : wanted.selected)
          rows.push_back({&c, s.variant, s.instance, scope, timing});
        if (wanted.tuned) {
          const auto [selected, as] = tuned_for(c, scope, timing, options, *wanted.tuned);
          row_of(selected, c, scope, timing, rows).tuned = as;
        }
        if (wanted.chosen) {
          const auto [selected, as] = choose_variant(c, scope, device, known);
          row_of(selected, c, scope, timing, rows).chosen = as;
        }
        std::ranges::move(rows, std::back_inserter(plan));
      }
  }
  return plan;
}

// What --variant tuned came to mean, by row: a run whose wisdom has changed is not resumed.
Json meaning_of_tuned(const std::vector<Planned>& plan) {
  Json meant = Json::object();
  for (const Planned& planned : plan)
    if (planned.tuned) meant[row_key(planned)] = to_json(*planned.tuned);
  return meant;
}

// The plan in the order of a round: as planned in the first, shuffled in later ones, so that no row
// has always the same one before it. It is the same order whenever the run is resumed. The rows of
// a case stay together, as laying it out takes longer than most of them.
std::vector<Planned> in_order_of(int round, std::vector<Planned> plan) {
  if (round == 1) return plan;
  std::mt19937 random(static_cast<unsigned>(round));
  std::ranges::shuffle(plan, random);
  std::map<const Case*, std::size_t> places;
  for (const Planned& planned : plan) places.emplace(planned.c, places.size());
  std::ranges::stable_sort(plan, {}, [&](const Planned& planned) { return places[planned.c]; });
  return plan;
}

Exit exit_of(const Report& report) {
  const auto any = [&](auto is) { return std::ranges::any_of(report.rows, is); };
  const auto any_verdict = [&](Verdict verdict) {
    return any([&](const Row& row) { return row.against && row.against->verdict == verdict; });
  };
  if (any([](const Row& row) {
        return row.status == Status::incorrect || row.status == Status::failed;
      }))
    return Exit::incorrect;
  if (any_verdict(Verdict::slower)) return Exit::regression;
  if (any_verdict(Verdict::inconclusive)) return Exit::inconclusive;
  return Exit::fine;
}

void print_case(std::FILE* to, const Report& report, const std::string& case_name) {
  Report part{.fingerprint = report.fingerprint, .options = report.options};
  std::ranges::copy_if(report.rows, std::back_inserter(part.rows),
                       [&](const Row& row) { return row.case_name == case_name; });
  print(to, console(part, in_colour(to)));
}

// Where the rows are kept while the run lasts; "" where the results go to nothing that lasts.
std::string journal_of(const RunOptions& options) {
  if (!options.resume.empty()) return options.resume;
  const bool lasts =
      !options.json.empty() && !is_standard_output(options.json) && keeps_bytes(options.json);
  return lasts ? options.json + ".jsonl" : "";
}

std::vector<std::string> outputs_of(const RunOptions& options) {
  std::vector<std::string> outputs = {options.json, options.csv, options.markdown};
  std::erase(outputs, "");
  return outputs;
}

void require_outputs_of(const RunOptions& options) {
  // They go to workers before they are recorded.
  for (const std::string& path : {options.worker.inputs_file, options.worker.dump_folder})
    recorded_path(path);
  std::vector<NamedPath> inputs = {{"--inputs", options.worker.inputs_file},
                                   {"--wisdom", options.wisdom}};
  if (options.worker.inputs_file.empty())
    for (const auto& path : case_files(options.cases.selectors)) inputs.push_back({"--case", path});
  require_outputs(inputs, {{"--json", options.json},
                           {"--csv", options.csv},
                           {"--markdown", options.markdown},
                           {"the journal", journal_of(options)}});
  if (!options.worker.dump_folder.empty()) make_folder(options.worker.dump_folder);
}

// Before anything is measured, as each row would fail for it behind that.
void require_dump_names(const std::vector<Planned>& plan) {
  for (const Planned& planned : plan) {
    const std::string name =
        dump_name(planned.c->name, variant_id(*planned.variant, *planned.instance), planned.scope);
    if (name.size() > NAME_MAX)
      throw UserError(
          fmt::format("--dump: {} would be a file's name of more than {} bytes; give the case, or "
                      "the file of --inputs, a shorter one",
                      name, NAME_MAX));
  }
}

// The rows as they come: in the report, and in the journal where there is one.
class Results {
 public:
  Results(Report& report, std::optional<JournalFile>& journal)
      : report_(report), journal_(journal) {
    for (const Row& row : report.rows) places_.emplace(row_key(row), places_.size());
  }

  // Whether the row needs no more of this round: it was measured, or is known not to pass.
  bool is_done(const Planned& planned, int round) const {
    const auto place = places_.find(row_key(planned));
    if (place == places_.end()) return false;
    const Row& row = report_.rows[place->second];
    const bool repeats = row.status == Status::passed && row.time_s;
    return !repeats || row.round_medians_s.size() >= static_cast<std::size_t>(round);
  }

  const Row& add(Row measured) {
    const auto [place, is_new] = places_.emplace(row_key(measured), report_.rows.size());
    if (is_new)
      report_.rows.push_back(std::move(measured));
    else
      merge_round(report_.rows[place->second], std::move(measured));
    const Row& row = report_.rows[place->second];
    if (journal_) journal_->append(row);
    return row;
  }

 private:
  Report& report_;
  std::optional<JournalFile>& journal_;
  std::map<std::string, std::size_t> places_;  // of the report's rows, by their keys
};

// How the rows of a run are measured: each by itself, or against another in pairs.
struct Meter {
  std::function<Row(const Planned&)> measure;
  std::function<void()> start_anew;
};

void measure_row(const Meter& meter, const Planned& planned, int round, Results& results,
                 Progress& progress) {
  if (results.is_done(planned, round)) {
    progress.skip();
    return;
  }
  progress.doing(planned.c->name, variant_id(*planned.variant, *planned.instance), planned.scope,
                 planned.timing);
  Row row = meter.measure(planned);
  row.tuned = planned.tuned;
  row.chosen = planned.chosen;
  progress.finished(results.add(std::move(row)));
}

// Measures what is planned and not yet in the report. Of one round, each case is printed as soon as
// it is whole; of several, all of them at the end.
void measure_rows(const Meter& meter, const std::vector<Planned>& plan, int rounds, Report& report,
                  std::optional<JournalFile>& journal, std::FILE* tables) {
  Results results(report, journal);
  Progress progress(plan.size(), rounds);
  for (int round = 1; round <= rounds; ++round) {
    if (round > 1) meter.start_anew();
    progress.begin_round(round);
    const std::vector<Planned> order = in_order_of(round, plan);
    for (std::size_t i = 0; i < order.size(); ++i) {
      measure_row(meter, order[i], round, results, progress);
      const bool whole = i + 1 == order.size() || order[i + 1].c != order[i].c;
      if (rounds > 1 || !whole) continue;
      progress.clear();
      print_case(tables, report, order[i].c->name);
    }
  }
  if (rounds == 1) return;
  progress.clear();
  print(tables, console(report, in_colour(tables)));
}

}  // namespace

int run(const RunOptions& given) {
  RunOptions options = given;
  std::optional<JournalFile> journal;
  if (!given.resume.empty()) {
    journal.emplace(JournalFile::reopen(given.resume));
    options = recalled(given, journal->before().options);
    if (options.json.empty() && given.resume.ends_with(".jsonl"))
      options.json = given.resume.substr(0, given.resume.size() - 6);
  }
  require_outputs_of(options);

  Bench bench(options.worker);
  std::optional<PairedBench> paired;
  Meter meter{.measure = [&](const Planned& planned) { return bench.measure(planned); },
              .start_anew = [&] { bench.start_anew(); }};
  if (options.against.wanted()) {
    if (!options.against.variant.empty())
      options.against.variant = the_one(options.against.variant, bench.device().target);
    paired.emplace(bench, options.worker, options.against);
    meter.measure = [&](const Planned& planned) { return paired->measure(planned); };
  }
  const std::vector<Case> cases = cases_of(options, bench.device());
  Report report{.fingerprint = fingerprint(bench.of_backend()),
                .options = record_of(options, cases)};
  if (paired) report.options["against"]["build"] = paired->other().build();
  Wanted wanted = wanted_variants(options, bench.device(), report.fingerprint);
  const std::vector<Planned> plan = plan_rows(options, cases, bench.device(), wanted);
  report.options["tuned"] = meaning_of_tuned(plan);
  if (!options.worker.dump_folder.empty()) require_dump_names(plan);
  if (wanted.tuned)
    for (const std::string& warning : wanted.tuned->warnings())
      print(stderr, fmt::format("gdnbench: warning: {}\n", warning));
  const std::string kept = journal_of(options);
  if (journal)
    journal->go_on(report);
  else if (!kept.empty())
    journal.emplace(JournalFile::create(kept, report));
  if (journal)
    say_when_interrupted(fmt::format("\ngdnbench: stopped; go on with: gdnbench run --resume {}\n",
                                     shell_quoted(kept)));

  if (!journal && options.rounds > 1)
    print(stderr, "gdnbench: without --json FILE, rounds that are stopped leave nothing\n");

  // Tables go to standard output unless a file format was asked for there.
  const std::vector<std::string> outputs = outputs_of(options);
  if (journal || !std::ranges::all_of(outputs, is_standard_output)) outlive_readers();
  std::FILE* const tables = std::ranges::any_of(outputs, is_standard_output) ? stderr : stdout;
  measure_rows(meter, plan, options.rounds, report, journal, tables);

  // Not finished before the results are where they were asked for: a finished journal makes way for
  // that of the next run.
  const auto deliver_json = [&] {
    try {
      deliver(options.json, json(report));
    } catch (const UserError& e) {
      if (!journal) throw;
      throw UserError(
          fmt::format("{}\nthe results are whole in {}; once there is room, this writes them: "
                      "gdnbench run --resume {}",
                      e.what(), kept, shell_quoted(kept)));
    }
    if (journal) journal->finish();
  };
  try_each({deliver_json, [&] { deliver(options.csv, csv(report)); },
            [&] { deliver(options.markdown, markdown(report)); }});
  if (options.lab_score) print(tables, lab_summary(report));
  return static_cast<int>(exit_of(report));
}

}  // namespace gdn
