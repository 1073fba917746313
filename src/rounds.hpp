// A row over several rounds, each measured in a process of its own: where buffers come to lie,
// clocks and temperature are drawn anew, so that the medians of rounds differ by more than the
// interval within any of them.
#pragma once

#include "src/result.hpp"

namespace gdn {

// Adds another round to a passed row. A median of several rounds is that of their medians. Its
// interval is by order statistics of those, from 6 rounds on; below, there is none, and the hull of
// the rounds' own stands for it, which may well be too narrow. A round that does not pass, or gives
// another result, takes the row's time away.
void merge_round(Row& so_far, Row next);

}  // namespace gdn
