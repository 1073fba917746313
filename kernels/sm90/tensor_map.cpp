#include "kernels/sm90/tensor_map.hpp"

#include <cuda_runtime.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "kernels/sm90/layout.hpp"

namespace gdn::sm90 {
namespace {

// Through the runtime, so that the program starts where there is no driver to link with.
auto encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult found{};
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry,
                                                              12000, cudaEnableDefault, &found);
  if (status != cudaSuccess || found != cudaDriverEntryPointSuccess)
    throw std::runtime_error("the driver has no cuTensorMapEncodeTiled: CUDA 12.0 is needed");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
}

}  // namespace

CUtensorMap tensor_map(const void* tensor, std::int64_t tokens, int heads, int columns, int rows,
                       int box_columns) {
  static const auto encode = encoder();
  const auto unsigned_of = [](std::int64_t x) { return static_cast<cuuint64_t>(x); };
  const cuuint64_t extents[] = {unsigned_of(columns), unsigned_of(heads),
                                unsigned_of(std::max<std::int64_t>(tokens, 1))};
  const cuuint64_t strides_bytes[] = {unsigned_of(columns) * 2, unsigned_of(columns) * 2 * heads};
  const cuuint32_t box[] = {static_cast<cuuint32_t>(box_columns), 1, static_cast<cuuint32_t>(rows)};
  const cuuint32_t steps[] = {1, 1, 1};
  // What stands beside a narrow box is not to come to L2 with it.
  const bool wide = box_columns == panel_columns;
  CUtensorMap map{};
  const CUresult status =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, const_cast<void*>(tensor), extents,
             strides_bytes, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
             wide ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_NONE,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS)
    throw std::runtime_error("cuTensorMapEncodeTiled: error " + std::to_string(status));
  return map;
}

}  // namespace gdn::sm90
