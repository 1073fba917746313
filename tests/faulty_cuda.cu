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

__global__ void delay(long long cycles) {
  const long long start = clock64();
  while (clock64() - start < cycles) {
  }
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

// Mean time of a launch, back to back.
double seconds_of(const Launch& launch) {
  constexpr int launches = 50;
  cudaEvent_t begin = nullptr, end = nullptr;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  launch(nullptr);
  cudaEventRecord(begin);
  for (int i = 0; i < launches; ++i) launch(nullptr);
  cudaEventRecord(end);
  cudaEventSynchronize(end);
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms * 1e-3 / launches;
}

// The baseline and a delay loop of a microsecond, longer by so many per cent of the whole.
Instance slowed(int percent) {
  Instance instance = gpu::baseline().instances.front();
  const auto right = instance.setup;
  instance.knobs = {{"percent", std::to_string(percent)}};
  instance.setup = [right, percent](const Problem& problem, const Tensors& tensors,
                                    void* workspace) -> Launch {
    int kilohertz = 0;
    cudaDeviceGetAttribute(&kilohertz, cudaDevAttrClockRate, 0);
    const auto with_delay = [launch = right(problem, tensors, workspace)](long long cycles) {
      return [=](Stream stream) {
        launch(stream);
        delay<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(cycles);
      };
    };
    const double cycles_per_s = kilohertz * 1e3;
    const auto base = static_cast<long long>(1e-6 * cycles_per_s);
    if (percent == 0) return with_delay(base);
    const double more_s = seconds_of(with_delay(base)) * percent / 100;
    return with_delay(base + static_cast<long long>(more_s * cycles_per_s));
  };
  return instance;
}

Variant gpu_slowed() {
  Variant variant = gpu::baseline();
  variant.name = "gpu_slowed";
  variant.idea = "Slower on purpose.";
  variant.instances = {slowed(0), slowed(1), slowed(10)};
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
      gpu_slowed(),
      gpu::baseline(),
  };
}

}  // namespace gdn::test
