// Stand-in for CUDA's header of this name: what device code is written in.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tests/emulator/cuda_runtime_api.h"
#include "tests/emulator/emulator.hpp"

#define __host__
#define __device__
#define __global__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Of the thread that runs: the machine sets them whenever it goes on with one.
extern constinit thread_local uint3 threadIdx, blockIdx;
extern constinit thread_local dim3 blockDim, gridDim;

// ---- numbers

template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> min(A a, B b) {
  using C = std::common_type_t<A, B>;
  return static_cast<C>(b) < static_cast<C>(a) ? static_cast<C>(b) : static_cast<C>(a);
}
template <class A, class B>
  requires std::is_arithmetic_v<A> && std::is_arithmetic_v<B>
constexpr std::common_type_t<A, B> max(A a, B b) {
  using C = std::common_type_t<A, B>;
  return static_cast<C>(a) < static_cast<C>(b) ? static_cast<C>(b) : static_cast<C>(a);
}
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __expf(float x) { return std::exp(x); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline int __popc(unsigned x) { return std::popcount(x); }
template <class T>
T __ldg(const T* x) {
  return *x;
}

// ---- threads

inline void __syncthreads() { gdn::emulator::wait_for_cta(); }
inline void __syncwarp(unsigned mask = ~0U) {
  gdn::emulator::meet("__syncwarp", mask, nullptr, nullptr);
}
inline std::size_t __cvta_generic_to_shared(const void* x) {
  return gdn::emulator::shared_address(x);
}
inline void __nanosleep(unsigned) {}
[[noreturn]] inline void __trap() { gdn::emulator::fail("traps"); }

namespace gdn::emulator {

// What each lane of a warp has is handed to all of them.
template <class T>
struct Exchange {
  T own;
  T all[32] = {};
  std::uint32_t mask = 0;

  Exchange(const char* instruction, unsigned lanes, T x) : own(x) {
    meet(instruction, lanes, this, [](void* const* each) {
      for (int to = 0; to < 32; ++to)
        for (int from = 0; from < 32; ++from)
          if (each[to] != nullptr && each[from] != nullptr)
            static_cast<Exchange*>(each[to])->take(from, *static_cast<Exchange*>(each[from]));
    });
  }
  void take(int from, const Exchange& other) { all[from] = other.own, mask |= 1U << from; }
};

template <class T>
T shuffle(const char* instruction, unsigned mask, T x, int from, bool within) {
  const Exchange<T> warp(instruction, mask, x);
  if (!within) return x;
  if (!(warp.mask >> from & 1)) fail("shuffles with a lane that does not take part");
  return warp.all[from];
}

}  // namespace gdn::emulator

template <class T>
T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
  const int own = static_cast<int>(threadIdx.x % 32);
  return gdn::emulator::shuffle("__shfl_sync", mask, x, own / width * width + lane % width, true);
}
template <class T>
T __shfl_up_sync(unsigned mask, T x, unsigned distance, int width = 32) {
  const int own = static_cast<int>(threadIdx.x % 32), from = own - static_cast<int>(distance);
  return gdn::emulator::shuffle("__shfl_up_sync", mask, x, from, from >= own / width * width);
}
template <class T>
T __shfl_down_sync(unsigned mask, T x, unsigned distance, int width = 32) {
  const int own = static_cast<int>(threadIdx.x % 32), from = own + static_cast<int>(distance);
  return gdn::emulator::shuffle("__shfl_down_sync", mask, x, from,
                                from < (own / width + 1) * width);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T x, int bits, int width = 32) {
  const int own = static_cast<int>(threadIdx.x % 32), from = own ^ bits;
  return gdn::emulator::shuffle("__shfl_xor_sync", mask, x, from,
                                from < (own / width + 1) * width);
}
inline unsigned __ballot_sync(unsigned mask, bool x) {
  const gdn::emulator::Exchange<bool> warp("__ballot_sync", mask, x);
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane) votes |= unsigned{warp.all[lane]} << lane;
  return votes;
}
inline bool __any_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) != 0; }
inline bool __all_sync(unsigned mask, bool x) { return __ballot_sync(mask, x) == mask; }

// ---- launches with attributes

struct cudaLaunchAttribute {
  enum { none } id;
  struct {
    dim3 clusterDim;
  } val;
};
constexpr auto cudaLaunchAttributeClusterDimension = decltype(cudaLaunchAttribute::id){};
struct cudaLaunchConfig_t {
  unsigned gridDim, blockDim;
  std::size_t dynamicSmemBytes;
  const cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Arguments),
                               const std::type_identity_t<Arguments>& arguments) {
  gdn::emulator::launch({.blocks = config->gridDim,
                         .threads = config->blockDim,
                         .shared_bytes = config->dynamicSmemBytes,
                         .cluster = config->numAttrs > 0 ? config->attrs->val.clusterDim.x : 1},
                        [&] { kernel(arguments); });
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}
