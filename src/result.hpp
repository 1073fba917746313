// What a run leaves behind: rows, and the report that holds them. JSON is their written form.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/variant.hpp"
#include "src/verdict.hpp"

namespace gdn {

inline constexpr const char* schema_name = "gdnbench/1";

enum class Timing { cold, hot, graph, lab };
enum class Status { passed, incorrect, failed, skipped };

inline constexpr std::array all_scopes = {Scope::core, Scope::forward};
inline constexpr std::array all_timings = {Timing::cold, Timing::hot, Timing::graph, Timing::lab};

struct TimeSummary {
  double median = 0, q1 = 0, q3 = 0, min = 0;
  // 95 % interval of the median by order statistics; absent below 6 samples, where there is none.
  // Of several rounds: see rounds.hpp.
  std::optional<std::pair<double, double>> ci95;
};

struct ErrorSummary {
  // Largest over sequences and heads of rms(x - ref) / rms(ref); NaN where a NaN was put out.
  double output_rms = 0;
  double state_rms = 0;
  std::string worst;  // "output: sequence 0, head 3, token 17, dimension 5: 0.31 instead of 0.30"
  bool lab_passed = false;
};

struct KernelTime {
  std::string name;
  double time_s = 0;
};

// How a row's instance compares with another one, or with itself in another build: by interleaved
// pairs (paired.hpp). A is the other one; ratios are times of the row over times of A.
struct Against {
  std::string variant;   // of A
  std::string revision;  // of A's build, where it is another one
  double median_s = 0;   // A's
  double ratio = 1;
  std::optional<std::pair<double, double>> ci95;
  double rank_p = 1, equivalence_p = 1;  // see PairedRatio
  std::int64_t pairs = 0;
  double noise_floor = 0;  // what A against itself does not rule out, as a share of 1
  double difference_percent = 1;
  Verdict verdict = Verdict::inconclusive;
  std::vector<double> samples_s;  // A's; pair by pair those of the row

  struct Once {  // one of several whole comparisons
    double ratio = 1;
    std::optional<std::pair<double, double>> ci95;
    double noise_floor = 0;
    std::int64_t pairs = 0;
    double seconds = 0;  // it took
    Verdict verdict = Verdict::inconclusive;
  };
  std::vector<Once> repeats;  // none of a single one
};

// Why a row of `--variant tuned` is of this variant: what it was the winner of.
struct TunedAs {
  std::string case_name;  // as it was tuned
  Timing timing = Timing::cold;
  double distance = 0;  // of the row's problem from that one: see wisdom.hpp
  bool exact = false;   // it is the very problem, in the row's timing
};

// Why a row of `--variant auto` is of this variant.
struct ChosenAs {
  std::string reason;      // one sentence
  double predicted_s = 0;  // by the model: see dispatch.hpp
};

inline constexpr std::size_t kept_samples = 200;  // of a row

// One measured (case, variant, scope, timing).
struct Row {
  std::string case_name;
  std::string variant;  // the id that --variant takes
  std::vector<Knob> knobs;
  std::string bound;  // what the variant leaves out at most; "": nothing
  std::string backend;
  Scope scope = Scope::core;
  Timing timing = Timing::cold;
  std::string timer;  // clock, events, cupti
  std::string flush;  // how the cache was flushed before a sample: "none", "256 MiB written"
  Status status = Status::passed;
  std::string reason;  // why not passed
  std::optional<TimeSummary> time_s;
  // At most kept_samples, evenly picked in order of time; of several rounds as many from each.
  std::vector<double> samples_s;
  std::int64_t samples = 0;             // how many were taken
  std::vector<double> round_medians_s;  // one a round, wherever there is a time
  double host_s = 0;                    // host time of one launch
  std::optional<Against> against;
  std::optional<ErrorSummary> error;
  std::vector<KernelTime> kernels;
  nlohmann::json resources = nlohmann::json::object();
  nlohmann::json telemetry = nlohmann::json::object();
  std::int64_t chain_chunks = 0;
  std::uint64_t workspace_bytes = 0;
  double flop = 0;
  double bytes = 0;
  std::string input_hash;          // 16 hexadecimal digits
  std::string output_hash;         // of output and final state: two runs that agree bit for bit
  std::vector<std::string> flags;  // noisy, few_samples, timeout, throttled, …
  std::optional<TunedAs> tuned;    // only of a row that --variant tuned selected
  std::optional<ChosenAs> chosen;  // only of a row that --variant auto selected
};

struct Report {
  nlohmann::json fingerprint = nlohmann::json::object();
  nlohmann::json options = nlohmann::json::object();  // what the run was asked for
  std::vector<Row> rows;
};

// Of a row that does not pass: takes away what only those have that do, its times.
void give_up(Row& row, Status status, const std::string& reason);

// What makes a row the same row in another file, and in a resumed run: "case/variant/scope/timing".
std::string row_key(const Row& row);

// The rung that a row's id belongs to: what stands before its knobs.
std::string rung_of(const Row& row);

double tflops(const Row& row);           // flop / median / 1e12; 0 without a time
double gigabytes_per_s(const Row& row);  // bytes / median / 1e9; 0 without a time

// docs/result-schema.json describes them. What is not finite (the rms of an output with a NaN) is
// written as null, and read back as NaN.
nlohmann::json to_json(const TunedAs& tuned);
nlohmann::json to_json(const ChosenAs& chosen);
nlohmann::json to_json(const Row& row);
nlohmann::json to_json(const Report& report);
// Throw UserError that names the missing or ill-typed field. Fields that they do not know are
// ignored, and most may be absent: what stands for the row's identity and status may not.
Row row_from_json(const nlohmann::json& json);
Report report_from_json(const nlohmann::json& json);

// The journal of a run, which grows by a line per finished row: first a header with schema,
// fingerprint and options, and journal_end when the run is complete. Of the lines of one row, which
// come with further rounds, the last counts. Every line ends in a newline; a line without it was
// torn by a kill and does not count.
std::string journal_header(const Report& report);
std::string journal_line(const Row& row);
inline constexpr const char* journal_end = "{\"finished\":true}\n";

struct Journal {
  Report report;
  bool finished = false;
  std::uintmax_t whole_bytes = 0;  // up to the last newline: resize to this before going on
};
Journal read_journal(const std::string& path);

// Reads a report (.json) or the journal of a run (.jsonl, also an unfinished one): told apart by
// what is in it. Throws UserError for a missing, truncated or foreign file.
Report read_report(const std::string& path);
Report parse_report(std::string_view text, const std::string& source);  // the name in errors

// Throw UserError with a suggestion for a name that is none.
Scope scope_named(const std::string& name);
Timing timing_named(const std::string& name);

std::string_view name_of(Timing timing);
std::string_view name_of(Status status);

}  // namespace gdn
