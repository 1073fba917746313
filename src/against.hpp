// Rows measured in pairs: against one other instance, or each against itself in another build.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "src/bench.hpp"
#include "src/paired.hpp"

namespace gdn {

struct AgainstOptions {
  std::string variant;  // A's id; "" : the same as the row's
  std::string program;  // of A's build; "" : this one
  PairPlan plan;
  int repeat = 1;  // whole comparisons, each of fresh stands and another order

  bool wanted() const { return !variant.empty() || !program.empty(); }
};

// Pairs of two stands; none where one of them fails, which its row then says.
Pairs take_pairs(Bench::Stand& a, Bench::Stand& b, const PairPlan& plan, double noise_floor);

class PairedBench {
 public:
  // `own` measures B, and A where it is of the same build.
  PairedBench(Bench& own, const WorkerOptions& worker, const AgainstOptions& options);

  const Bench& other() const { return other_ ? *other_ : own_; }  // A's

  // The row of `planned` with its time from the pairs, and what they say in `against`. First A is
  // paired with itself, in the same processes or as far apart as A and B are: the noise floor.
  // Never throws for what an instance does.
  Row measure(const Planned& planned);

 private:
  struct Comparison {
    Row row;  // of B
    Pairs pairs;
    double noise_floor = 0;
    double seconds = 0;
  };
  Comparison compare(const Planned& a, const Planned& b, std::uint64_t seed);
  Planned other_of(const Planned& planned) const;
  Row culprit_of(const Planned& a, const Planned& b, const Row& row_of_a, const Row& row_of_b);

  AgainstOptions options_;
  Bench& own_;
  std::unique_ptr<Bench> other_, like_;  // A's and one like it, where they are of another build
};

}  // namespace gdn
