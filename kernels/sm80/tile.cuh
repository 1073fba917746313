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
#include "kernels/sm80/opaque.cuh"

namespace gdn::sm80 {

template <int rows_, int columns_>
struct Tile {
  static constexpr int rows = rows_, columns = columns_, units = columns_ / 8;
  static constexpr int row_bytes = columns * 2;
  static_assert((columns == 64 || columns == 128) && rows % 8 == 0);

  alignas(row_bytes) BFloat16 x[rows * columns];  // [row][unit ^ row % 8][8]

  // `column` is a multiple of 8; `next`, 0 or 1, names the unit after it where column / 8 is even.
  __device__ BFloat16* unit(int row, int column, int next = 0) {
    return x + row * columns + ((column / 8) ^ next ^ (row & 7)) * 8;
  }
  // The address in shared memory of unit `next` of row m + row, column k, where m is a multiple of
  // 8 and k of 16. What depends on the lane (row, next) stands by itself, so that one register
  // serves every m and k: k flips bits that only the unit has, m is an offset.
  __device__ std::uint32_t address(int row, int next, int m, int k) {
    const auto start = static_cast<std::uint32_t>(__cvta_generic_to_shared(x));
    const std::uint32_t own = start + row * row_bytes + (next ^ (row & 7)) * 16;
    return (own ^ k * 2) + m * row_bytes;
  }
  // Two neighbours of a row; `column` is even.
  __device__ std::uint32_t& pair(int row, int column) {
    return *reinterpret_cast<std::uint32_t*>(unit(row, column) + (column & 7));
  }
  // This lane's place in the 512 bytes of [row … row+15][column … column+15], to keep a fragment
  // in.
  __device__ Left& fragment(int row, int column) {
    const int lane = threadIdx.x % 32;
    return *reinterpret_cast<Left*>(unit(row + lane % 16, column, lane / 16));
  }
};

// ---- fragments. m, n and k are multiples of 16.

// Left [m … m+15][k … k+15] of the tile [m][k].
template <class Fragment = Left, class Tile>
__device__ Fragment left_of(Tile& tile, int m, int k) {
  const int lane = threadIdx.x % 32;
  Fragment a;
  ldmatrix(a.x, tile.address(lane % 16, lane / 16, m, k));
  return a;
}
// Left [m … m+15][k … k+15] of the transpose of the tile [k][m].
template <class Tile>
__device__ Left left_of_transposed(Tile& tile, int m, int k) {
  const int lane = threadIdx.x % 32;
  Left a;
  ldmatrix_transposed(a.x, tile.address(lane % 8 + lane / 16 * 8, lane / 8 % 2, k, m));
  return a;
}
// Right [k … k+15][n … n+15] of the tile [k][n].
template <class Tile>
__device__ RightPair right_of(Tile& tile, int k, int n) {
  const int lane = threadIdx.x % 32;
  std::uint32_t x[4];
  ldmatrix_transposed(x, tile.address(lane % 16, lane / 16, k, n));
  return {{{x[0], x[1]}, {x[2], x[3]}}};
}
// Right [k … k+15][n … n+15] of the transpose of the tile [n][k].
template <class Tile>
__device__ RightPair right_of_transposed(Tile& tile, int k, int n) {
  const int lane = threadIdx.x % 32;
  std::uint32_t x[4];
  ldmatrix(x, tile.address(lane % 8 + lane / 16 * 8, lane / 8 % 2, n, k));
  return {{{x[0], x[1]}, {x[2], x[3]}}};
}

// Left into [m … m+15][k … k+15] of the tile [m][k].
template <class Tile>
__device__ void store_left(Tile& tile, int m, int k, const Left& a) {
  const int row = m + threadIdx.x % 32 / 4, column = k + threadIdx.x % 4 * 2;
  tile.pair(row, column) = a.x[0];
  tile.pair(row + 8, column) = a.x[1];
  tile.pair(row, column + 8) = a.x[2];
  tile.pair(row + 8, column + 8) = a.x[3];
}
// ---- rows [first, first + rows) of a tensor's chunk, by `threads` threads of which this is
// `thread`. Rows from `length` on do not exist: they come in as 0, their memory is not read, and
// they never go out. Less unrolling keeps fewer addresses in registers.

template <int threads, int rows, int unroll = 8, class Tile>
__device__ void load_rows(Tile& tile, const BFloat16* tensor, int stride, int length, int first,
                          int thread) {
  constexpr int units = rows * Tile::units, step = threads / Tile::units;  // rows at once
  static_assert(threads % (8 * Tile::units) == 0, "a thread keeps its column and its swizzle");
  if (units < threads && thread >= units) return;
  thread = opaque(thread);  // or a loop around this would keep all addresses in registers
  const int row = first + thread / Tile::units, column = thread % Tile::units * 8;
  const auto to = static_cast<std::uint32_t>(__cvta_generic_to_shared(tile.unit(row, column)));
  const BFloat16* from = tensor + std::int64_t{row} * stride + column;
#pragma unroll unroll
  for (int i = 0; i < (units + threads - 1) / threads; ++i) {
    copy_16(to + i * step * Tile::row_bytes, from, row + i * step < length);
    from += step * stride;
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

// The transpose of Left, 16 rows from `first` on and 16 columns that `tensor` points at, out of
// registers: 16 bytes of a row at a time.
__device__ inline void store_transposed(BFloat16* tensor, int stride, int length, int first,
                                        const Left& a) {
  const int lane = opaque(threadIdx.x % 32), row = first + lane / 4, column = lane % 4 * 2;
#pragma unroll
  for (int x = 0; x < 4; ++x) {  // x / 2: which eight rows, x % 2: which eight columns
    const std::uint32_t pair = transposed(a.x[x]);
    if (row + x / 2 * 8 < length) {
      BFloat16* to = tensor + std::int64_t{row + x / 2 * 8} * stride + column + x % 2 * 8;
      *reinterpret_cast<std::uint32_t*>(to) = pair;
    }
  }
}

// A whole tile.
template <int threads, int unroll = 8, class Tile>
__device__ void load(Tile& tile, const BFloat16* tensor, int stride, int length) {
  load_rows<threads, Tile::rows, unroll>(tile, tensor, stride, length, 0, threadIdx.x);
}
template <int threads, class Tile>
__device__ void store(BFloat16* tensor, int stride, int length, Tile& tile) {
  store_rows<threads, Tile::rows>(tensor, stride, length, tile, 0, threadIdx.x);
}

}  // namespace gdn::sm80
