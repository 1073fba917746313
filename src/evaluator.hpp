// What a search strategy may ask about the candidates of one problem (a case, scope and timing):
// samples of one, or pairs of two. Answered by a device, by a record of earlier answers, or both.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/paired.hpp"
#include "src/result.hpp"

namespace gdn {

// All that is known of a candidate on the problem so far.
struct Evaluation {
  Status status = Status::passed;
  std::string reason;  // why not passed; such a candidate is out
  std::vector<double> samples_s;
  std::vector<std::string> flags;  // as of a row: throttled, not_queued, …; each once
  double setup_s = 0;              // spent on set-up, check and warm-up
  double sampling_s = 0;           // spent on the samples
};

class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Sees to it that there are at least `samples` of the candidate (an id like "wide:stages=1").
  // There are fewer where its status is not `passed`, or where no more can be had. Never throws for
  // what the candidate does. The reference holds until the next call.
  virtual const Evaluation& evaluate(const std::string& candidate, std::size_t samples) = 0;

  // Pairs of two candidates that have passed, or of one with itself; none where one of them fails
  // meanwhile, which its next evaluate() says. What is wrong with the pairs flags both. After a
  // resume the evaluations may stand in a record alone: then this is the first that is heard of the
  // two.
  virtual Pairs pair(const std::string& a, const std::string& b, const PairPlan& plan,
                     double noise_floor) = 0;

  // Seconds that the answers so far have cost, set-up included: what a time limit is about. An
  // answer from a record costs what it cost then.
  virtual double spent_s() const = 0;
};

}  // namespace gdn
