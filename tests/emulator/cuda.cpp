#include "tests/emulator/cuda.h"

#include <cstring>

#include "tests/emulator/cuda_runtime_api.h"

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType, cuuint32_t rank,
                                void* tensor, const cuuint64_t* extents,
                                const cuuint64_t* strides_bytes, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
  const std::uint32_t swizzle_bytes = swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 64 : 128;
  bool sound = rank == 3 && reinterpret_cast<std::uintptr_t>(tensor) % 16 == 0 &&
               box[0] * 2 <= swizzle_bytes;
  for (int d = 0; d < 3; ++d) sound &= extents[d] > 0 && box[d] <= 256 && steps[d] == 1;
  for (int d = 0; d < 2; ++d) sound &= strides_bytes[d] % 16 == 0;
  if (!sound) return CUDA_ERROR_INVALID_VALUE;
  map->tensor = {static_cast<unsigned char*>(tensor),
                 {extents[0], extents[1], extents[2]},
                 {strides_bytes[0], strides_bytes[1]},
                 {box[0], box[1], box[2]},
                 swizzle_bytes};
  return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** entry, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const bool known = std::strcmp(name, "cuTensorMapEncodeTiled") == 0;
  *entry = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
  *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointFailed;
  return cudaSuccess;
}
