// Sampling on the device: CUDA events around launches that are queued behind a closed gate, so that
// the host's cost of a launch stays outside (except in `lab` timing, which is about it).
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/variant.hpp"
#include "src/cuda.hpp"
#include "src/timer.hpp"

namespace gdn {

// How samples are taken on this device.
struct DeviceTiming {
  cudaStream_t stream = nullptr;
  void* flush_data = nullptr;  // written before each cold sample
  std::size_t flush_bytes = 0;
  bool gated = true;  // false where launches do not queue: under a sanitizer or profiler
  int batch = 1;      // launches per sample
};

std::unique_ptr<Sampler> make_event_sampler(Timing timing, const Launch& launch,
                                            const DeviceTiming& device);

// `launches` of the launch as `timing` runs them, flushes, gate and graph included, without events:
// for the CUPTI pass. Returns when they have run.
std::function<void()> make_plain_queue(Timing timing, const Launch& launch,
                                       const DeviceTiming& device, int launches);

inline constexpr int queue_length = 10;  // launches behind one gate

// Median of an empty kernel between two events.
double measure_empty_kernel(Timing timing, const DeviceTiming& device);

}  // namespace gdn
