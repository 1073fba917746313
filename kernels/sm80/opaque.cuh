// What keeps the compiler from being too clever with registers.
#pragma once

namespace gdn::sm80 {

// The same number, of which the compiler knows nothing: what depends on it is computed anew in
// every round of a loop instead of being kept in registers.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

}  // namespace gdn::sm80
