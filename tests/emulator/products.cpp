// wgmma. A warp's products take place in the order of their issue, each at some moment between that
// and the wait for its group; only then are operands in shared memory read.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "kernels/bfloat16.hpp"
#include "tests/emulator/cuda_fp16.h"
#include "tests/emulator/machine.hpp"

namespace gdn::emulator {
namespace {

constexpr std::uint32_t poison = 0x7FC0'DEAD;  // a NaN

float number(std::uint16_t bits, bool half) {
  return half ? __half2float({bits}) : to_float({bits});
}

// Element [outer][k] of an operand in shared memory, as its descriptor says: PTX ISA,
// "Asynchronous Warpgroup Level Matrix: Matrix Descriptor Format".
struct Operand {
  std::uint32_t start, leading, stride;
  bool transposed, half;
  std::uint32_t row_bytes;  // of the swizzle
  const Cta& cta;
  std::size_t end;

  Operand(const Warp& warp, std::uint64_t descriptor, bool is_transposed, bool is_half)
      : start((descriptor & 0x3FFF) << 4),
        leading((descriptor >> 16 & 0x3FFF) << 4),
        stride((descriptor >> 32 & 0x3FFF) << 4),
        transposed(is_transposed),
        half(is_half),
        row_bytes(descriptor >> 62 == 2 ? 64 : 128),
        cta(*warp.cta),
        end(1024 + Machine::now().grid().shared_bytes) {
    if ((descriptor >> 62 != 1 && descriptor >> 62 != 2) || (descriptor >> 49 & 7) != 0)
      throw Fault("the descriptor of a product is of neither the 128-byte nor the 64-byte swizzle");
  }

  // Eight neighbours from [outer][k] on: of a row, or of a column where it is transposed.
  std::array<std::uint16_t, 8> unit(std::uint32_t outer, std::uint32_t k) const {
    const std::uint32_t columns = row_bytes / 2;
    const std::uint32_t plain =
        start + (transposed ? outer / columns * leading + outer % columns * 2 + k / 8 * stride +
                                  k % 8 * row_bytes
                            : outer / 8 * stride + outer % 8 * row_bytes + k * 2);
    const std::uint32_t swizzled = plain ^ (plain >> 7 & (row_bytes / 16 - 1)) << 4;
    if (swizzled < 1024 || swizzled + 16 > end)
      throw Fault("an operand of a product is not in the CTA's shared memory");
    std::array<std::uint16_t, 8> x;
    expect_published(cta, swizzled - 1024);
    std::memcpy(x.data(), cta.shared + swizzled - 1024, sizeof(x));
    return x;
  }
  // Visits [outer][k] of `rows` × 16 from row `first` on.
  template <class Visit>
  void for_each_element(std::uint32_t first, std::uint32_t rows, Visit visit) const {
    for (std::uint32_t outer = 0; outer < rows; outer += transposed ? 8 : 1)
      for (std::uint32_t k = 0; k < 16; k += transposed ? 1 : 8) {
        const std::array<std::uint16_t, 8> x = unit(first + outer, k);
        for (std::uint32_t i = 0; i < 8; ++i)
          visit(transposed ? outer + i : outer, transposed ? k : k + i, number(x[i], half));
      }
  }
};

// Lane 4 g + t has, of a row of 16, columns 2 t and 2 t + 1, and so on: sm80/mma.cuh.
template <int n>
void multiply(const float (&a)[16][16], const float (&b)[16][128], bool accumulate, float* values) {
  float d[16][n];
  const auto for_each = [&](auto visit) {
    for (int lane = 0; lane < 32; ++lane)
      for (int r = 0; r < n / 2; ++r)
        visit(d[lane / 4 + r / 2 % 2 * 8][r / 4 * 8 + lane % 4 * 2 + r % 2],
              values[lane * n / 2 + r]);
  };
  if (accumulate) {
    for_each([](float& sum, float value) { sum = value; });
  } else {
    std::memset(d, 0, sizeof(d));
  }
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k)
      for (int j = 0; j < n; ++j) d[i][j] += a[i][k] * b[k][j];
  for_each([](float sum, float& value) { value = sum; });
}

void execute(Warp& warp, Product& product) {
  const Operands& x = product.operands;
  const int n = product.accumulator->n;
  float a[16][16], b[16][128];
  if (x.left != nullptr) {
    for (int lane = 0; lane < 32; ++lane)
      for (int i = 0; i < 4; ++i) {
        float* to = &a[lane / 4 + i % 2 * 8][lane % 4 * 2 + i / 2 * 8];
        const std::uint32_t pair = product.copy[lane][i];
        to[0] = number(pair & 0xFFFF, x.half), to[1] = number(pair >> 16, x.half);
      }
  } else {
    Operand(warp, x.a, x.a_transposed, x.half)
        .for_each_element(warp.number % 4 * 16, 16, [&](int i, int k, float y) { a[i][k] = y; });
  }
  Operand(warp, x.b, x.b_transposed, x.half).for_each_element(0, n, [&](int j, int k, float y) {
    b[k][j] = y;
  });
  float* values = product.accumulator->values.data();
  if (n == 32) multiply<32>(a, b, product.accumulate, values);
  if (n == 64) multiply<64>(a, b, product.accumulate, values);
  if (n == 128) multiply<128>(a, b, product.accumulate, values);
  product.executed = true;
}

void write_poison(float* registers, int count) {
  for (int i = 0; i < count; ++i) std::memcpy(registers + i, &poison, sizeof(poison));
}
bool is_poisoned(const float* registers, int count) {
  for (int i = 0; i < count; ++i)
    if (std::bit_cast<std::uint32_t>(registers[i]) != poison) return false;
  return true;
}

// The accumulator that a lane's registers are part of, or null.
Accumulator* find(Warp& warp, int lane, const float* registers) {
  for (const auto& accumulator : warp.accumulators)
    if (accumulator->lanes >> lane & 1 && accumulator->registers[lane] == registers)
      return accumulator.get();
  return nullptr;
}

// Hands the registers back to their threads.
void retire(Warp& warp, Product& product) {
  for (int lane = 0; lane < 32; ++lane)
    if (product.left[lane] != nullptr &&
        std::memcmp(product.left[lane], product.copy[lane], 16) != 0)
      fail(fmt::format("waits for a product whose left operand was overwritten, in lane {}", lane));
  Accumulator& accumulator = *product.accumulator;
  if (--accumulator.users > 0) return;
  const int count = accumulator.n / 2;
  for (int lane = 0; lane < 32; ++lane) {
    if (!is_poisoned(accumulator.registers[lane], count))
      fail(fmt::format("waits for a product whose result was overwritten, in lane {}", lane));
    std::memcpy(accumulator.registers[lane], &accumulator.values[lane * count],
                count * sizeof(float));
  }
  std::erase_if(warp.accumulators, [&](const auto& x) { return x.get() == &accumulator; });
}

void finish_groups(int pending) {
  Lane& last = *Machine::now().lane();
  Warp& warp = *last.warp;
  for (const Lane& lane : warp.lanes)
    if (lane.products != last.products || lane.product_groups != last.product_groups)
      fail("waits for products, of which other lanes of its warp issued more or fewer");
  while (!warp.groups.empty() && static_cast<int>(warp.groups.size()) > pending) {
    const std::uint64_t end = warp.groups.front();
    for (; warp.retired < end; ++warp.retired) {
      Product& product = warp.products.front();
      if (!product.executed) execute_product(warp);
      retire(warp, product);
      --warp.executed;
      warp.products.pop_front();
    }
    warp.groups.pop_front();
    ++warp.retired_groups;
  }
}

}  // namespace

bool has_product(const Warp& warp) {
  return warp.executed < warp.products.size() && warp.products[warp.executed].lanes == ~0U;
}

void execute_product(Warp& warp) { execute(warp, warp.products[warp.executed++]); }

void begin_products() { Machine::now().lane()->fenced = true; }

void multiply(float* d, int n, const Operands& operands, bool accumulate) {
  Machine& machine = Machine::now();
  Lane& lane = *machine.lane();
  Warp& warp = *lane.warp;
  if (!lane.fenced) fail("multiplies without products_begin after the last wait");
  const std::size_t number = lane.products++ - warp.retired;
  Accumulator* const used = find(warp, lane.number, d);  // by a product under way
  if (number == warp.products.size()) {
    Accumulator* accumulator = used;
    if (used == nullptr) {
      accumulator = warp.accumulators.emplace_back(std::make_unique<Accumulator>()).get();
      accumulator->n = n;
      accumulator->values.resize(16 * n, std::numeric_limits<float>::quiet_NaN());
    }
    ++accumulator->users;
    warp.products.push_back({operands, accumulate, accumulator});
  }
  Product& product = warp.products[number];
  Accumulator& accumulator = *product.accumulator;
  const Operands& common = product.operands;
  if (common.a != operands.a || common.b != operands.b || product.accumulate != accumulate ||
      accumulator.n != n || (common.left == nullptr) != (operands.left == nullptr))
    fail("multiplies by something else than other lanes of its warp");
  if (used == nullptr && !(accumulator.lanes >> lane.number & 1)) {
    accumulator.lanes |= 1U << lane.number;
    accumulator.registers[lane.number] = d;
    if (accumulate) std::memcpy(&accumulator.values[lane.number * n / 2], d, n / 2 * sizeof(float));
    write_poison(d, n / 2);
  }
  if (accumulator.registers[lane.number] != d || !is_poisoned(d, n / 2))
    fail("multiplies into registers that were overwritten under another product");
  if (operands.left != nullptr) {
    product.left[lane.number] = operands.left;
    std::memcpy(product.copy[lane.number], operands.left, 16);
  }
  product.lanes |= 1U << lane.number;
  if (product.lanes == ~0U)
    while (has_product(warp) && machine.eager()) execute_product(warp);
}

void commit_products() {
  Lane& lane = *Machine::now().lane();
  Warp& warp = *lane.warp;
  const std::size_t number = lane.product_groups++ - warp.retired_groups;
  if (number == warp.groups.size()) warp.groups.push_back(lane.products);
  if (warp.groups[number] != lane.products)
    fail("commits more or fewer products than other lanes of its warp");
}

void wait_products(int pending) {
  meet("products_wait", ~0U, &pending,
       [](void* const* all) { finish_groups(*static_cast<const int*>(all[0])); });
  Machine::now().lane()->fenced = false;
}

}  // namespace gdn::emulator
