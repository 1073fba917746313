// One case laid out on a backend: inputs, outputs, reference. Measures instances on it, a row at a
// time or several by turns, and lets nothing be timed that is not right.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/backend.hpp"
#include "src/case.hpp"
#include "src/check.hpp"
#include "src/inputs.hpp"
#include "src/timer.hpp"

namespace gdn {

inline constexpr const char* out_of_memory = "out of memory";  // the reason of such a row

// A tensor between two guards. Everything is NaN until it is written, so what a kernel reads past
// the end is NaN too; what it writes there is found.
class Guarded {
 public:
  Guarded() = default;
  Guarded(Backend& backend, std::size_t bytes);

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }
  void poison(Backend& backend) const { backend.fill_nan(data_, bytes_); }
  bool intact(Backend& backend) const;  // the guards
  std::uint64_t hash(Backend& backend) const;

 private:
  Memory memory_;
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

struct MeasureRequest {
  const Variant* variant = nullptr;
  const Instance* instance = nullptr;
  Scope scope = Scope::core;
  Timing timing = Timing::cold;
  Sampling sampling;
  std::string dump_folder;  // "" for none: where output, reference and difference are written
  // What is done with the checked launch; null: it is timed.
  std::function<void(const Launch&)> instead_of_timing;
};

// The name of the file that a row leaves in its dump_folder.
std::string dump_name(const std::string& case_name, const std::string& variant, Scope scope);

// The row of a request before anything is measured: names, sizes, FLOP and bytes.
Row blank_row(const Case& c, const Variant& variant, const Instance& instance, Scope scope,
              Timing timing, Target target);

class Workbench {
 public:
  // `file`, when given, brings the inputs; else they are generated from the case.
  Workbench(Backend& backend, Case c, const InputFile* file);
  ~Workbench();

  const std::string& input_hash() const { return input_hash_; }

  // Never throws for what the instance does: the row says it.
  Row measure(const MeasureRequest& request);

  // A stand: an instance that was checked and warmed up, to be sampled whenever it is asked for,
  // beside others of the same scope. Its row has no time. No number where it did not pass.
  struct Opened {
    Row row;
    std::optional<int> number;
  };
  Opened open(const MeasureRequest& request);
  // One queue of samples; none any more once the stand was found wrong, which settle() tells.
  std::vector<double> take(int number);
  Row settle(int number, bool ends);  // checked once more

 private:
  struct Checked {
    bool forward = false;
    bool prepares = false;  // the launch begins with the preparation
    Guarded workspace, preparation_workspace;
    Launch launch;
    std::uint64_t hash = 0;  // of its results
  };
  struct Stand;

  Row attempt(const MeasureRequest& request, const std::function<void(Row&)>& work);
  Checked make_checked(const MeasureRequest& request, Row& row);
  const Finding& finding_on_results(std::uint64_t hash);
  void recheck(const Checked& checked, const char* when);
  SpotChecks spot_checks(const Checked& checked);
  void time(const MeasureRequest& request, const Checked& checked, Row& row);
  void end_telemetry(Row& row);
  std::vector<const Guarded*> inputs() const;
  std::string hash_inputs();
  std::uint64_t hash_structure();
  std::uint64_t hash_results();
  void poison_results(bool preparation_too);
  void poison_prepared();
  std::uint64_t hash_prepared();
  void verify_surroundings(const Guarded& workspace);
  void dump(const MeasureRequest& request, const Row& row);

  Backend& backend_;
  Case case_;
  std::optional<Recipe> recipe_;
  Guarded q_, k_, v_, raw_g_, beta_, initial_state_;
  Guarded offsets_, chunks_, first_chunk_;
  Guarded g_, A_, A_low_, output_, final_state_;
  Tensors tensors_;
  std::string input_hash_;
  std::uint64_t structure_hash_ = 0;       // of the chunk map
  std::optional<std::uint64_t> prepared_;  // hash of g, A and A_low, when they are there
  bool keys_normalised_ = true;
  std::vector<double> reference_output_, reference_state_;
  std::map<std::uint64_t, Finding> findings_;  // by the hash of the results
  std::map<int, std::unique_ptr<Stand>> stands_;
  int next_stand_ = 0;
  int last_taken_ = -1;
};

}  // namespace gdn
