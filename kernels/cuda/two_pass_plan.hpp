// How the two-pass way cuts sequences into segments, and what each of its launches has to do: what
// the host makes outside the timing. Tested on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/variant.hpp"

namespace gdn {

// A segment of a sequence: its chunks `first` … `end` − 1, for all heads. An empty sequence is one
// segment of none. Boundaries between segments are numbered through all sequences: `boundary` is
// the one behind it, if another segment follows, and `boundary` − 1 that before it.
struct Part {
  std::int32_t sequence;
  std::int32_t token, length;  // of the sequence
  std::int32_t first, end;
  std::int32_t boundary;
};

// The boundaries of a sequence that has some.
struct Boundaries {
  std::int32_t first, count;
};

struct Plan {
  std::vector<Part> outputs;      // all segments, the longest first
  std::vector<Part> transitions;  // those that another one follows, the longest first
  std::vector<Boundaries> scans;
  int boundaries = 0;

  int longest() const;  // chunks of the longest segment
  // Chunks that a warm-up may have. It may take as long as the transitions that it saves; where
  // these are short, launches and scan are what it saves.
  int reach() const;
};

// Every sequence in `segments` of equal length, or as many as it has chunks.
Plan plan(const Problem& problem, int segments);
// The cut that takes the least time by what a chunk and a step of the scan are taken to cost, on
// `processors` that do one CTA at a time, `slices` of them for a segment and head in the last
// launch. It may be that nothing is cut.
Plan plan_for(const Problem& problem, int processors, int slices);
// By the same costs: what goes before the last launch, in chunks of that one. 0 if nothing is cut.
double chunks_before_outputs(const Plan& plan, const Problem& problem, int processors, int slices);

}  // namespace gdn
