// The original, on the stand-in for cuda/ptx, but for its own instructions.
#pragma once

#define prefetch prefetch_instruction
#define prefetch_box prefetch_box_instruction
#include "../../../../kernels/sm90/tma.cuh"
#undef prefetch
#undef prefetch_box

namespace gdn::sm90 {

inline void prefetch(const CUtensorMap&) {}
inline void prefetch_box(const CUtensorMap&, int, int, int) {}

}  // namespace gdn::sm90
