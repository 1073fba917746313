#include "src/timer_kernels.hpp"

namespace gdn {
namespace {

constexpr unsigned long long patience_ns = 1'000'000'000;

__global__ void timer_gate(const volatile int* open, int* expired) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    if (*open != 0) return;
    __nanosleep(200);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < patience_ns);
  *expired = 1;
}

__global__ void empty() {}

}  // namespace

void enqueue_gate(const volatile int* open, int* expired, cudaStream_t stream) {
  timer_gate<<<1, 1, 0, stream>>>(open, expired);
}

void enqueue_empty(cudaStream_t stream) { empty<<<1, 1, 0, stream>>>(); }

}  // namespace gdn
