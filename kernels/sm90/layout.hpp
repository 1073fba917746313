// How matrices of bf16 lie in shared memory for the tensor cores and the copy engine, and which
// element of a result a thread holds. Host and device, and tested on the host.
#pragma once

#include <cstdint>

#include "kernels/host_device.hpp"

namespace gdn::sm90 {

// ---- 128-byte swizzle. A panel is [rows][64 columns] of bf16, 128 bytes a row, beginning at a
// multiple of 1024 bytes; unit u (16 bytes) of row r stands at u ^ (r % 8).
// PTX ISA, "Tensor Memory Access: Swizzling Modes".

inline constexpr int panel_columns = 64, panel_row_bytes = 128, swizzle_bytes = 1024;

GDNBENCH_HOST_DEVICE constexpr int panel_offset(int row, int column) {  // in bytes
  return row * panel_row_bytes + ((column / 8) ^ (row % 8)) * 16 + column % 8 * 2;
}
// A tile wider than a panel is panels one after the other.
GDNBENCH_HOST_DEVICE constexpr int tile_offset(int rows, int row, int column) {
  return column / panel_columns * rows * panel_row_bytes +
         panel_offset(row, column % panel_columns);
}

// ---- matrix descriptors of wgmma.
// PTX ISA, "Asynchronous Warpgroup Level Matrix: Matrix Descriptor Format".
// Addresses and strides are in units of 16 bytes; bits 0–13 the address, 16–29 the leading and
// 32–45 the stride dimension's byte offset, 62–63 the swizzle.
enum class Swizzle : std::uint64_t { bytes_128 = 1, bytes_64 = 2 };
GDNBENCH_HOST_DEVICE constexpr std::uint64_t descriptor(std::uint32_t address,
                                                        std::uint32_t leading_bytes,
                                                        std::uint32_t stride_bytes,
                                                        Swizzle swizzle = Swizzle::bytes_128) {
  return (std::uint64_t{address} >> 4 & 0x3FFF) | std::uint64_t{leading_bytes >> 4 & 0x3FFF} << 16 |
         std::uint64_t{stride_bytes >> 4 & 0x3FFF} << 32 | std::uint64_t(swizzle) << 62;
}

// Eight rows are 1024 bytes in either case. K-major: rows are M or N, columns are K; a step of 16
// in K is 32 bytes within a panel. MN-major (a transposed operand): rows are K, columns are M or N;
// a step of 16 in K is 16 rows, and the leading offset is from one panel to the next.
inline constexpr int rows_8_bytes = 8 * panel_row_bytes;
GDNBENCH_HOST_DEVICE constexpr std::uint32_t k_step_offset(int rows, int k) {  // k: multiple of 16
  return static_cast<std::uint32_t>(k / panel_columns * rows * panel_row_bytes +
                                    k % panel_columns * 2);
}
// An operand narrower than a panel may begin within one, as long as it ends there too.
GDNBENCH_HOST_DEVICE constexpr std::uint32_t mn_step_offset(int rows, int column, int k) {
  return static_cast<std::uint32_t>(column / panel_columns * rows * panel_row_bytes +
                                    column % panel_columns * 2 + k * panel_row_bytes);
}

// ---- 64-byte swizzle. The same with panels of 32 columns: two rows are 128 bytes, and unit u of
// row r stands at u ^ (r / 2 % 4). Eight rows are 512 bytes.

inline constexpr int narrow_columns = 32, narrow_row_bytes = 64;
inline constexpr int narrow_rows_8_bytes = 8 * narrow_row_bytes;

GDNBENCH_HOST_DEVICE constexpr int narrow_offset(int rows, int row, int column) {  // in bytes
  return column / narrow_columns * rows * narrow_row_bytes + row * narrow_row_bytes +
         ((column % narrow_columns / 8) ^ (row / 2 % 4)) * 16 + column % 8 * 2;
}
GDNBENCH_HOST_DEVICE constexpr std::uint32_t narrow_k_step_offset(int rows, int k) {
  return static_cast<std::uint32_t>(k / narrow_columns * rows * narrow_row_bytes +
                                    k % narrow_columns * 2);
}
GDNBENCH_HOST_DEVICE constexpr std::uint32_t narrow_mn_step_offset(int rows, int column, int k) {
  return static_cast<std::uint32_t>(column / narrow_columns * rows * narrow_row_bytes +
                                    k * narrow_row_bytes);
}

// ---- which element a thread of a warpgroup holds: register r of a [64][n] result.
// PTX ISA, "wgmma.mma_async: Register Fragments", matrix D.
struct Element {
  int row, column;
};
GDNBENCH_HOST_DEVICE constexpr Element element_of(int thread, int r) {
  const int warp = thread / 32, lane = thread % 32;
  return {16 * warp + lane / 4 + r / 2 % 2 * 8, r / 4 * 8 + lane % 4 * 2 + r % 2};
}

}  // namespace gdn::sm90
