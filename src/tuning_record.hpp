// The record of a search: every answer that an evaluator gave, so that a search can go on after a
// kill, and any strategy be tried again without a device. JSON lines:
//
//   {"schema":"gdnbench-record/1","measured_at":"2025-11-29T20:40:58Z","fingerprint":{…},
//    "options":{…}}
//   {"problem":{…},"candidate":"wide:…","status":"passed","reason":"","first":0,
//    "samples_s":[…],"setup_s":0.2,"sampling_s":0.1,"seconds":0.4}
//                                                           the new samples, from number `first` on
//   {"problem":{…},"a":"wide:…","b":"fused:…","a_s":[…],"b_s":[…],"seconds":0.4,"lost":[]}
//   {"finished":{…}}                                        a problem's search is at its end
//
// Where something was wrong with the samples or pairs of a line, it has "flags":["throttled"] as
// well. Times in a line are what that answer cost, not sums. A line without its newline was torn by
// a kill and does not count.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/appended_file.hpp"
#include "src/case.hpp"
#include "src/evaluator.hpp"
#include "src/strategy.hpp"

namespace gdn {

class Field;

inline constexpr const char* record_schema = "gdnbench-record/1";

// What one search is about.
struct TuningProblem {
  Case c;
  Scope scope = Scope::core;
  Timing timing = Timing::cold;
};

// {"case", "lengths": [tokens of each sequence], "query_heads", "value_heads", "initial_state",
// "gates", "beta_max", "seed", "scope", "timing"}: equal for equal problems.
nlohmann::json to_json(const TuningProblem& problem);
TuningProblem problem_from_json(const nlohmann::json& json);  // throws UserError

// What a call of evaluate() added.
struct Answer {
  std::string candidate;
  Status status = Status::passed;
  std::string reason;
  std::size_t first = 0;  // how many samples there were before
  std::vector<double> samples_s;
  std::vector<std::string> flags;  // see Evaluation
  double setup_s = 0, sampling_s = 0;
  double seconds = 0;  // all that the answer cost: also laying the problem out, and the last check
};

// Of an answer's line, `first`: throws UserError where another number of its candidate's samples
// stands before it.
void require_next(const Field& first, std::size_t before);

// A call of pair(). Where there are no pairs, `lost` has who failed meanwhile.
struct Meeting {
  std::string a, b;
  Pairs pairs;
  double seconds = 0;
  std::vector<Loser> lost;
  std::vector<std::string> flags;  // of both
};

struct RecordedProblem {
  nlohmann::json problem;
  std::vector<Answer> answers;    // in order
  std::vector<Meeting> meetings;  // in order
  bool finished = false;

  // Each candidate's answers put together, as they stand in the end.
  std::map<std::string, Evaluation> evaluations() const;
};

struct TuningRecord {
  std::string measured_at;  // UTC, when it was begun; "" in a record that does not say it
  nlohmann::json fingerprint, options;
  std::vector<std::string> candidates;    // of the options
  std::vector<RecordedProblem> problems;  // as they were begun
  std::uintmax_t whole_bytes = 0;         // up to the last newline

  RecordedProblem of(const nlohmann::json& problem) const;  // empty where there is none
};

// Throws UserError that names the line and the field for a file that is no record, and for one in
// which an answer is missing or stands twice.
TuningRecord read_record(const std::string& path);

// A record while it is written, locked as a journal is. Searches of several threads may share it.
class RecordFile {
 public:
  // Throws UserError where the file is there already: what it holds has cost time.
  static RecordFile create(const std::string& path, const nlohmann::json& fingerprint,
                           const nlohmann::json& options);
  static RecordFile reopen(const std::string& path);
  const TuningRecord& before() const { return before_; }  // what a search was asked for
  // Throws UserError when it is the record of another build, device or search; `options` have a
  // list of "candidates", whose order does not matter.
  void go_on(const nlohmann::json& fingerprint, const nlohmann::json& options);

  RecordedProblem known_of(const nlohmann::json& problem) const;  // before this process

  // On disk when they return.
  void append(const nlohmann::json& problem, const Answer& answer);
  void append(const nlohmann::json& problem, const Meeting& meeting);
  void finish(const nlohmann::json& problem);  // once, however often it is called

 private:
  RecordFile(const std::string& path, bool create) : file_(path, create, "--record") {}

  AppendedFile file_;
  TuningRecord before_;
  std::unique_ptr<std::mutex> mutex_ = std::make_unique<std::mutex>();  // of both
};

// Answers call by call as the record has them, then asks `inner` and writes down what it says.
// Each call takes one line: a search that is repeated takes the same path.
std::unique_ptr<Evaluator> recording_evaluator(Evaluator& inner, RecordFile& file,
                                               const nlohmann::json& problem);

// Answers from the record alone. A candidate's samples are handed out in their order; they cost its
// set-up once, and of its sampling time their share. A candidate that failed in the end fails at
// once; one that is not in the record is skipped. Pairs that are not in the record are made of the
// two candidates' own samples, index by index, at the cost of these: drift stays in them. A
// candidate with itself is then its even samples against the odd ones.
std::unique_ptr<Evaluator> replay_evaluator(const RecordedProblem& record);

}  // namespace gdn
