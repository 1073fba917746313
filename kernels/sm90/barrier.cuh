// Barriers: in shared memory with phases (mbarrier), and the sixteen numbered ones of a CTA.
#pragma once

#include <cuda/ptx>

#include <cstdint>

namespace gdn::sm90 {

// A barrier whose phase ends when `count` arrivals and all announced bytes have come. Phase n of it
// has parity n % 2, and `wait` passes once the phase of that parity has ended.
// PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".
struct PhaseBarrier {
  std::uint64_t word;

  // By one thread, before anybody else may touch it; then publish_barriers() and a CTA barrier.
  __device__ void initialise(int count) {
    cuda::ptx::mbarrier_init(&word, static_cast<std::uint32_t>(count));
  }
  __device__ void arrive() { cuda::ptx::mbarrier_arrive(&word); }
  // Arrives, and announces bytes that asynchronous copies will bring.
  __device__ void arrive_and_expect(std::uint32_t bytes) {
    cuda::ptx::mbarrier_arrive_expect_tx(cuda::ptx::sem_release, cuda::ptx::scope_cta,
                                         cuda::ptx::space_shared, &word, bytes);
  }
  __device__ void wait(std::uint32_t parity) {
#ifdef GDNBENCH_BOUNDED_SPINS  // an error instead of a hang; costs registers, so not in a release
    for (int tries = 0; !cuda::ptx::mbarrier_try_wait_parity(&word, parity); ++tries) {
      if (tries > 1'000'000) __trap();
    }
#else
    while (!cuda::ptx::mbarrier_try_wait_parity(&word, parity)) {
    }
#endif
  }
};

// In a build to try the order of roles with: a warp loses up to two microseconds here, by chance.
__device__ inline void jitter() {
#ifdef GDNBENCH_JITTER
  std::uint32_t x = static_cast<std::uint32_t>(clock64()) * 2654435761U + threadIdx.x / 32 * 40503U;
  x ^= x >> 15;
  if (x % 4 == 0) __nanosleep(x >> 8 & 2047);
  __syncwarp();
#endif
}

// Makes initialised barriers known to the copy engine and to a cluster.
__device__ inline void publish_barriers() {
  cuda::ptx::fence_mbarrier_init(cuda::ptx::sem_release, cuda::ptx::scope_cluster);
}

// Numbered barriers: `threads` threads in all, whole warps, of which some only arrive.
// PTX ISA, "barrier{.cta}".
template <int threads>
__device__ void arrive(int id) {
  asm volatile("barrier.cta.arrive %0, %1;" ::"r"(id), "n"(threads) : "memory");
}
template <int threads>
__device__ void sync(int id) {
  asm volatile("barrier.cta.sync %0, %1;" ::"r"(id), "n"(threads) : "memory");
}

// What this thread wrote to shared memory by ordinary stores is seen by wgmma and the copy engine
// of whoever it then meets at a barrier. PTX ISA, "membar / fence.proxy".
__device__ inline void publish_to_async() { cuda::ptx::fence_proxy_async(cuda::ptx::space_shared); }

// The same of what other threads wrote to `tile` before a barrier that this one has waited at.
template <class Tile>
__device__ void publish_for_others(const Tile&) {
  cuda::ptx::fence_proxy_async(cuda::ptx::space_shared);
}

}  // namespace gdn::sm90
