// The command line as values.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "src/against.hpp"
#include "src/case.hpp"
#include "src/compare.hpp"
#include "src/strategy.hpp"
#include "src/worker.hpp"

namespace gdn {

// Which cases a command is about.
struct CaseSelection {
  std::vector<std::string> selectors;
  std::vector<Override> overrides;
};

struct RunOptions {
  CaseSelection cases;
  std::vector<std::string>
      variants;         // globs over ids, `tuned`, `auto`; none selects all of the backend
  std::string wisdom;   // the file that `tuned` is looked up in; "": the device's own
  bool strict = false;  // whether stale wisdom is an error
  bool exact = false;   // whether `auto` must leave nothing out
  std::vector<Scope> scopes = {Scope::core, Scope::forward};
  std::vector<Timing> timings = {Timing::cold};
  WorkerOptions worker;
  AgainstOptions against;  // rows in pairs, where it is wanted
  int rounds = 1;
  bool lab_score = false;
  std::string json, csv, markdown;  // paths; "" for none, "-" for standard output
  std::string resume;               // a journal, or ""
};

struct TuneOptions {
  RunOptions measured;  // cases, candidates, scopes, timings, how they are sampled; json, resume
  std::string space;    // a space file; "" for those of the tuning folder
  Strategy strategy = Strategy::racing;
  std::uint64_t seed = 1;                // of the search
  std::optional<std::size_t> max_evals;  // candidates, of each problem
  std::optional<double> time_limit_s;    // of the whole command
  std::size_t shard = 1, shards = 1;     // problems shard, shard + shards, …
  std::vector<int> devices = {0};        // of one kind; each takes the next problem
  bool dry_run = false;
  std::string output, record, replay, t4;  // paths; "" for none
};

struct ListOptions {
  enum class What { cases, variants, devices } what = What::cases;
  CaseSelection cases;
};

struct InputsOptions {
  CaseSelection cases;
  std::string output;
};

struct CompareCommand {
  std::string base, head;
  CompareOptions options;
  std::string markdown, junit;  // paths; "" for none, "-" for standard output
};

struct ProfileOptions {
  CaseSelection cases;
  std::vector<std::string> variants;  // globs over ids that select one, or `auto`
  bool exact = false;                 // whether `auto` must leave nothing out
  Scope scope = Scope::core;
  int iterations = 5;
  BackendOptions backend;
};

struct DoctorOptions {};

// A result file again: as tables, other formats, or the ladder's table in a document.
struct ReportCommand {
  std::string file;
  std::string csv, markdown;        // paths; "" for none, "-" for standard output
  std::string ladder;               // a Markdown document with the ladder's marks; "" for none
  std::string knobs;                // a page on the knobs; "" for none, "-" for standard output
  std::vector<std::string> beside;  // results of other settings, for that page
  Scope scope = Scope::core;        // of the ladder's table and the page
  Timing timing = Timing::graph;
};

// The winners that tuning found: as a table, or in another format.
struct WisdomCommand {
  enum class What { show, export_it } what = What::show;
  std::string file;             // "" for that of the device
  std::string format = "json";  // json, cpp, csv
  std::string output = "-";     // a path; "-" for standard output
};

// Files of one kind as one.
struct MergeCommand {
  std::vector<std::string> files;
  std::string output;  // a path; "-" for standard output
  bool newer = false;  // where two differ, the later file counts
};

struct WorkCommand {};  // what a run starts itself again as

// The command line answered itself (--help, --version) or was wrong: nothing is left but to leave.
struct Leave {
  int exit_code = 0;
};

using Command =
    std::variant<RunOptions, TuneOptions, ListOptions, InputsOptions, CompareCommand, ReportCommand,
                 ProfileOptions, WisdomCommand, MergeCommand, DoctorOptions, WorkCommand, Leave>;

// Prints help, version and usage errors itself. Throws UserError for values that contradict.
Command parse_command_line(int argc, char** argv);

}  // namespace gdn
