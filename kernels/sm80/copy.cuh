// Asynchronous copies from global to shared memory (cp.async), those out of range filled with 0.
#pragma once

#include <cstdint>

namespace gdn::sm80 {

// 16 bytes past L1; `real` false: 16 zero bytes, and the source is not read. No memory clobber: the
// copy may move among other accesses, but not across commit_copies, wait_copies or a barrier.
// PTX ISA, "Data Movement and Conversion Instructions: cp.async".
__device__ inline void copy_16(std::uint32_t shared, const void* global, bool real = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
               "r"(real ? 16 : 0));
}
__device__ inline void copy_16(void* shared, const void* global, bool real = true) {
  copy_16(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), global, real);
}
// 4 bytes through L1, as above.
__device__ inline void copy_4(void* shared, const void* global, bool real) {
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global),
               "r"(real ? 4 : 0));
}

// The line of L2 that this is in, to L2. PTX ISA, "prefetch".
__device__ inline void prefetch_to_l2(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

// Closes a group of copies of this thread. PTX ISA, "cp.async.commit_group".
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `pending` of the youngest groups of this thread are under way.
// PTX ISA, "cp.async.wait_group".
template <int pending>
__device__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace gdn::sm80
