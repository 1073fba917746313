// As the original says.
#pragma once

#include <cstdint>

#include "kernels/sm80/mma.cuh"

namespace gdn::sm90 {

inline void stmatrix(std::uint32_t row, const std::uint32_t (&x)[4]) {
  sm80::emulated::store<false>("stmatrix", row, x);
}
inline void stmatrix_transposed(std::uint32_t row, const std::uint32_t (&x)[4]) {
  sm80::emulated::store<true>("stmatrix_transposed", row, x);
}

template <class Tile, class Fragment = sm80::Left>
void put_left(Tile& tile, int m, int k, const Fragment& a) {
  const int lane = threadIdx.x % 32;
  stmatrix(tile.address(lane % 16, lane / 16, m, k), a.x);
}
template <class Tile>
void put_left_transposed(Tile& tile, int m, int k, const sm80::Left& a) {
  const int lane = threadIdx.x % 32;
  stmatrix_transposed(tile.address(lane % 8 + lane / 16 * 8, lane / 8 % 2, k, m), a.x);
}

}  // namespace gdn::sm90
