// How the two-pass way cuts sequences into segments, and what each of its launches has to do: what
// the host makes outside the timing. Tested on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/host_device.hpp"
#include "kernels/variant.hpp"

namespace gdn {

// A segment of a sequence: its chunks `first` … `end` − 1, for all heads. An empty sequence is one
// segment of none. Boundaries between segments are numbered through all sequences: `boundary`
// is the one behind it, if another segment follows, and `boundary` − 1 that before it. Those of a
// sequence, from `first_boundary` on, are in groups of `group`.
struct Part {
  std::int32_t sequence;
  std::int32_t token, length;  // of the sequence
  std::int32_t first, end;
  std::int32_t boundary;
  std::int32_t first_boundary, group;

  // Those of its sequence before the one that the boundary before it is in.
  GDNBENCH_HOST_DEVICE int groups_before() const {
    return first == 0 ? 0 : (boundary - 1 - first_boundary) / group;
  }
};

// A group of boundaries that the scan goes through one after the other, for N or for M.
struct Boundaries {
  std::int32_t first, count;
  bool of_M;
};

struct Plan {
  std::vector<Part> outputs;      // all segments, the longest first; of equal ones the last
  std::vector<Part> transitions;  // those that another one follows, in the same order
  std::vector<Boundaries> scans;
  int boundaries = 0;

  int longest() const;  // chunks of the longest segment
  // Chunks that a warm-up may have. More of them would take longer than the transitions and the
  // scan, which all segments wait for if one does.
  int reach() const;
  int steps() const;  // one after the other, of the scan and then of outputs
};

// Every sequence in `segments` of equal length, or as many as it has chunks. A sequence's
// boundaries are one group, or groups of about the root of their number: what takes the least time
// by what a chunk and a step of the scan are taken to cost, on `processors` that do one CTA at a
// time, `slices` of them for a segment and head in the last launch.
Plan plan(const Problem& problem, int segments, int processors, int slices);
// Of all cuts the one that takes the least time. It may be that nothing is cut.
Plan plan_for(const Problem& problem, int processors, int slices);

}  // namespace gdn
