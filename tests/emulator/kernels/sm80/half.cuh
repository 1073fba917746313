// The original, but for its products: those have another name there, and none is ever called.
#pragma once

#include "kernels/sm80/mma.cuh"

#define mma mma_instruction
#include "../../../../kernels/sm80/half.cuh"
#undef mma

namespace gdn::sm80 {

inline void mma(Sum& d, const HalfLeft& a, const HalfRight& b) {
  multiply_fragments<unpack_halves>(d, a, b);
}
inline void mma(Sum* d, const HalfLeft& a, const HalfRightPair& b) {
  mma(d[0], a, b.tile[0]);
  mma(d[1], a, b.tile[1]);
}

}  // namespace gdn::sm80
