// `gdnbench run`: every selected variant on every selected case, one row after the other.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>

#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/fingerprint.hpp"
#include "src/inputs.hpp"
#include "src/journal.hpp"
#include "src/progress.hpp"
#include "src/report/render.hpp"
#include "src/score.hpp"
#include "src/variant_select.hpp"
#include "src/workbench.hpp"

namespace gdn {
namespace {

using Json = nlohmann::json;

struct Planned {
  const Case* c;
  const Variant* variant;
  const Instance* instance;
  Scope scope;
  Timing timing;
};

// The part of the options that decides which rows there are and how they are measured.
Json to_json(const RunOptions& options) {
  Json overrides = Json::array();
  for (const Override& o : options.cases.overrides) overrides.push_back({o.field, o.value});
  Json scopes = Json::array();
  for (const Scope scope : options.scopes) scopes.push_back(name_of(scope));
  Json timings = Json::array();
  for (const Timing timing : options.timings) timings.push_back(name_of(timing));
  return {{"case", options.cases.selectors},
          {"set", overrides},
          {"variant", options.variants},
          {"scope", scopes},
          {"timing", timings},
          {"backend", options.worker.backend.name},
          {"device", options.worker.backend.device},
          {"timer", options.worker.backend.timer},
          {"schedule", options.worker.backend.schedule},
          {"batch", options.worker.backend.batch},
          {"inputs", options.worker.inputs_file},
          {"min_samples", options.worker.sampling.min_samples},
          {"max_noise_percent", options.worker.sampling.max_noise_percent},
          {"timeout_s", options.worker.sampling.timeout_s},
          {"deadline_s", options.worker.deadline_s}};
}

std::vector<Case> cases_of(const RunOptions& options, const Device& device) {
  if (options.worker.inputs_file.empty())
    return select_cases(options.cases.selectors, options.cases.overrides, device.memory_bytes);
  const InputFile file = read_inputs(options.worker.inputs_file);
  return {{.name = file.name, .problem = file.problem, .recipe = {}}};
}

std::string key_of(const Planned& planned) {
  return row_key(blank_row(*planned.c, *planned.variant, *planned.instance, planned.scope,
                           planned.timing, planned.variant->target));
}

std::vector<Planned> plan_rows(const RunOptions& options, const std::vector<Case>& cases,
                               const std::vector<SelectedVariant>& selected) {
  std::set<std::string> names;
  for (const Case& c : cases)
    if (!names.insert(c.name).second)
      throw UserError(
          fmt::format("--case: two different cases are named \"{}\"; rename one", c.name));
  std::vector<Planned> plan;
  for (const Case& c : cases)
    for (const Scope scope : options.scopes)
      for (const Timing timing : options.timings)
        for (const SelectedVariant& s : selected)
          plan.push_back({&c, s.variant, s.instance, scope, timing});
  return plan;
}

// The worker and the case that lies on it; both anew after a death.
class Bench {
 public:
  explicit Bench(const WorkerOptions& options)
      : options_(options),
        worker_(std::make_unique<Worker>(options)),
        device_(worker_->device()),
        fingerprint_(worker_->fingerprint()) {}

  const Device& device() const { return device_; }
  const Json& of_backend() const { return fingerprint_; }

  Row measure(const Planned& planned) {
    Row row = blank_row(*planned.c, *planned.variant, *planned.instance, planned.scope,
                        planned.timing, planned.variant->target);
    row.status = Status::failed;
    try {
      lay_out(*planned.c);
      row.input_hash = input_hash_;
      Row measured = worker_->measure(row.variant, planned.scope, planned.timing);
      // What went wrong may have written anywhere: the next row gets a fresh case.
      if (measured.status == Status::incorrect || measured.status == Status::failed)
        laid_out_ = nullptr;
      return measured;
    } catch (const WorkerDied& e) {
      row.reason = e.what();
      worker_.reset();
      laid_out_ = nullptr;
    } catch (const UserError&) {
      throw;
    } catch (const std::exception& e) {
      row.reason = e.what();
    }
    return row;
  }

 private:
  void lay_out(const Case& c) {
    if (!worker_) worker_ = std::make_unique<Worker>(options_);
    if (laid_out_ == &c) return;
    laid_out_ = nullptr;
    input_hash_.clear();
    input_hash_ = worker_->load(c);
    laid_out_ = &c;
  }

  WorkerOptions options_;
  std::unique_ptr<Worker> worker_;
  Device device_;
  Json fingerprint_;
  const Case* laid_out_ = nullptr;
  std::string input_hash_;
};

bool colour_on(std::FILE* stream) {
  return isatty(fileno(stream)) != 0 && std::getenv("NO_COLOR") == nullptr;
}

Exit exit_of(const Report& report) {
  const bool wrong = std::ranges::any_of(report.rows, [](const Row& row) {
    return row.status == Status::incorrect || row.status == Status::failed;
  });
  return wrong ? Exit::incorrect : Exit::fine;
}

void print_case(std::FILE* to, const Report& report, const std::string& case_name) {
  Report part{.fingerprint = report.fingerprint, .options = report.options};
  std::ranges::copy_if(report.rows, std::back_inserter(part.rows),
                       [&](const Row& row) { return row.case_name == case_name; });
  fmt::print(to, "{}", console(part, colour_on(to)));
  std::fflush(to);
}

void deliver(const std::string& path, const std::string& text) {
  if (path == "-")
    fmt::print("{}", text);
  else if (!path.empty())
    write_file(path, text);
}

void require_writable(const std::string& path) {
  if (path.empty() || path == "-") return;
  const std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  if (!std::filesystem::is_directory(folder))
    throw UserError(
        fmt::format("{}: there is no folder {}; create it first", path, folder.string()));
  if (std::filesystem::is_directory(path)) throw UserError(fmt::format("{}: is a folder", path));
  if (access(folder.c_str(), W_OK) != 0)
    throw UserError(fmt::format("{}: the folder {} cannot be written to", path, folder.string()));
}

// What a journal's run was asked for, so that --resume needs no other option.
RunOptions resumed(const RunOptions& given) {
  const Json options = read_report(given.resume).options;
  RunOptions before = given;
  try {
    before.cases.selectors = options.at("case").get<std::vector<std::string>>();
    before.cases.overrides.clear();
    for (const Json& o : options.at("set")) before.cases.overrides.push_back({o.at(0), o.at(1)});
    before.variants = options.at("variant").get<std::vector<std::string>>();
    before.scopes.clear();
    for (const Json& name : options.at("scope")) before.scopes.push_back(scope_named(name));
    before.timings.clear();
    for (const Json& name : options.at("timing")) before.timings.push_back(timing_named(name));
    WorkerOptions& worker = before.worker;
    worker.backend.name = options.at("backend");
    worker.backend.device = options.at("device");
    worker.backend.timer = options.at("timer");
    worker.backend.schedule = options.at("schedule");
    worker.backend.batch = options.at("batch");
    worker.inputs_file = options.at("inputs");
    worker.sampling.min_samples = options.at("min_samples");
    worker.sampling.max_noise_percent = options.at("max_noise_percent");
    worker.sampling.timeout_s = options.at("timeout_s");
    worker.deadline_s = options.at("deadline_s");
  } catch (const Json::exception& e) {
    throw UserError(
        fmt::format("--resume {}: its options cannot be read ({})", given.resume, e.what()));
  }
  if (before.json.empty() && given.resume.ends_with(".jsonl"))
    before.json = given.resume.substr(0, given.resume.size() - 6);
  return before;
}

}  // namespace

int run(const RunOptions& given) {
  const RunOptions options = given.resume.empty() ? given : resumed(given);
  for (const std::string* path : {&options.json, &options.csv, &options.markdown})
    require_writable(*path);

  Bench bench(options.worker);
  Report report{.fingerprint = fingerprint(bench.of_backend()), .options = to_json(options)};
  const std::vector<Case> cases = cases_of(options, bench.device());
  const std::vector<Planned> plan =
      plan_rows(options, cases, select_variants(options.variants, bench.device().target));

  std::optional<JournalFile> journal;
  if (!options.resume.empty())
    journal.emplace(JournalFile::resume(options.resume, report));
  else if (!options.json.empty() && options.json != "-")
    journal.emplace(JournalFile::create(options.json + ".jsonl", report));
  std::set<std::string> done;
  for (const Row& row : report.rows) done.insert(row_key(row));

  // Tables go to standard output unless a file format was asked for there.
  const bool taken = options.json == "-" || options.csv == "-" || options.markdown == "-";
  std::FILE* const tables = taken ? stderr : stdout;
  Progress progress(plan.size());
  for (std::size_t i = 0; i < plan.size(); ++i) {
    const Planned& planned = plan[i];
    if (done.contains(key_of(planned))) {
      progress.skip();
    } else {
      progress.doing(planned.c->name, variant_id(*planned.variant, *planned.instance),
                     planned.scope, planned.timing);
      report.rows.push_back(bench.measure(planned));
      if (journal) journal->append(report.rows.back());
      progress.finished(report.rows.back());
    }
    if (i + 1 == plan.size() || plan[i + 1].c != planned.c) {
      progress.clear();
      print_case(tables, report, planned.c->name);
    }
  }
  if (journal) journal->finish();
  deliver(options.json, json(report));
  deliver(options.csv, csv(report));
  deliver(options.markdown, markdown(report));
  if (options.lab_score) fmt::print(tables, "{}", lab_summary(report));
  return static_cast<int>(exit_of(report));
}

}  // namespace gdn
