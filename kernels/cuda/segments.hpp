// Where rungs 9 and 11 cut sequences into segments, and with which chunk a segment begins: what the
// host decides and the rule that the device goes by. Tested on the host.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/host_device.hpp"
#include "kernels/variant.hpp"

namespace gdn {

// A segment of a sequence: its chunks `first` … `end` − 1, for all heads. An empty sequence is one
// segment of none.
struct Piece {
  std::int32_t sequence;
  std::int32_t token, length;  // of the sequence
  std::int32_t first, end;
};

// What a segment is expected to go through before its own chunks, in chunks that take as long: with
// gates as those of the public cases, which come to −3.2 a chunk, four, and without output they
// take two thirds of the time. The host does not know the gates.
inline constexpr int expected_warm_up = 3;

// All segments of all sequences, those with most chunks first, warm-up included. The segments of
// one sequence have as many each.
//
// Into `segments` a sequence, or as many as it has chunks behind expected_warm_up:
std::vector<Piece> cut(const Problem& problem, int segments);
// For `processors` that go through `ctas` a segment, such that all segments are under way at once.
// Where there are too many sequences for that, none is much longer than a processor's share:
std::vector<Piece> cut_for(const Problem& problem, int processors, int ctas);

// The chunk to begin with, from S = 0, so that chunk `first` is reached with what the chunks before
// it leave behind: the last one from which on the gates come to `threshold` or less, or 0, from
// where it is exact. `gate(chunk)` is g at a chunk's end. `team` are threads that do this together,
// `size` chunks at once: its `scan` adds up its members' numbers up to one's own, `first_of` is the
// first member of whom something is true, or `size`, and `last_of` is what the last one has.
template <class Team, class Gate>
GDNBENCH_HOST_DEVICE int warm_up_start(int first, float threshold, const Team& team, Gate gate) {
  float sum = 0;
  for (int behind = first; behind > 0; behind -= Team::size) {
    const int chunk = behind - 1 - team.rank();
    const float up_to_here = sum + team.scan(chunk >= 0 ? gate(chunk) : 0);
    const int found = team.first_of(chunk == 0 || up_to_here <= threshold);
    if (found < Team::size) return behind - 1 - found;
    sum = team.last_of(up_to_here);
  }
  return 0;
}

}  // namespace gdn
