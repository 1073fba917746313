#include "src/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <revision.hpp>
#include <set>
#include <sstream>

#include "src/auto_variant.hpp"
#include "src/error.hpp"
#include "src/streams.hpp"
#include "src/suggest.hpp"
#include "src/tuned.hpp"

namespace gdn {
namespace {

constexpr const char* exit_codes =
    "Exit codes: 0 fine, 1 regression, 2 incorrect or failed, 3 inconclusive, 4 usage or "
    "environment.";

constexpr double longest_wait_s = 86400;

struct Raw {  // what CLI11 fills before it is understood
  std::vector<std::string> sets, scopes, timings;
  std::string seed, what;
  std::string ladder_scope = "core", ladder_timing = "graph";
  std::string strategy = "racing", shard;
};

// CLI11 takes an empty word for a path, and a NaN for a number in any range.
std::string refuse_empty(const std::string& path) {
  return path.empty() ? "an empty path; leave the option out, or give a name" : "";
}

// What is empty would count as not given: of a variable that a script has not set.
std::string refuse_empty_word(const std::string& word) {
  return word.empty() ? "an empty word; leave the option out, or give a value" : "";
}

CLI::Validator number_between(double low, double high) {
  const std::string range = fmt::format("{:g} … {:g}", low, high);
  return CLI::Validator(
      [=](std::string& text) {
        double number = 0;
        const bool fits =
            CLI::detail::lexical_cast(text, number) && number >= low && number <= high;
        return fits ? "" : fmt::format("{} is not a number in {}", excerpt(text), range);
      },
      range);
}

// CLI11 takes -1 for 2^64 - 1, and 010 for 8.
std::optional<std::uint64_t> whole_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole ? std::optional(number) : std::nullopt;
}

CLI::Validator device_number() {
  return CLI::Validator(
      [](std::string& text) {
        const std::optional<std::uint64_t> number = whole_number(text);
        const bool fits = number && *number <= std::numeric_limits<int>::max();
        return fits ? ""
                    : fmt::format(
                          "{} is not the number of a device; `gdnbench list devices` shows "
                          "them",
                          excerpt(text));
      },
      "");
}

void add_seed(CLI::App& command, std::uint64_t& seed, const char* meaning) {
  const auto read = [&seed](const std::string& text) {
    const std::optional<std::uint64_t> number = whole_number(text);
    if (!number)
      throw CLI::ValidationError(
          "--seed", fmt::format("{} is not a whole number in 0 … 2^64 - 1", excerpt(text)));
    seed = *number;
  };
  command.add_option_function<std::string>("--seed", read, meaning)
      ->type_name("N")
      ->default_str(std::to_string(seed));
}

CLI::Option& add_path(CLI::App& command, const char* name, std::string& path, const char* meaning,
                      const char* type = "FILE") {
  return *command.add_option(name, path, meaning)->check(refuse_empty)->type_name(type);
}

void add_selection(CLI::App& command, CaseSelection& cases, Raw& raw) {
  command
      .add_option("-c,--case", cases.selectors,
                  "Cases: names, globs or YAML files ('*' is every case)\n"
                  "e.g. short_tail_state 'edge_*' my/case.yaml")
      ->delimiter(',')
      ->type_name("CASE");
  command
      .add_option("--set", raw.sets,
                  "Replace a field in every selected case, e.g. tokens=4096, gates=zero")
      ->type_name("FIELD=VALUE");
}

void add_case_options(CLI::App& command, CaseSelection& cases, Raw& raw) {
  add_selection(command, cases, raw);
  command.add_option("--seed", raw.seed, "Seed of the inputs: short for --set seed=N")
      ->check(refuse_empty_word)
      ->type_name("N");
}

void add_backend(CLI::App& command, BackendOptions& backend) {
  command.add_option("--backend", backend.name, "auto (cuda where a device is), cpu or cuda")
      ->check(CLI::IsMember({"auto", "cpu", "cuda"}))
      ->capture_default_str();
}

void add_backend_options(CLI::App& command, BackendOptions& backend) {
  add_backend(command, backend);
  command.add_option("-d,--device", backend.device, "Number of the device, as nvidia-smi counts")
      ->check(device_number())
      ->capture_default_str();
}

void add_timer_options(CLI::App& command, BackendOptions& backend) {
  command
      .add_option(
          "--timer", backend.timer,
          "events: CUDA events alone · cupti: the headline from CUPTI, an error without it ·\n"
          "auto: events for the headline, CUPTI for kernels where it can be had")
      ->check(CLI::IsMember({"auto", "events", "cupti"}))
      ->capture_default_str();
  command.add_option("--schedule", backend.schedule, "How the host waits for the device")
      ->check(CLI::IsMember({"auto", "spin", "yield", "blocking"}))
      ->capture_default_str();
  command
      .add_option("--batch", backend.batch,
                  "Launches per sample with one synchronisation; the sample is their mean")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void add_sampling_options(CLI::App& command, WorkerOptions& worker) {
  Sampling& sampling = worker.sampling;
  command.add_option("--min-samples", sampling.min_samples, "Fewest samples of a row")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  command
      .add_option("--max-noise", sampling.max_noise_percent,
                  "Sample until the 95 % interval of the median is this narrow, in per cent")
      ->check(number_between(1e-6, 1e6))
      ->capture_default_str();
  command.add_option("--timeout", sampling.timeout_s, "Most seconds of sampling a row")
      ->check(number_between(1e-6, longest_wait_s))
      ->capture_default_str();
}

CLI::Option& add_difference(CLI::App& command, AgainstOptions& against) {
  CLI::Option& difference = *command.add_option(
      "--difference", against.plan.difference_percent,
      "Per cent that must not be overlooked: pairs are taken until it is ruled out or\nfound");
  return *difference.check(number_between(0.01, 100))->capture_default_str();
}

// Output files of a run.
void add_result_options(CLI::App& command, RunOptions& options) {
  add_path(command, "--json", options.json,
           "Write results; FILE.jsonl holds each row as soon as it is there");
  add_path(command, "--csv", options.csv, "Write results as CSV; - is standard output");
  add_path(command, "--markdown", options.markdown, "Write results as Markdown");
}

void add_scope_and_timing(CLI::App& command, Raw& raw, const char* scopes) {
  command.add_option("--scope", raw.scopes, scopes)->delimiter(',');
  command
      .add_option("--timing", raw.timings,
                  "cold: cache flushed before each sample (default) · hot: back to back ·\n"
                  "graph: replay of a captured graph · lab: the lab's protocol, launch included")
      ->delimiter(',');
}

void add_variant_options(CLI::App& command, RunOptions& options, Raw& raw) {
  command
      .add_option("-v,--variant", options.variants,
                  "Variants by name or glob over ids, e.g. chunked 'wide:*'; all when not given")
      ->delimiter(',')
      ->type_name("GLOB");
  add_scope_and_timing(command, raw, "core, forward (default: both)");
}

void add_deadline_option(CLI::App& command, WorkerOptions& worker) {
  command
      .add_option("--deadline", worker.deadline_s, "Seconds after which a row that hangs is ended")
      ->check(number_between(0.1, longest_wait_s))
      ->capture_default_str();
}

void add_exact(CLI::App& command, bool& exact, const char* option) {
  command.add_flag(
      "--exact", exact,
      fmt::format("For {} auto: choose nothing that drops a part of the state, however "
                  "little",
                  option));
}

void add_ab(CLI::App& app, RunOptions& options, Raw& raw) {
  CLI::App& ab = *app.add_subcommand(
      "ab", "Is B faster than A? Two instances in interleaved pairs, with a verdict");
  AgainstOptions& against = options.against;
  add_selection(ab, options.cases, raw);
  ab.add_option("-a,--a", against.variant, "The instance to compare with, by its id or a glob")
      ->required()
      ->check(refuse_empty_word)
      ->type_name("ID");
  ab.add_option("-b,--b", options.variants, "The instance, or several, each by itself against A")
      ->required()
      ->delimiter(',')
      ->type_name("ID");
  add_exact(ab, options.exact, "--b");
  add_scope_and_timing(ab, raw, "core (default), forward");
  add_difference(ab, against);
  ab.add_option("--timeout", against.plan.timeout_s, "Most seconds of a comparison")
      ->check(number_between(1e-6, longest_wait_s))
      ->capture_default_str();
  ab.add_option("--min-pairs", against.plan.min_pairs, "Fewest pairs of a comparison")
      ->check(CLI::Range(6, 10000))
      ->capture_default_str();
  add_seed(ab, against.plan.seed, "Seed of the order within the pairs");
  ab.add_option("--repeat", against.repeat,
                "Compare N times anew and keep every outcome: how far verdicts can be trusted here")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  add_path(ab, "--against", against.program, "A is of this other gdnbench", "PROGRAM");
  add_backend_options(ab, options.worker.backend);
  add_timer_options(ab, options.worker.backend);
  add_deadline_option(ab, options.worker);
  add_result_options(ab, options);
  ab.footer(
      std::string(
          "First A is paired with itself: the noise floor, below which nothing is claimed.\n"
          "faster, slower: the whole 95 % interval of B/A lies beyond half of --difference and\n"
          "beyond the floor. same: it lies within half of --difference, and so does the floor.\n"
          "Examples:\n"
          "  gdnbench ab --case chain_equal --a fused:stages=3 --b split_barrier\n"
          "  gdnbench ab --case short_tail_state --a baseline:stages=3 --b baseline:stages=3 "
          "--repeat 50\n"
          "  gdnbench ab --case '*' --a fused:stages=3 --b fused:stages=3 --against "
          "../main/build/gdnbench\n") +
      exit_codes);
}

void add_run(CLI::App& app, RunOptions& options, Raw& raw) {
  CLI::App& run = *app.add_subcommand("run", "Check and time variants on cases");
  add_case_options(run, options.cases, raw);
  add_variant_options(run, options, raw);
  add_path(run, "--wisdom", options.wisdom,
           "For --variant tuned: the file of winners (default: tuning/DEVICE.json)");
  run.add_flag("--strict", options.strict,
               "For --variant tuned: winners found with another build or driver are an error");
  add_exact(run, options.exact, "--variant");
  add_path(run, "--inputs", options.worker.inputs_file,
           "A safetensors file of your own instead of cases: q k v raw_g beta\n"
           "[initial_state] [cu_seqlens]");
  add_backend_options(run, options.worker.backend);
  add_timer_options(run, options.worker.backend);
  add_sampling_options(run, options.worker);
  run.add_option("--rounds", options.rounds,
                 "Repeat the plan N times, each time in a fresh process and another order; from 6\n"
                 "on the interval covers what moves between processes")
      ->check(CLI::Range(1, 100))
      ->type_name("N")
      ->capture_default_str();
  add_path(run, "--against", options.against.program,
           "Another build: each row in pairs with its like there, as `gdnbench ab` does",
           "PROGRAM");
  add_difference(run, options.against).needs("--against");
  add_deadline_option(run, options.worker);
  add_result_options(run, options);
  add_path(run, "--resume", options.resume,
           "Go on with an interrupted run; what it was asked for is in the file", "FILE.jsonl");
  add_path(run, "--dump", options.worker.dump_folder,
           "Write output, reference and difference of each row into this folder", "DIR");
  std::string* const score = &raw.what;
  run.add_option("--score", *score, "lab: print the lab's points (core scope, lab timing)")
      ->check(CLI::IsMember({"lab"}));
  run.footer(std::string("--variant tuned: of each case the winner that tuning has found · auto: "
                         "of those whose cost is\n"
                         "known the one that a model predicts to be the fastest, with no tuning; "
                         "the row says why\n"
                         "Examples:\n"
                         "  gdnbench run --case short_tail_state\n"
                         "  gdnbench run --case 'edge_*' --variant chunked --scope core\n"
                         "  gdnbench run --timing cold,hot --json results.json\n"
                         "  gdnbench run --case 'models_*' --variant baseline,tuned\n"
                         "  gdnbench run --case 'ragged:*' --variant auto --exact\n"
                         "  gdnbench run --case '*' --rounds 8 --json results.json\n"
                         "  gdnbench run --case '*' --against ../main/build/gdnbench\n"
                         "  gdnbench run --resume results.json.jsonl\n") +
             exit_codes);
}

void add_tune(CLI::App& app, TuneOptions& options, Raw& raw) {
  CLI::App& tune = *app.add_subcommand("tune", "Find the fastest variant and knobs for each case");
  RunOptions& measured = options.measured;
  // Those of one queue of launches are alike: 30 of a GPU would be three queues.
  measured.worker.sampling.min_samples = 100;
  add_selection(tune, measured.cases, raw);
  add_variant_options(tune, measured, raw);
  add_path(tune, "--space", options.space,
           "Search space; else those of the tuning folder that are for the backend");
  tune.add_option("--strategy", raw.strategy,
                  "racing: all a few samples, the better half more, … · exhaustive · random ·\n"
                  "annealing")
      ->capture_default_str();
  tune.add_option("--max-evals", options.max_evals, "Most candidates that are tried, a problem")
      ->check(CLI::Range(1, 1000000))
      ->type_name("N");
  tune.add_option("--time-limit", options.time_limit_s, "Most seconds of measuring, in all")
      ->check(number_between(0, 1e9))
      ->type_name("S");
  add_seed(tune, options.seed, "Seed of the search (of the inputs: --set seed=N)");
  tune.add_option("--shard", raw.shard, "Take problems I, I + N, I + 2N, … alone")
      ->check(refuse_empty_word)
      ->type_name("I/N");
  tune.add_flag(
      "--dry-run", options.dry_run,
      "Say which problems and candidates there are and how long it takes; needs no device");
  add_path(tune, "-o,--output", options.output, "Put the winners into this file of wisdom");
  add_path(tune, "--record", options.record, "Keep every answer as soon as it is there",
           "FILE.jsonl");
  add_path(tune, "--resume", measured.resume,
           "Go on with an unfinished record; what was asked for is in the file", "FILE.jsonl");
  add_path(tune, "--replay", options.replay, "Search in a record, without a device", "FILE.jsonl");
  add_path(tune, "--t4", options.t4, "Write the evaluations as T4 auto-tuning results");
  add_path(tune, "--json", measured.json, "Write the outcome of every search");
  add_backend(tune, measured.worker.backend);
  tune.add_option("-d,--device", options.devices,
                  "Numbers of devices of one kind, e.g. 0,1,2,3: each takes the next problem")
      ->delimiter(',')
      ->check(device_number())
      ->type_name("N")
      ->capture_default_str();
  add_timer_options(tune, measured.worker.backend);
  add_sampling_options(tune, measured.worker);
  add_deadline_option(tune, measured.worker);
  tune.footer(
      std::string("Examples:\n"
                  "  gdnbench tune --case short_tail_state --dry-run\n"
                  "  gdnbench tune --case 'models_tp4:*' --scope core --record tp4.jsonl\n"
                  "  gdnbench tune --case '*' --scope core --device 0,1,2,3 --record all.jsonl\n"
                  "  gdnbench tune --resume tp4.jsonl\n"
                  "  gdnbench tune --replay tp4.jsonl --strategy annealing --max-evals 8\n") +
      exit_codes);
}

void add_list(CLI::App& app, ListOptions& options, Raw& raw) {
  CLI::App& command = *app.add_subcommand("list", "List cases, variants or devices");
  command.require_subcommand(1);
  using What = ListOptions::What;
  CLI::App& cases = *command.add_subcommand("cases", "Every case with its shape");
  add_case_options(cases, options.cases, raw);
  cases.callback([&options] { options.what = What::cases; });
  command.add_subcommand("variants", "Every variant with its idea")->callback([&options] {
    options.what = What::variants;
  });
  command.add_subcommand("devices", "What can run them")->callback([&options] {
    options.what = What::devices;
  });
}

void add_inputs(CLI::App& app, InputsOptions& options, Raw& raw) {
  CLI::App& inputs =
      *app.add_subcommand("inputs", "Write the inputs of a case as a safetensors file");
  add_case_options(inputs, options.cases, raw);
  add_path(inputs, "-o,--output", options.output, "The file to write").required();
  inputs.footer("Example:\n  gdnbench inputs --case short_tail_state --output inputs.safetensors");
}

void add_compare(CLI::App& app, CompareCommand& command) {
  CLI::App& compare =
      *app.add_subcommand("compare", "Compare two result files: is HEAD slower than BASE?");
  compare.add_option("BASE", command.base, "Results of `gdnbench run --json`")
      ->required()
      ->check(refuse_empty);
  compare.add_option("HEAD", command.head, "Results of `gdnbench run --json`")
      ->required()
      ->check(refuse_empty);
  compare
      .add_option("--threshold", command.options.threshold_percent,
                  "Per cent by which a median may change")
      ->check(number_between(1e-6, 1000))
      ->capture_default_str();
  add_path(compare, "--thresholds", command.options.thresholds_file,
           "YAML with `default: 2` and `cases: {GLOB: per cent}`");
  compare.add_flag("--force", command.options.force,
                   "Compare although device, driver, inputs or schema differ");
  add_path(compare, "--markdown", command.markdown, "Write a table for a pull request");
  add_path(compare, "--junit", command.junit, "Write JUnit XML for CI");
  compare.footer(std::string("Example:\n  gdnbench compare main.json branch.json --markdown -\n") +
                 exit_codes);
}

void add_profile(CLI::App& app, ProfileOptions& options, Raw& raw) {
  CLI::App& profile = *app.add_subcommand(
      "profile", "Launch one variant on one case a few times, marked for nsys and ncu");
  add_case_options(profile, options.cases, raw);
  profile
      .add_option(
          "-v,--variant", options.variants,
          "The variant, by its id or a glob that selects one; auto: as the model of costs says")
      ->delimiter(',')
      ->type_name("GLOB");
  add_exact(profile, options.exact, "--variant");
  profile.add_option("--scope", raw.what, "core (default) or forward")->check(refuse_empty_word);
  profile.add_option("-n,--iterations", options.iterations, "Launches in the marked range")
      ->check(CLI::Range(1, 1000000))
      ->capture_default_str();
  add_backend_options(profile, options.backend);
  profile.footer(
      "Inputs, preparation and the check come before the range. Prints the nsys and ncu command\n"
      "lines that catch just the range.\n"
      "Example:\n"
      "  gdnbench profile --case wide_gva_state --variant baseline --iterations 3");
}

void add_report(CLI::App& app, ReportCommand& command, Raw& raw) {
  CLI::App& report = *app.add_subcommand("report", "Show a result file again, or put it elsewhere");
  report.add_option("FILE", command.file, "Results or journal of `gdnbench run --json`")
      ->required()
      ->check(refuse_empty);
  add_path(report, "--csv", command.csv, "Write it as CSV; - is standard output");
  add_path(report, "--markdown", command.markdown, "Write it as Markdown");
  add_path(report, "--ladder", command.ladder,
           "Put a table of medians between <!-- ladder --> and <!-- /ladder --> of this file",
           "FILE.md");
  add_path(report, "--knobs", command.knobs,
           "Write a page on what each knob and each rung is worth", "FILE.md");
  report
      .add_option("--beside", command.beside,
                  "With --knobs: results of the same rows with another --schedule or --batch")
      ->type_name("FILE");
  report.add_option("--scope", raw.ladder_scope, "Scope of these two")->capture_default_str();
  report.add_option("--timing", raw.ladder_timing, "Timing of these two")->capture_default_str();
  report.footer(
      "Examples:\n"
      "  gdnbench report reports/h200/ladder.json --ladder README.md --timing graph\n"
      "  gdnbench report reports/h200/ladder.json --knobs knobs.md --beside blocking.json");
}

void add_wisdom(CLI::App& app, WisdomCommand& command) {
  CLI::App& wisdom = *app.add_subcommand("wisdom", "Show or export the winners of `gdnbench tune`");
  wisdom.require_subcommand(1);
  using What = WisdomCommand::What;
  const auto add_file = [&command](CLI::App& sub) {
    sub.add_option("FILE", command.file, "Wisdom (default: tuning/DEVICE.json)")
        ->check(refuse_empty);
  };
  CLI::App& show = *wisdom.add_subcommand("show",
                                          "What won where, how sure that is, and whether "
                                          "it still holds");
  add_file(show);
  show.callback([&command] { command.what = What::show; });
  CLI::App& export_it = *wisdom.add_subcommand("export", "The winners for other programs");
  add_file(export_it);
  export_it
      .add_option("--format", command.format,
                  "json: the file itself · cpp: a header with a table and a lookup · csv")
      ->check(CLI::IsMember({"json", "cpp", "csv"}))
      ->capture_default_str();
  add_path(export_it, "-o,--output", command.output, "The file to write; - is standard output");
  export_it.callback([&command] { command.what = What::export_it; });
  wisdom.footer(
      "Examples:\n"
      "  gdnbench wisdom show\n"
      "  gdnbench wisdom export tuning/nvidia_h200.json --format cpp --output best_kernels.hpp");
}

void add_merge(CLI::App& app, MergeCommand& command) {
  CLI::App& merge = *app.add_subcommand(
      "merge", "Put wisdom files, tuning records or result files together: what shards wrote");
  merge.add_option("FILES", command.files, "Files of one kind, told apart by what is in them")
      ->required()
      ->check(refuse_empty);
  add_path(merge, "-o,--output", command.output, "The file to write; - is standard output")
      .required();
  merge.add_flag("--newer", command.newer,
                 "Where two files differ on one problem or row, the later one counts; without it\n"
                 "that is an error");
  merge.footer("Example:\n  gdnbench merge --output tuning/nvidia_h200.json shard-*.json");
}

void understand_overrides(const Raw& raw, CaseSelection& cases) {
  for (const std::string& set : raw.sets) {
    const std::size_t equals = set.find('=');
    if (equals == std::string::npos || equals == 0)
      throw UserError(fmt::format("--set {}: FIELD=VALUE is wanted, e.g. --set tokens=4096", set));
    cases.overrides.push_back({set.substr(0, equals), set.substr(equals + 1)});
  }
  if (!raw.seed.empty())
    cases.overrides.push_back({"seed", raw.seed, fmt::format("--seed {}", raw.seed)});
}

// The values of the names, each once and in their order.
template <class Value>
void understand_names(const std::vector<std::string>& names, Value (*named)(const std::string&),
                      std::vector<Value>& values) {
  if (names.empty()) return;
  values.clear();
  for (const std::string& name : names)
    if (const Value value = named(name); std::ranges::find(values, value) == values.end())
      values.push_back(value);
}

// What decides the rest is in the file that `option` names; beside it, it would be ignored.
void refuse_beside(const std::string& option, const CLI::App& command, const char* what,
                   std::set<std::string> allowed) {
  allowed.insert(option);
  for (const CLI::Option* other : command.get_options())
    if (other->count() > 0 && !allowed.contains(other->get_name()))
      throw UserError(
          fmt::format("{} {}: leave {} out, or start anew", option, what, other->get_name()));
}

void understand_shard(const std::string& shard, TuneOptions& options) {
  if (shard.empty()) return;
  const std::size_t slash = shard.find('/');
  const auto number = whole_number(shard.substr(0, slash));
  const auto of = whole_number(shard.substr(slash + 1));
  if (slash == std::string::npos || !number || !of || *number < 1 || *number > *of)
    throw UserError(
        fmt::format("--shard {}: I/N is wanted, with I from 1 to N, e.g. 1/8", excerpt(shard)));
  options.shard = *number;
  options.shards = *of;
}

void understand_tune(const Raw& raw, const CLI::App& command, TuneOptions& options) {
  RunOptions& measured = options.measured;
  understand_overrides(raw, measured.cases);
  understand_names(raw.scopes, scope_named, measured.scopes);
  understand_names(raw.timings, timing_named, measured.timings);
  options.strategy = strategy_named(raw.strategy);
  measured.worker.backend.device = options.devices.front();
  understand_shard(raw.shard, options);
  for (const auto& [option, path] :
       {std::pair{"--output", options.output}, std::pair{"--record", options.record}})
    if (path == "-")
      throw UserError(
          fmt::format("{} -: it is added to as winners and answers come; give a file", option));
  if (!measured.resume.empty()) {
    refuse_beside("--resume", command, "goes on with what the search was asked for",
                  {"--json", "--t4", "--output"});
  } else if (!options.replay.empty()) {
    refuse_beside("--replay", command, "has problems, candidates and samples from the record",
                  {"--variant", "--strategy", "--max-evals", "--time-limit", "--seed", "--json",
                   "--t4", "--output"});
  } else if (measured.cases.selectors.empty()) {
    throw UserError(
        "--case is missing: --case short_tail_state tunes for one, --case '*' for all of "
        "`gdnbench list cases`");
  }
}

void understand_exact(bool exact, const std::vector<std::string>& variants, const char* option) {
  if (exact && std::ranges::find(variants, auto_variant) == variants.end())
    throw UserError(fmt::format("--exact is for {} auto; add that, or leave it out", option));
}

void understand_ab(const Raw& raw, RunOptions& options) {
  understand_overrides(raw, options.cases);
  understand_exact(options.exact, options.variants, "--b");
  options.scopes = {Scope::core};
  understand_names(raw.scopes, scope_named, options.scopes);
  understand_names(raw.timings, timing_named, options.timings);
  if (options.cases.selectors.empty())
    throw UserError("--case is missing: e.g. --case short_tail_state; `gdnbench list cases`");
}

void understand_run(const Raw& raw, RunOptions& options) {
  understand_overrides(raw, options.cases);
  understand_names(raw.scopes, scope_named, options.scopes);
  understand_names(raw.timings, timing_named, options.timings);
  options.lab_score = raw.what == "lab";
  options.against.plan.timeout_s = options.worker.sampling.timeout_s;
  if (!options.against.program.empty() && options.rounds > 1)
    throw UserError("--against takes pairs, which --rounds cannot add up; leave one of them out");
  const bool selects_cases = !options.cases.selectors.empty() || !options.cases.overrides.empty();
  if (!options.worker.inputs_file.empty() && selects_cases)
    throw UserError("--inputs takes the place of --case, --set and --seed; leave those out");
  const bool tuned = std::ranges::find(options.variants, tuned_variant) != options.variants.end();
  if (!tuned && (!options.wisdom.empty() || options.strict))
    throw UserError("--wisdom and --strict are for --variant tuned; add that, or leave them out");
  understand_exact(options.exact, options.variants, "--variant");
  if (options.worker.inputs_file.empty() && options.resume.empty() &&
      options.cases.selectors.empty())
    throw UserError(
        "--case is missing: --case short_tail_state runs one, --case '*' all of "
        "`gdnbench list cases`");
}

std::vector<std::string> commands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!sub->get_group().empty()) names.push_back(sub->get_name());
  return names;
}

// For a misspelt option in one of CLI11's messages: the one that was probably meant.
std::string suggestion(const CLI::App& app, const std::string& message) {
  std::vector<std::string> known;
  for (const CLI::App* sub : app.get_subcommands())
    for (const CLI::Option* option : sub->get_options())
      for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  std::istringstream words(message);
  for (std::string word; words >> word;) {
    word.resize(std::min(word.find_first_of(":="), word.size()));  // "--timeout: …", "--caze=x"
    if (!word.starts_with("--") || std::ranges::find(known, word) != known.end()) continue;
    if (std::string meant = did_you_mean(word, known); !meant.empty()) return meant;
  }
  return "";
}

// CLI11 says of a misspelt command only that one is missing.
void refuse_unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return;
  const std::vector<std::string> known = commands_of(app);
  const std::string word = argv[1];
  if (word == "worker" || std::ranges::find(known, word) != known.end()) return;
  throw UserError(fmt::format("{}: there is no such command{}; there are {}", excerpt(word),
                              did_you_mean(word, known), fmt::join(known, ", ")));
}

}  // namespace

Command parse_command_line(int argc, char** argv) {
  CLI::App app(
      "gdnbench: benchmark and check kernels of the Gated DeltaNet prefill forward.\n"
      "Reads cases, makes their inputs, runs a ladder of kernel variants, checks each against an\n"
      "fp64 reference, times it, reports and compares.",
      "gdnbench");
  app.set_version_flag("--version", fmt::format("gdnbench {} ({})", version_text, revision_text));
  app.require_subcommand(1);
  app.footer(
      "Start here:\n"
      "  gdnbench run --case short_tail_state     the whole job on one case\n"
      "  gdnbench tune --case short_tail_state    the fastest variant and knobs for it\n"
      "  gdnbench list cases                      what there is to run\n"
      "  gdnbench doctor                          what this machine can do\n"
      "  gdnbench COMMAND --help                  options and examples");

  Raw raw;
  RunOptions run, ab;
  TuneOptions tune;
  ListOptions list;
  InputsOptions inputs;
  CompareCommand compare;
  ReportCommand report;
  ProfileOptions profile;
  WisdomCommand wisdom;
  MergeCommand merge;
  add_run(app, run, raw);
  add_ab(app, ab, raw);
  add_tune(app, tune, raw);
  add_list(app, list, raw);
  add_inputs(app, inputs, raw);
  add_compare(app, compare);
  add_report(app, report, raw);
  add_profile(app, profile, raw);
  add_wisdom(app, wisdom);
  add_merge(app, merge);
  app.add_subcommand("doctor", "What this machine can do, and the remedy for what it cannot");
  app.add_subcommand("worker")->group("");  // not for people: see worker.hpp
  refuse_unknown_command(app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help, --version
    std::ostringstream text;
    const int exit_code = app.exit(e, text, text);
    print(stdout, text.str());
    return Leave{exit_code};
  } catch (const CLI::ParseError& e) {
    throw UserError(fmt::format(
        "{}{}\nTry `gdnbench {}--help`.", e.what(), suggestion(app, e.what()),
        app.get_subcommands().empty() ? "" : app.get_subcommands().front()->get_name() + " "));
  }
  if (app.got_subcommand("run")) {
    if (!run.resume.empty())
      refuse_beside("--resume", *app.get_subcommand("run"),
                    "goes on with what the run was asked for", {"--json", "--csv", "--markdown"});
    understand_run(raw, run);
    return run;
  }
  if (app.got_subcommand("ab")) {
    understand_ab(raw, ab);
    return ab;
  }
  if (app.got_subcommand("tune")) {
    understand_tune(raw, *app.get_subcommand("tune"), tune);
    return tune;
  }
  if (app.got_subcommand("list")) {
    understand_overrides(raw, list.cases);
    return list;
  }
  if (app.got_subcommand("inputs")) {
    understand_overrides(raw, inputs.cases);
    if (inputs.output == "-")
      throw UserError(
          "--output -: inputs are mapped into memory when they are read, which a pipe cannot be; "
          "give a file");
    return inputs;
  }
  if (app.got_subcommand("compare")) return compare;
  if (app.got_subcommand("wisdom")) return wisdom;
  if (app.got_subcommand("merge")) return merge;
  if (app.got_subcommand("report")) {
    report.scope = scope_named(raw.ladder_scope);
    report.timing = timing_named(raw.ladder_timing);
    return report;
  }
  if (app.got_subcommand("profile")) {
    understand_overrides(raw, profile.cases);
    understand_exact(profile.exact, profile.variants, "--variant");
    if (profile.cases.selectors.empty())
      throw UserError("--case is missing: e.g. --case short_tail_state; `gdnbench list cases`");
    if (!raw.what.empty()) profile.scope = scope_named(raw.what);
    return profile;
  }
  if (app.got_subcommand("worker")) return WorkCommand{};
  return DoctorOptions{};
}

}  // namespace gdn
