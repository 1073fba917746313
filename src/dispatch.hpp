// Which instance to run where nothing was tuned: a model of what each costs, in three measured
// constants, picks the cheapest and says why. Beside kernels/ it needs fmt alone: a server may
// copy it.
//
// A variant goes through a sequence, or a segment of it, in one CTA for a head and 64 or 128 of its
// values (on the CPU: in a thread for a head), chunk after chunk. Then
//   time = start + chunk · longest + share · load
//   longest  chunks until the last processor is done, where each takes the next CTA as soon as it
//            is free: of one wave the longest CTA, of several what they come to
//   load     chunks of all CTAs, a processor: what CTAs side by side take from each other's memory
//            and what kernels before and after the chain spread over all processors
// A CTA takes one chunk more than it has, to fill and drain its pipeline, and a chunk of warm-up
// (rung 9) is 0.7 of one, since it stores no output; the ninth and later ones, of which there is no
// measurement, are whole ones. Where two_pass needs transitions and a scan, these are counted as
// the chunks that its plan takes them for (kernels/cuda/two_pass_plan.hpp).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

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

// The model. A cost is of all instances of a variant that have the knobs it names, segmented being
// register_state on segments; "cuda:preparation" and "cpu:preparation" are added in the forward
// scope, for a load of all chunks and heads, to what does not serve it by itself.
struct Cost {
  std::string_view kind;  // "register_state:stages=3:value_width=64"
  int values;             // of a head, a CTA
  double start_us, chunk_us, share_us;
};

std::span<const Cost> costs();
const Cost* cost_of(const Variant& variant, const Instance& instance);  // null: not known

struct Load {
  double longest = 0, load = 0;  // chunks
};

// Of an instance of this cost.
Load load_of(const Cost& cost, const Variant& variant, const Instance& instance,
             const Problem& problem, const Device& device, const KnownInputs& inputs);
Load load_of_preparation(const Problem& problem, const Device& device);

}  // namespace gdn
