// Candidates measured on a device, by a worker process that is replaced when it dies.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "src/evaluator.hpp"
#include "src/tuning_record.hpp"
#include "src/worker.hpp"

namespace gdn {

class LiveBench {
 public:
  // Throws UserError where there is no such backend or device.
  explicit LiveBench(const WorkerOptions& options);
  ~LiveBench();

  const Device& device() const;
  const nlohmann::json& of_backend() const;  // the backend's part of the fingerprint

  // Nothing is laid out before the first question. Pairs may be asked for without an evaluation:
  // after a resume the record has those. One evaluator at a time; it must not outlive the bench.
  std::unique_ptr<Evaluator> evaluator(const TuningProblem& problem);

 private:
  class Process;
  std::unique_ptr<Process> process_;
};

}  // namespace gdn
