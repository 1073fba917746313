// Matrices of bf16 (or of the bits of fp16) in shared memory as wgmma and the copy engine want
// them: panels of 64 columns with the 128-byte swizzle (layout.hpp). One tile serves as operand in
// either major, and `left_of` and the like of sm80/tile.cuh take fragments of it.
#pragma once

#include "kernels/bfloat16.hpp"
#include "kernels/sm90/layout.hpp"

namespace gdn::sm90 {

// A descriptor of what lies `bytes` further on. No shared memory is so large that its address would
// run over, so that one addition does.
__device__ inline std::uint64_t moved(std::uint64_t descriptor, std::uint32_t bytes) {
  const auto low = static_cast<std::uint32_t>(descriptor) + (bytes >> 4);
  return descriptor >> 32 << 32 | low;
}

template <int rows_, int columns_>
struct Tile {
  static constexpr int rows = rows_, columns = columns_, panels = columns_ / panel_columns;
  static constexpr int panel_bytes = rows * panel_row_bytes, bytes = panels * panel_bytes;
  static_assert(columns % panel_columns == 0 && rows % 8 == 0);

  alignas(swizzle_bytes) BFloat16 x[rows * columns];  // [column / 64][row][unit ^ row % 8][8]

  __device__ std::uint32_t start() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
  }
  // As sm80::Tile::address: unit `next` of row m + row, column k; m a multiple of 8, k of 16.
  __device__ std::uint32_t address(int row, int next, int m, int k) const {
    const std::uint32_t own = start() + row * panel_row_bytes + (next ^ (row & 7)) * 16;
    return (own ^ (k % panel_columns) * 2) + m * panel_row_bytes + k / panel_columns * panel_bytes;
  }
  __device__ uint4& unit(int row, int column) {
    return *reinterpret_cast<uint4*>(reinterpret_cast<char*>(x) + tile_offset(rows, row, column));
  }
  // What the copy engine brings at once.
  __device__ BFloat16* panel(int i) { return x + i * rows * panel_columns; }

  // Operand descriptors. K-major: rows from `row` on (a multiple of 8) are M or N, and K begins at
  // column k. MN-major: columns from `column` on are M or N, K begins at row k; `column` is a
  // multiple of 64, or of 32 if 32 columns are taken.
  __device__ std::uint64_t k_major(int row, int k) const {
    return moved(descriptor(start(), 16, rows_8_bytes),
                 row * panel_row_bytes + k_step_offset(rows, k));
  }
  __device__ std::uint64_t mn_major(int column, int k) const {
    return moved(descriptor(start(), panel_bytes, rows_8_bytes), mn_step_offset(rows, column, k));
  }
};

// The same in panels of 32 columns with the 64-byte swizzle; `column` of mn_major is a multiple of
// 32.
template <int rows_, int columns_>
struct NarrowTile {
  static constexpr int rows = rows_, columns = columns_, panels = columns_ / narrow_columns;
  static constexpr int panel_bytes = rows * narrow_row_bytes;
  static_assert(columns % narrow_columns == 0 && rows % 8 == 0);

  alignas(swizzle_bytes) BFloat16 x[rows * columns];  // [column / 32][row][unit ^ row / 2 % 4][8]

  __device__ std::uint32_t start() const {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
  }
  __device__ std::uint32_t address(int row, int next, int m, int k) const {
    const std::uint32_t own = start() + row * narrow_row_bytes + (next ^ (row / 2 & 3)) * 16;
    return (own ^ k % narrow_columns * 2) + m * narrow_row_bytes + k / narrow_columns * panel_bytes;
  }
  __device__ uint4& unit(int row, int column) {
    return *reinterpret_cast<uint4*>(reinterpret_cast<char*>(x) + narrow_offset(rows, row, column));
  }
  __device__ BFloat16* panel(int i) { return x + i * rows * narrow_columns; }

  __device__ std::uint64_t k_major(int row, int k) const {
    return moved(descriptor(start(), 16, narrow_rows_8_bytes, Swizzle::bytes_64),
                 row * narrow_row_bytes + narrow_k_step_offset(rows, k));
  }
  __device__ std::uint64_t mn_major(int column, int k) const {
    return moved(descriptor(start(), panel_bytes, narrow_rows_8_bytes, Swizzle::bytes_64),
                 narrow_mn_step_offset(rows, column, k));
  }
};

}  // namespace gdn::sm90
