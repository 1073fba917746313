// Candidates measured on a device.
#pragma once

#include <memory>

#include "src/bench.hpp"
#include "src/evaluator.hpp"
#include "src/tuning_record.hpp"

namespace gdn {

// Each candidate is checked and warmed up once and stays so; every answer ends with another check.
// Nothing is laid out before the first question. Pairs may be asked for without an evaluation:
// after a resume the record has those. `timeout_s` bounds the sampling of one candidate. One
// evaluator of a bench at a time; it must not outlive the bench.
std::unique_ptr<Evaluator> live_evaluator(Bench& bench, const TuningProblem& problem,
                                          double timeout_s);

}  // namespace gdn
