// Matrices of bf16 in shared memory: how they lie there, how rows of a tensor come in and go out,
// and how a warp takes fragments of them.
//
// A row is cut into units of 16 bytes, and unit u of row r stands at u ^ (r % 8): the same unit of
// eight neighbouring rows is in eight different groups of banks, so that ldmatrix, 16-byte copies
// and 4-byte stores of fragments are free of conflicts.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.hpp"
#include "kernels/sm80/copy.cuh"
#include "kernels/sm80/mma.cuh"

namespace gdn::sm80 {

template <int rows_, int columns_>
struct Tile {
  static constexpr int rows = rows_, columns = columns_, units = columns_ / 8;
  static_assert(columns % 64 == 0 && rows % 8 == 0);

  alignas(128) BFloat16 x[rows * columns];  // [row][unit ^ row % 8][8]

  // `column` is a multiple of 8; `next`, 0 or 1, names the unit after it where column / 8 is even.
  __device__ BFloat16* unit(int row, int column, int next = 0) {
    return x + row * columns + ((column / 8) ^ next ^ (row & 7)) * 8;
  }
  // Two neighbours of a row; `column` is even.
  __device__ std::uint32_t& pair(int row, int column) {
    return *reinterpret_cast<std::uint32_t*>(unit(row, column) + (column & 7));
  }
};

// ---- fragments. m, n and k are multiples of 16.

// Left [m … m+15][k … k+15] of the tile [m][k].
template <class Tile>
__device__ Left left_of(Tile& tile, int m, int k) {
  const int lane = threadIdx.x % 32;
  Left a;
  ldmatrix(a.x, tile.unit(m + lane % 16, k, lane / 16));
  return a;
}
// Left [m … m+15][k … k+15] of the transpose of the tile [k][m].
template <class Tile>
__device__ Left left_of_transposed(Tile& tile, int m, int k) {
  const int lane = threadIdx.x % 32;
  Left a;
  ldmatrix_transposed(a.x, tile.unit(k + lane % 8 + lane / 16 * 8, m, lane / 8 % 2));
  return a;
}
// Right [k … k+15][n … n+15] of the tile [k][n].
template <class Tile>
__device__ RightPair right_of(Tile& tile, int k, int n) {
  const int lane = threadIdx.x % 32;
  std::uint32_t x[4];
  ldmatrix_transposed(x, tile.unit(k + lane % 16, n, lane / 16));
  return {{{x[0], x[1]}, {x[2], x[3]}}};
}
// Right [k … k+15][n … n+15] of the transpose of the tile [n][k].
template <class Tile>
__device__ RightPair right_of_transposed(Tile& tile, int k, int n) {
  const int lane = threadIdx.x % 32;
  std::uint32_t x[4];
  ldmatrix(x, tile.unit(n + lane % 8 + lane / 16 * 8, k, lane / 8 % 2));
  return {{{x[0], x[1]}, {x[2], x[3]}}};
}

// ---- rows [first, first + rows) of a tensor's chunk, by `threads` threads of which this is
// `thread`. Rows from `length` on do not exist: they come in as 0, their memory is not read, and
// they never go out.

template <int threads, int rows, class Tile>
__device__ void load_rows(Tile& tile, const BFloat16* tensor, int stride, int length, int first,
                          int thread) {
#pragma unroll
  for (int i = 0; i < rows * Tile::units / threads; ++i) {
    const int row = first + thread / Tile::units + i * (threads / Tile::units);
    const int column = thread % Tile::units * 8;
    const bool real = row < length;
    copy_16(tile.unit(row, column), tensor + std::int64_t{real ? row : 0} * stride + column, real);
  }
}

template <int threads, int rows, class Tile>
__device__ void store_rows(BFloat16* tensor, int stride, int length, Tile& tile, int first,
                           int thread) {
#pragma unroll
  for (int i = 0; i < rows * Tile::units / threads; ++i) {
    const int row = first + thread / Tile::units + i * (threads / Tile::units);
    const int column = thread % Tile::units * 8;
    if (row < length) {
      *reinterpret_cast<uint4*>(tensor + std::int64_t{row} * stride + column) =
          *reinterpret_cast<const uint4*>(tile.unit(row, column));
    }
  }
}

// A whole tile.
template <int threads, class Tile>
__device__ void load(Tile& tile, const BFloat16* tensor, int stride, int length) {
  load_rows<threads, Tile::rows>(tile, tensor, stride, length, 0, threadIdx.x);
}
template <int threads, class Tile>
__device__ void store(BFloat16* tensor, int stride, int length, Tile& tile) {
  store_rows<threads, Tile::rows>(tensor, stride, length, tile, 0, threadIdx.x);
}

}  // namespace gdn::sm80
