// Measuring happens in another process, which serves many rows. A hang, a crash or a sticky device
// error costs the row it happened in and the worker, which is replaced, never the run.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/backend.hpp"
#include "src/case.hpp"
#include "src/result.hpp"
#include "src/timer.hpp"
#include "src/workbench.hpp"

namespace gdn {

struct WorkerOptions {
  std::string program;  // of another build; "" : this one
  BackendOptions backend;
  std::string inputs_file;  // "" : inputs are generated from the case
  std::string dump_folder;  // "" : no dump
  Sampling sampling;
  double deadline_s = 120;  // for one row beside its sampling, or for laying out one case
};

// The worker ended, or had to be ended, before it answered. What it says becomes the row's reason.
struct WorkerDied : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr const char* no_such_instance = "this build has no ";  // and its id: a row's reason

class Worker {
 public:
  // Starts the program as a worker and waits until it stands. Throws UserError for what the user
  // can mend (no such backend, device or program).
  explicit Worker(const WorkerOptions& options);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const Device& device() const { return device_; }
  const nlohmann::json& of_backend() const { return of_backend_; }
  const nlohmann::json& build() const { return build_; }  // see fingerprint.hpp

  // Lays a case out: inputs, g, A and the fp64 reference. Returns the hash of its inputs.
  std::string load(const Case& c);
  Row measure(const std::string& variant, Scope scope, Timing timing);

  // Stands, as the workbench has them.
  Workbench::Opened open_stand(const std::string& variant, Scope scope, Timing timing);
  std::vector<double> take(int stand);
  Row settle(int stand, bool ends);

 private:
  nlohmann::json ask(nlohmann::json question, double seconds);
  void greet();
  void end();
  std::string post_mortem();  // waits for the ended process and says how it ended

  WorkerOptions options_;
  int pid_ = -1;
  int group_ = -1;  // of a program of another build, and of what that has started
  int socket_ = -1;
  std::int64_t questions_ = 0;
  std::string received_;  // bytes after the last whole line
  Device device_;
  nlohmann::json of_backend_, build_;
};

// The other side: is told its options and answers on the socket until that is closed. Returns the
// exit code.
int serve(int socket);
inline constexpr int worker_socket = 3;  // the descriptor that a worker is started with

}  // namespace gdn
