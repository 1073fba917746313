// The one __global__ entry of every CUDA kernel, and what a Launch is made of.
//
// A kernel is a type with
//   static constexpr const char* name;         as reports and profilers show it
//   static constexpr int threads;              of a CTA
//   static constexpr int blocks_per_processor; CTAs that shall fit on a multiprocessor (registers)
//   struct Arguments;                          passed by value
//   struct Shared;                             the plan of its dynamic shared memory
//   static __device__ void run(const Arguments&, Shared&);
// and where it may begin before the launch ahead of it has ended (programmatic dependent launch)
//   static constexpr bool follows_closely = true;
// Its CTAs are then there when that launch is over, or lets them begin (dependent.cuh), and wait
// for all that it has written before they run; or later and by themselves, with
//   static constexpr bool waits_itself = true;
// In each CTA somebody must: the launch behind waits for this one's end, and takes it for that of
// all before.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/sm80/dependent.cuh"
#include "kernels/variant.hpp"

namespace gdn {

template <class Kernel>
constexpr bool follows_closely = requires {
  requires Kernel::follows_closely;
};

template <class Kernel>
constexpr bool waits_itself = requires {
  requires Kernel::waits_itself;
};

template <class Kernel>
__global__ void __launch_bounds__(Kernel::threads, Kernel::blocks_per_processor)
    entry(const __grid_constant__ typename Kernel::Arguments arguments) {
  extern __shared__ __align__(1024) unsigned char shared[];
  if constexpr (follows_closely<Kernel> && !waits_itself<Kernel>) wait_for_launch_ahead();
  Kernel::run(arguments, *reinterpret_cast<typename Kernel::Shared*>(shared));
}

template <class Kernel>
constexpr int shared_bytes = std::is_empty_v<typename Kernel::Shared>
                                 ? 0
                                 : static_cast<int>(sizeof(typename Kernel::Shared));

inline void throw_on_error(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

template <class Kernel>
Stage stage_of() {
  return {.name = Kernel::name,
          .entry = reinterpret_cast<const void*>(&entry<Kernel>),
          .threads = Kernel::threads,
          .shared_bytes = shared_bytes<Kernel>};
}

// Allows the kernel its shared memory, now, and returns what enqueues it. No blocks: nothing to do.
// `shared` is less than the plan where the end of that is not needed.
template <class Kernel>
Launch launcher(std::int64_t blocks, const typename Kernel::Arguments& arguments,
                int shared = shared_bytes<Kernel>) {
  if (blocks == 0) return [](Stream) {};
  if (blocks > 0x7FFF'FFFF)
    throw std::runtime_error(std::string(Kernel::name) + ": grid too large");
  throw_on_error(cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      shared_bytes<Kernel>),
                 Kernel::name);
  return [blocks = static_cast<unsigned>(blocks), arguments, shared](Stream stream) {
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = Kernel::threads;
    config.dynamicSmemBytes = shared;
    config.stream = static_cast<cudaStream_t>(stream);
    config.attrs = &early;
    config.numAttrs = follows_closely<Kernel> ? 1 : 0;
    throw_on_error(cudaLaunchKernelEx(&config, entry<Kernel>, arguments), Kernel::name);
  };
}

}  // namespace gdn
