// What keeps the compiler from being too clever with registers and with the order of things.
#pragma once

#include <cstdint>

namespace gdn::sm80 {

// The same number, of which the compiler knows nothing: what depends on it is computed anew in
// every round of a loop instead of being kept in registers.
__device__ inline int opaque(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// Computed here, between what stands before and behind it, and not where the result is used.
__device__ inline void pin(float& x) { asm volatile("" : "+f"(x)); }
__device__ inline void pin(std::uint32_t& x) { asm volatile("" : "+r"(x)); }

}  // namespace gdn::sm80
