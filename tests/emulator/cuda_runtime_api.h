// Stand-in for CUDA's header of this name: what the host calls, as far as the sources of kernels/
// and of their tests do. Memory is the host's, and a launch has run when it returns.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <cstring>

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation };
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
enum cudaDeviceAttr {
  cudaDevAttrMultiProcessorCount,
  cudaDevAttrComputeCapabilityMajor,
  cudaDevAttrComputeCapabilityMinor
};
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum { cudaEnableDefault };
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess, cudaDriverEntryPointFailed };

using cudaEvent_t = struct CUevent_st*;
using cudaStream_t = struct CUstream_st*;
using cudaGraph_t = struct CUgraph_st*;
using cudaGraphExec_t = struct CUgraphExec_st*;
cudaError_t cudaEventCreate(cudaEvent_t*);  // named, and never called
cudaError_t cudaEventDestroy(cudaEvent_t);
cudaError_t cudaStreamDestroy(cudaStream_t);
cudaError_t cudaGraphDestroy(cudaGraph_t);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t);

inline const char* cudaGetErrorString(cudaError_t) { return "an error of the emulator"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

inline cudaError_t cudaGetDeviceCount(int* count) { return *count = 1, cudaSuccess; }
inline cudaError_t cudaGetDevice(int* device) { return *device = 0, cudaSuccess; }
// Those of an H200.
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  *value = attribute == cudaDevAttrMultiProcessorCount      ? 132
           : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                            : 0;
  return cudaSuccess;
}

template <class T>
cudaError_t cudaMalloc(T** memory, std::size_t bytes) {
  *memory = static_cast<T*>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
  return *memory != nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
}
inline cudaError_t cudaFree(void* memory) { return std::free(memory), cudaSuccess; }
inline cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return std::memcpy(to, from, bytes), cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult* found);
