// RAII and error handling over the CUDA runtime, for the few files of src/ that talk to it.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace gdn {

inline void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  if (status == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

template <class Handle, auto destroy>
struct CudaDeleter {
  using pointer = Handle;
  void operator()(Handle handle) const { destroy(handle); }
};

template <class Handle, auto destroy>
using CudaHandle = std::unique_ptr<std::remove_pointer_t<Handle>, CudaDeleter<Handle, destroy>>;

using CudaEvent = CudaHandle<cudaEvent_t, cudaEventDestroy>;
using CudaStream = CudaHandle<cudaStream_t, cudaStreamDestroy>;
using CudaGraph = CudaHandle<cudaGraph_t, cudaGraphDestroy>;
using CudaGraphExec = CudaHandle<cudaGraphExec_t, cudaGraphExecDestroy>;

inline CudaEvent make_event() {
  cudaEvent_t event;
  must(cudaEventCreate(&event), "cudaEventCreate");
  return CudaEvent(event);
}

}  // namespace gdn
