// Descriptions of tensors for the copy engine. Host only.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace gdn::sm90 {

// Of a tensor [tokens][heads][columns] of bf16: boxes of `rows` tokens and 64 columns of one head,
// with the 128-byte swizzle, or of 32 with that of 64 bytes; what lies outside of the tensor comes
// as 0. Throws std::runtime_error where the driver refuses or is too old.
[[nodiscard]] CUtensorMap tensor_map(const void* tensor, std::int64_t tokens, int heads,
                                     int columns, int rows, int box_columns = 64);

}  // namespace gdn::sm90
