// How matrices lie in shared memory on Hopper, against the definitions of the PTX ISA written down
// a second time. That the hardware agrees is for sm90_test.cu to see.
#include "kernels/sm90/layout.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace gdn::sm90 {
namespace {

struct Size {
  int rows, columns;
};
constexpr Size sizes[] = {{64, 64}, {64, 128}, {128, 64}, {128, 128}};

// PTX ISA, "Tensor Memory Access: Swizzling Modes": of the 128-byte swizzle, bits 4–6 of an address
// are those of the linear one, exclusive or its bits 7–9.
std::uint32_t swizzled(std::uint32_t linear) { return linear ^ (linear >> 7 & 7) << 4; }

// Panel after panel, row after row, without the swizzle.
std::uint32_t linear_offset(int rows, int row, int column) {
  return static_cast<std::uint32_t>(column / 64 * (rows * 128) + row * 128 + column % 64 * 2);
}

int bank_of(int offset) { return offset / 4 % 32; }

TEST(Layout, TileIsSwizzledAsTheCopyEngineDoes) {
  for (const auto [rows, columns] : sizes)
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column)
        ASSERT_EQ(static_cast<std::uint32_t>(tile_offset(rows, row, column)),
                  swizzled(linear_offset(rows, row, column)))
            << fmt::format("[{}][{}] of [{}][{}]", row, column, rows, columns);
}

TEST(Layout, EveryElementHasAPlaceOfItsOwn) {
  for (const auto [rows, columns] : sizes) {
    std::vector<int> offsets;
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; ++column)
        offsets.push_back(tile_offset(rows, row, column));
    std::sort(offsets.begin(), offsets.end());
    for (int i = 0; i < rows * columns; ++i)
      ASSERT_EQ(offsets[i], 2 * i) << rows << " x " << columns;  // all of the tile, and no more
  }
}

// What copies of 16 bytes rely on.
TEST(Layout, UnitsStayWhole) {
  for (const auto [rows, columns] : sizes)
    for (int row = 0; row < rows; ++row)
      for (int column = 0; column < columns; column += 8) {
        const int start = tile_offset(rows, row, column);
        ASSERT_EQ(start % 16, 0);
        for (int i = 1; i < 8; ++i)
          ASSERT_EQ(tile_offset(rows, row, column + i), start + 2 * i) << row << ' ' << column;
      }
}

// ldmatrix and stmatrix take 16 bytes of each of eight rows at once, which is all of the banks.
TEST(Layout, EightRowsOfAUnitAreInDifferentBanks) {
  for (const auto [rows, columns] : sizes)
    for (int first = 0; first < rows; first += 8)
      for (int column = 0; column < columns; column += 8) {
        std::set<int> groups;
        for (int row = first; row < first + 8; ++row)
          groups.insert(bank_of(tile_offset(rows, row, column)) / 4);
        ASSERT_EQ(groups.size(), 8u) << first << ' ' << column;
      }
}

// A warp that stores a register of a fragment: lane 4 g + t has two columns, 2 t and 2 t + 1, of
// row g.
TEST(Layout, PairsOfAFragmentAreInDifferentBanks) {
  for (const auto [rows, columns] : sizes)
    for (int first = 0; first < rows; first += 8)
      for (int column = 0; column < columns; column += 8) {
        std::set<int> banks;
        for (int g = 0; g < 8; ++g)
          for (int t = 0; t < 4; ++t)
            banks.insert(bank_of(tile_offset(rows, first + g, column + 2 * t)));
        ASSERT_EQ(banks.size(), 32u) << first << ' ' << column;
      }
}

// A field of a matrix descriptor. PTX ISA, "Asynchronous Warpgroup Level Matrix: Matrix Descriptor
// Format".
std::uint64_t bits(std::uint64_t descriptor, int first, int last) {
  return descriptor >> first & ((std::uint64_t{1} << (last - first + 1)) - 1);
}
// Its matrix-descriptor-encode.
std::uint64_t encoded(std::uint64_t x) { return (x & 0x3'FFFF) >> 4; }

TEST(Layout, DescriptorHasTheFieldsOfThePtxIsa) {
  constexpr std::uint32_t sizes_in_bytes[] = {0, 16, 1024, 8192, 16384, 0x15550, 0x2AAA0, 0x3FFF0};
  for (const std::uint32_t address : sizes_in_bytes)
    for (const std::uint32_t leading : sizes_in_bytes)
      for (const std::uint32_t stride : sizes_in_bytes) {
        const std::uint64_t x = descriptor(address, leading, stride);
        const std::string what = fmt::format("{:#x} {:#x} {:#x}", address, leading, stride);
        ASSERT_EQ(bits(x, 0, 13), encoded(address)) << what;
        ASSERT_EQ(bits(x, 14, 15), 0u) << what;
        ASSERT_EQ(bits(x, 16, 29), encoded(leading)) << what;
        ASSERT_EQ(bits(x, 30, 31), 0u) << what;
        ASSERT_EQ(bits(x, 32, 45), encoded(stride)) << what;
        ASSERT_EQ(bits(x, 46, 48), 0u) << what;
        ASSERT_EQ(bits(x, 49, 51), 0u) << what << ": base offset, of a pattern that is aligned";
        ASSERT_EQ(bits(x, 52, 61), 0u) << what;
        ASSERT_EQ(bits(x, 62, 63), 1u) << what << ": 128-byte swizzle";
        ASSERT_EQ(descriptor(address, leading, stride, Swizzle::bytes_64) ^ x, 3ULL << 62)
            << what << ": 64-byte swizzle, which is 2";
      }
}

TEST(Layout, DescriptorTakesNoMoreOfANumberThanItsField) {
  EXPECT_EQ(descriptor(0x4'0010, 0, 0), descriptor(0x10, 0, 0));
  EXPECT_EQ(descriptor(0, 0x4'0010, 0), descriptor(0, 0x10, 0));
  EXPECT_EQ(descriptor(0, 0, 0x4'0010), descriptor(0, 0, 0x10));
}

// Where the tensor cores look for an operand that a descriptor describes: offsets add up in linear
// addresses, and the swizzle is of the sum. Rows are M or N, and K is [0, 16) from the start on.
std::uint32_t read_k_major(std::uint32_t start, int row, int k) {
  return swizzled(start +
                  static_cast<std::uint32_t>(row / 8 * rows_8_bytes + row % 8 * 128 + k * 2));
}
// Columns are M or N, of which 64 are a pattern; the leading offset goes to the next one.
std::uint32_t read_mn_major(std::uint32_t start, int leading, int column, int k) {
  return swizzled(start + static_cast<std::uint32_t>(column / 64 * leading + column % 64 * 2 +
                                                     k / 8 * rows_8_bytes + k % 8 * 128));
}

TEST(Layout, StepsInKOfAKMajorOperandFindItsElements) {
  for (const auto [rows, columns] : sizes)
    for (int step = 0; step < columns; step += 16)
      for (int row = 0; row < rows; ++row)
        for (int k = 0; k < 16; ++k)
          ASSERT_EQ(read_k_major(k_step_offset(rows, step), row, k),
                    static_cast<std::uint32_t>(tile_offset(rows, row, step + k)))
              << fmt::format("[{}][{}] of [{}][{}]", row, step + k, rows, columns);
}

TEST(Layout, StepsInKOfAnMnMajorOperandFindItsElements) {
  for (const auto [rows, columns] : sizes)
    for (const int taken : {32, 64, 128})
      for (int first = 0; first + taken <= columns; first += taken)
        for (int step = 0; step < rows; step += 16)
          for (int column = 0; column < taken; ++column)
            for (int k = 0; k < 16; ++k)
              ASSERT_EQ(read_mn_major(mn_step_offset(rows, first, step), rows * panel_row_bytes,
                                      column, k),
                        static_cast<std::uint32_t>(tile_offset(rows, step + k, first + column)))
                  << fmt::format("{} columns, [{}][{}] of [{}][{}]", taken, step + k,
                                 first + column, rows, columns);
}

// The same of panels of 32 columns. Of the 64-byte swizzle, bits 4 and 5 of an address are those of
// the linear one, exclusive or its bits 7 and 8.
std::uint32_t narrowly_swizzled(std::uint32_t linear) { return linear ^ (linear >> 7 & 3) << 4; }

template <class Check>
void for_each_narrow_element(Check check) {
  for (const Size size : {Size{32, 32}, Size{64, 32}, Size{64, 64}, Size{128, 128}})
    for (int row = 0; row < size.rows; ++row)
      for (int column = 0; column < size.columns; ++column)
        check(size, row, column, narrow_offset(size.rows, row, column));
}

TEST(Layout, NarrowTileIsSwizzledAsTheCopyEngineDoes) {
  for_each_narrow_element([](Size size, int row, int column, int offset) {
    const int linear = column / 32 * (size.rows * 64) + row * 64 + column % 32 * 2;
    ASSERT_EQ(static_cast<std::uint32_t>(offset),
              narrowly_swizzled(static_cast<std::uint32_t>(linear)))
        << fmt::format("[{}][{}] of [{}][{}]", row, column, size.rows, size.columns);
  });
}

TEST(Layout, EightRowsOfANarrowUnitAreInDifferentBanks) {
  std::set<int> groups;
  for_each_narrow_element([&](Size size, int row, int column, int) {
    if (row % 8 != 0 || column % 8 != 0) return;
    groups.clear();
    for (int i = row; i < row + 8; ++i)
      groups.insert(bank_of(narrow_offset(size.rows, i, column)) / 4);
    ASSERT_EQ(groups.size(), 8u) << row << ' ' << column;
  });
}

TEST(Layout, StepsInKOfANarrowOperandFindItsElements) {
  for_each_narrow_element([](Size size, int row, int column, int offset) {
    const std::uint32_t step = narrow_k_step_offset(size.rows, column / 16 * 16);
    ASSERT_EQ(
        narrowly_swizzled(step + row / 8 * narrow_rows_8_bytes + row % 8 * 64 + column % 16 * 2),
        static_cast<std::uint32_t>(offset))
        << "K-major " << row << ' ' << column;
    const std::uint32_t rows = narrow_mn_step_offset(size.rows, 0, row / 16 * 16);
    ASSERT_EQ(narrowly_swizzled(rows + column / 32 * size.rows * 64 + column % 32 * 2 +
                                row % 16 / 8 * narrow_rows_8_bytes + row % 8 * 64),
              static_cast<std::uint32_t>(offset))
        << "MN-major " << row << ' ' << column;
  });
}

TEST(Layout, EveryElementOfAResultIsInOneRegister) {
  for (const int n : {32, 64, 128}) {
    std::set<std::pair<int, int>> elements;
    for (int thread = 0; thread < 128; ++thread)
      for (int r = 0; r < n / 2; ++r) {
        const auto [row, column] = element_of(thread, r);
        ASSERT_TRUE(row >= 0 && row < 64 && column >= 0 && column < n) << thread << ' ' << r;
        elements.insert({row, column});
      }
    EXPECT_EQ(elements.size(), 64u * n);
  }
}

// sm80/mma.cuh: lane 4 g + t of a warp has x[0] x[1] of row g, columns 2 t and 2 t + 1, and x[2]
// x[3] of row g + 8. A result is 16 rows for each warp in turn, and n / 8 Sums beside one another.
TEST(Layout, ResultsAreSums) {
  for (int warp = 0; warp < 4; ++warp)
    for (int g = 0; g < 8; ++g)
      for (int t = 0; t < 4; ++t)
        for (int sum = 0; sum < 16; ++sum) {
          const int thread = 32 * warp + 4 * g + t;
          const int top = 16 * warp + g;
          const int left = 8 * sum + 2 * t;
          const Element expected[4] = {
              {top, left}, {top, left + 1}, {top + 8, left}, {top + 8, left + 1}};
          for (int i = 0; i < 4; ++i) {
            const auto [row, column] = element_of(thread, 4 * sum + i);
            ASSERT_EQ(row, expected[i].row) << fmt::format("Sum {}, x[{}] of {}", sum, i, thread);
            ASSERT_EQ(column, expected[i].column)
                << fmt::format("Sum {}, x[{}] of {}", sum, i, thread);
          }
        }
}

// PTX ISA, "wgmma.mma_async: Register Fragments", matrix A: lane 4 g + t has of 16 columns four
// pairs, (g, 2 t), (g + 8, 2 t), (g, 2 t + 8) and (g + 8, 2 t + 8). So Sums 2 s and 2 s + 1 of a
// result, in their order, are the operand of step s of the next product.
TEST(Layout, ResultsAreOperandsOfTheNextProduct) {
  for (int thread = 0; thread < 128; ++thread)
    for (int step = 0; step < 8; ++step)
      for (int i = 0; i < 8; ++i) {
        const int g = thread % 32 / 4;
        const int t = thread % 4;
        const int pair = i / 2;
        const auto [row, column] = element_of(thread, 8 * step + i);
        ASSERT_EQ(row, thread / 32 * 16 + (pair == 1 || pair == 3 ? g + 8 : g))
            << thread << ' ' << i;
        ASSERT_EQ(column, 16 * step + 2 * t + (pair >= 2 ? 8 : 0) + i % 2) << thread << ' ' << i;
      }
}

}  // namespace
}  // namespace gdn::sm90
