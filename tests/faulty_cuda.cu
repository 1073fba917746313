#include "tests/faulty_cuda.hpp"

#include <cuda_runtime.h>

#include "kernels/cuda/rungs.hpp"

namespace gdn::test {
namespace {

__global__ void touch_nowhere() { *reinterpret_cast<volatile int*>(0x10) = 1; }

// A hang that ends by itself: after 20 s, long past any deadline a test sets.
__global__ void hang() {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - start < 20'000'000'000ull);
}

__global__ void spoil(BFloat16* x) { x->bits ^= 0x4000; }

using Fault = void (*)(const Tensors&, cudaStream_t);

// The baseline, then the fault in the same stream.
Variant faulty(const char* name, Fault fault) {
  Variant variant = gpu::baseline();
  variant.name = name;
  variant.idea = "Wrong on purpose.";
  Instance instance = variant.instances.front();
  const auto right = instance.setup;
  instance.knobs.clear();
  instance.setup = [right, fault](const Problem& problem, const Tensors& tensors,
                                  void* workspace) -> Launch {
    return [launch = right(problem, tensors, workspace), tensors, fault](Stream stream) {
      launch(stream);
      fault(tensors, static_cast<cudaStream_t>(stream));
    };
  };
  variant.instances = {instance};
  return variant;
}

}  // namespace

std::vector<Variant> faulty_cuda() {
  return {
      faulty("gpu_faults",
             [](const Tensors&, cudaStream_t stream) { touch_nowhere<<<1, 1, 0, stream>>>(); }),
      faulty("gpu_hangs", [](const Tensors&, cudaStream_t stream) { hang<<<1, 1, 0, stream>>>(); }),
      faulty("gpu_wrong",
             [](const Tensors& t, cudaStream_t stream) { spoil<<<1, 1, 0, stream>>>(t.output); }),
      gpu::baseline(),
  };
}

}  // namespace gdn::test
