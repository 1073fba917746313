// The original, but for its instructions: those have other names there, and none is ever called.
#pragma once

#include <cstring>

#include "kernels/bfloat16.hpp"
#include "tests/emulator/emulator.hpp"

#define mma mma_instruction
#define ldmatrix ldmatrix_instruction
#define ldmatrix_transposed ldmatrix_transposed_instruction
#define transposed transposed_instruction
#include "../../../../kernels/sm80/mma.cuh"
#undef mma
#undef ldmatrix
#undef ldmatrix_transposed
#undef transposed

namespace gdn::sm80 {

// Element (row, column) of a Sum that lane 4 (row % 8) + column % 8 / 2 holds.
inline float& element(Sum& d, int row, int column) { return d.x[row / 8 * 2 + column % 2]; }

// d += a b, of what `unpack` makes of registers.
template <auto unpack, class Left, class Right>
void multiply_fragments(Sum& d, const Left& a, const Right& b) {
  struct Own {
    Sum* d;
    const Left* a;
    const Right* b;
  } own = {&d, &a, &b};
  emulator::meet_with("mma", own, [](auto lane) {
    float left[16][16], right[16][8];
    for (int l = 0; l < 32; ++l) {
      const int g = l / 4, t = l % 4;
      for (int x = 0; x < 4; ++x) {
        const float2 pair = unpack(lane(l).a->x[x]);
        float* to = &left[g + x % 2 * 8][2 * t + x / 2 * 8];
        to[0] = pair.x, to[1] = pair.y;
      }
      for (int x = 0; x < 2; ++x) {
        const float2 pair = unpack(lane(l).b->x[x]);
        right[2 * t + 8 * x][g] = pair.x, right[2 * t + 8 * x + 1][g] = pair.y;
      }
    }
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 8; ++j) {
        float& sum = element(*lane(i % 8 * 4 + j / 2).d, i, j);
        for (int k = 0; k < 16; ++k) sum += left[i][k] * right[k][j];
      }
  });
}

inline void mma(Sum& d, const Left& a, const Right& b) { multiply_fragments<unpack>(d, a, b); }
inline void mma(Sum* d, const Left& a, const RightPair& b) {
  mma(d[0], a, b.tile[0]);
  mma(d[1], a, b.tile[1]);
}

namespace emulated {

using Matrix = BFloat16[8][8];

// Register `x` of each lane, which is two neighbours of a row, from and to a matrix.
template <class Registers>
void spread(const Matrix& matrix, bool transposed, Registers register_of) {
  for (int l = 0; l < 32; ++l) {
    const int row = l / 4, column = l % 4 * 2;
    const BFloat16 low = transposed ? matrix[column][row] : matrix[row][column];
    const BFloat16 high = transposed ? matrix[column + 1][row] : matrix[row][column + 1];
    register_of(l) = low.bits | std::uint32_t{high.bits} << 16;
  }
}
template <class Registers>
void gather(Matrix& matrix, bool transposed, Registers register_of) {
  for (int l = 0; l < 32; ++l) {
    const int row = l / 4, column = l % 4 * 2;
    const std::uint32_t x = register_of(l);
    (transposed ? matrix[column][row] : matrix[row][column]).bits = x & 0xFFFF;
    (transposed ? matrix[column + 1][row] : matrix[row][column + 1]).bits = x >> 16;
  }
}

struct Rows {  // of four matrices: a register of each, and the address of one row
  std::uint32_t* x;
  void* row;
};

template <bool transposed>
void load(const char* instruction, std::uint32_t (&x)[4], std::uint32_t row) {
  Rows own = {x, emulator::at_shared(row, 16)};
  emulator::meet_with(instruction, own, [](auto lane) {
    for (int m = 0; m < 4; ++m) {
      Matrix matrix;
      for (int r = 0; r < 8; ++r) std::memcpy(matrix[r], lane(8 * m + r).row, 16);
      spread(matrix, transposed, [&](int l) -> std::uint32_t& { return lane(l).x[m]; });
    }
  });
}
template <bool transposed>
void store(const char* instruction, std::uint32_t row, const std::uint32_t (&x)[4]) {
  std::uint32_t copy[4] = {x[0], x[1], x[2], x[3]};
  Rows own = {copy, emulator::at_shared(row, 16)};
  emulator::note_written(own.row);
  emulator::meet_with(instruction, own, [](auto lane) {
    for (int m = 0; m < 4; ++m) {
      Matrix matrix;
      gather(matrix, transposed, [&](int l) { return lane(l).x[m]; });
      for (int r = 0; r < 8; ++r) std::memcpy(lane(8 * m + r).row, matrix[r], 16);
    }
  });
}

}  // namespace emulated

inline void ldmatrix(std::uint32_t (&x)[4], std::uint32_t row) {
  emulated::load<false>("ldmatrix", x, row);
}
inline void ldmatrix_transposed(std::uint32_t (&x)[4], std::uint32_t row) {
  emulated::load<true>("ldmatrix_transposed", x, row);
}
inline std::uint32_t transposed(std::uint32_t pair) {
  emulator::meet_with("transposed", pair, [](auto lane) {
    emulated::Matrix matrix;
    emulated::gather(matrix, false, [&](int l) { return lane(l); });
    emulated::spread(matrix, true, [&](int l) -> std::uint32_t& { return lane(l); });
  });
  return pair;
}

}  // namespace gdn::sm80
