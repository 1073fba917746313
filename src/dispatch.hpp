// Which instance to run where nothing was tuned: a model of what each costs, in measured constants,
// picks the cheapest and says why. Beside kernels/ it needs fmt alone: a server may copy it.
//
// A variant goes through a sequence, or a segment of it, in one CTA for a head and 64 or 128 of its
// values (on the CPU: in a thread for a head), chunk after chunk. Then
//   time = Σ over launches of  start + chunk · longest + share · load      start is one for all
//   longest  chunks until the last processor is done, where each takes the next CTA as soon as it
//            is free: of one wave the longest CTA, of several what they come to
//   load     chunks of all CTAs, a processor: what CTAs side by side take from each other's memory
//            and what kernels before and after the chain spread over all processors
// A CTA takes 1.3 chunks more than it has, to fill and drain its pipeline, and three where it
// begins with a given state. A chunk of a warm-up, without output, is 0.7 of one, or 0.78 where no
// other head has the same keys, and a segment that warms up takes one more, in which it looks for
// where to begin. A transition has a cost of its own, and seven more to write what it found. The
// two further launches of two_pass are 3 starts together, and its outputs begin beside them. A
// preparation takes one chunk, its first, whatever its load.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/variant.hpp"

namespace gdn {

// What is known of the inputs beside their shape.
struct KnownInputs {
  bool unit_keys = true;      // all keys have length 1, which an instance's bound goes by
  bool exact = false;         // nothing may be left out: no instance that has a bound
  double chunk_gates = -3.2;  // Σ log α of a chunk, of the head that forgets least; <= 0
};

struct Dispatch {
  const Variant* variant = nullptr;
  const Instance* instance = nullptr;
  double predicted_s = 0;  // graph timing on the device that the costs are of
  std::string reason;      // one sentence
};

// The instance with the lowest prediction among those of `rungs` that the device, the problem and
// the inputs allow; of equal ones the first. Nothing where none is allowed or no cost is known.
std::optional<Dispatch> dispatch(std::span<const Variant> rungs, const Problem& problem,
                                 Scope scope, const Device& device, const KnownInputs& inputs);

// The model. A cost is of all instances of a variant that have the knobs it names; the first that
// fits counts. segmented and two_pass are register_state on segments.
struct Cost {
  std::string_view kind;  // "register_state:stages=3:value_width=64"
  int values;             // of a head, a CTA; 0 where that is no matter
  double chunk_us, share_us;
};

std::span<const Cost> costs();

// What there is to do of a kind, in chunks; of a scan in steps, of "cuda:start" in starts.
struct Work {
  const Cost* cost;
  double longest = 0, load = 0;
};

// What an instance has to do in a scope, with the preparation where it does not serve that by
// itself. Nothing where its cost is not known.
std::vector<Work> work_of(const Variant& variant, const Instance& instance, Scope scope,
                          const Problem& problem, const Device& device, const KnownInputs& inputs);

}  // namespace gdn
