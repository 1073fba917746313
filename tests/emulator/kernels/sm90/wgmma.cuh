// As the original says.
#pragma once

#include <cstdint>

#include "kernels/sm80/half.cuh"
#include "kernels/sm80/mma.cuh"

namespace gdn::sm90 {

using sm80::HalfLeft;
using sm80::Left;
using sm80::Sum;

inline void products_begin() { emulator::begin_products(); }
inline void products_issued() {}
inline void products_commit() { emulator::commit_products(); }
template <int pending>
void products_wait() {
  emulator::wait_products(pending);
}

enum class Major { k = 0, mn = 1 };

template <Major a_major, Major b_major, int sums>
requires(sums == 4 || sums == 8 || sums == 16) void multiply(Sum (&d)[sums], std::uint64_t a,
                                                             std::uint64_t b, bool accumulate) {
  emulator::multiply(d[0].x, 8 * sums, {nullptr, a, b, a_major == Major::mn, b_major == Major::mn},
                     accumulate);
}
template <Major b_major, int sums>
requires(sums == 4 || sums == 8 || sums == 16) void multiply(Sum (&d)[sums], const Left& a,
                                                             std::uint64_t b, bool accumulate) {
  emulator::multiply(d[0].x, 8 * sums, {a.x, 0, b, false, b_major == Major::mn}, accumulate);
}

template <Major b_major>
void multiply(Sum (&d)[16], const HalfLeft& a, std::uint64_t b, bool accumulate) {
  emulator::multiply(d[0].x, 128, {a.x, 0, b, false, b_major == Major::mn, true}, accumulate);
}

}  // namespace gdn::sm90
