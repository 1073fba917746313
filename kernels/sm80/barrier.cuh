// Barriers among some of the warps of a CTA.
#pragma once

namespace gdn::sm80 {

// Waits until `threads` threads, all of their warps whole, have come to the barrier `id` (1 … 15; 0
// is that of __syncthreads), and what they wrote to shared memory before it is seen.
// PTX ISA, "Parallel Synchronization and Communication Instructions: barrier".
template <int threads>
__device__ void barrier(int id) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "n"(threads) : "memory");
}

}  // namespace gdn::sm80
