// The original, on the stand-in for cuda/ptx, but for its one instruction.
#pragma once

#define prefetch prefetch_instruction
#include "../../../../kernels/sm90/tma.cuh"
#undef prefetch

namespace gdn::sm90 {

inline void prefetch(const CUtensorMap&) {}

}  // namespace gdn::sm90
