// Fragments of 16 × 16 into shared memory (stmatrix); out of it see sm80/tile.cuh.
#pragma once

#include <cstdint>

#include "kernels/sm80/mma.cuh"

namespace gdn::sm90 {

// Four 8 × 8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
// PTX ISA, "Warp-level matrix store instruction: stmatrix".
__device__ inline void stmatrix(std::uint32_t row, const std::uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}
__device__ inline void stmatrix_transposed(std::uint32_t row, const std::uint32_t (&x)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
               : "memory");
}

// Left into [m … m+15][k … k+15] of the tile [m][k].
template <class Tile, class Fragment = sm80::Left>
__device__ void put_left(Tile& tile, int m, int k, const Fragment& a) {
  const int lane = threadIdx.x % 32;
  stmatrix(tile.address(lane % 16, lane / 16, m, k), a.x);
}
// The transpose of Left into [k … k+15][m … m+15] of the tile [k][m].
template <class Tile>
__device__ void put_left_transposed(Tile& tile, int m, int k, const sm80::Left& a) {
  const int lane = threadIdx.x % 32;
  stmatrix_transposed(tile.address(lane % 8 + lane / 16 * 8, lane / 8 % 2, k, m), a.x);
}

}  // namespace gdn::sm90
