// The emulator itself: that it computes what the instructions do, and that it finds what it is
// there to find. tests/sm90_test.cu, which devices pass, runs here as well.
#include "tests/emulator/emulator.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/sm80/half.cuh"
#include "kernels/sm80/tile.cuh"
#include "kernels/sm90/barrier.cuh"
#include "kernels/sm90/matrix.cuh"
#include "kernels/sm90/tensor_map.hpp"
#include "kernels/sm90/tile.cuh"
#include "kernels/sm90/tma.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace gdn {
namespace {

using sm80::Left;
using sm80::Sum;
using sm90::Major;
using sm90::PhaseBarrier;

constexpr int orders = 30;  // seeds, where some order must bring a fault to light

template <class Kernel>
void run(const typename Kernel::Arguments& arguments, int seed = 1) {
  emulator::set_seed(seed);
  launcher<Kernel>(1, arguments)(nullptr);
}

// What a Fault says; "" if there is none.
template <class Kernel>
std::string fault_of(const typename Kernel::Arguments& arguments, int seed = 1) {
  try {
    run<Kernel>(arguments, seed);
  } catch (const emulator::Fault& fault) {
    return fault.what();
  }
  return "";
}

template <int threads_>
struct Plain {
  static constexpr const char* name = "plain";
  static constexpr int threads = threads_, blocks_per_processor = 1;
  struct Shared {};
};

// ---- mma.sync, shuffles, votes

template <class Left, class Right, auto pair>
struct Products : Plain<32> {
  struct Arguments {
    const float *a, *b;  // [16][16], [16][8]
    float* d;            // [16][8]
  };
  static void run(const Arguments& x, Shared&) {
    const int lane = threadIdx.x, g = lane / 4, t = lane % 4;
    const auto a = [&](int row, int column) { return x.a[16 * row + column]; };
    const auto b = [&](int row, int column) { return x.b[8 * row + column]; };
    const Left left = {
        {pair(a(g, 2 * t), a(g, 2 * t + 1)), pair(a(g + 8, 2 * t), a(g + 8, 2 * t + 1)),
         pair(a(g, 2 * t + 8), a(g, 2 * t + 9)), pair(a(g + 8, 2 * t + 8), a(g + 8, 2 * t + 9))}};
    const Right right = {
        {pair(b(2 * t, g), b(2 * t + 1, g)), pair(b(2 * t + 8, g), b(2 * t + 9, g))}};
    Sum d = {{1, 1, 1, 1}};
    sm80::mma(d, left, right);
    for (int i = 0; i < 4; ++i) {
      const int at = 8 * (g + i / 2 * 8) + 2 * t + i % 2;
      x.d[at] = d.x[i];
    }
  }
};

TEST(Emulator, MultipliesFragmentsOfAWarp) {
  std::vector<float> a(256), b(128), d(128);
  for (int i = 0; i < 256; ++i) a[i] = static_cast<float>(i * 37 % 17 - 8);
  for (int i = 0; i < 128; ++i) b[i] = static_cast<float>(i * 29 % 13 - 6);
  const auto check = [&] {
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        double sum = 1;
        for (int k = 0; k < 16; ++k) sum += a[16 * row + k] * b[8 * k + column];
        EXPECT_EQ(d[8 * row + column], sum);
      }
  };
  run<Products<Left, sm80::Right, sm80::pack>>({a.data(), b.data(), d.data()});
  check();
  for (float& x : a) x += 1 / 64.F;  // more bits than bf16 has
  run<Products<sm80::HalfLeft, sm80::HalfRight, sm80::pack_halves>>({a.data(), b.data(), d.data()});
  check();
}

// Rows of 16 numbers to halves with a unit each, and back.
struct Halves : Plain<32> {
  struct Arguments {
    float* x;        // [16][16]
    float* largest;  // [16], of each row then
  };
  static void run(const Arguments& arguments, Shared&) {
    const int g = threadIdx.x / 4, t = threadIdx.x % 4;
    const auto at = [&](int n, int i) -> float& {
      return arguments.x[16 * (g + i / 2 * 8) + 8 * n + 2 * t + i % 2];
    };
    Sum d[2];
    for (int n = 0; n < 2; ++n)
      for (int i = 0; i < 4; ++i) d[n].x[i] = at(n, i);
    const float2 largest = sm80::largest_of_rows(d);
    const float2 unit = {sm80::unit_of(largest.x), sm80::unit_of(largest.y)};
    const float2 inverse = {sm80::inverse_of(unit.x), sm80::inverse_of(unit.y)};
    const sm80::HalfLeft halves[] = {sm80::half_left(d, inverse)};
    const float2 then = sm80::largest_of_rows(halves);
    arguments.largest[g] = then.x * unit.x;
    arguments.largest[g + 8] = then.y * unit.y;
    sm80::sums_of(halves[0], unit, d);
    for (int n = 0; n < 2; ++n)
      for (int i = 0; i < 4; ++i) at(n, i) = d[n].x[i];
  }
};

// Each row is 2^16 times as large as the one before; the last number is nearly what fp32 ends at.
TEST(Emulator, RoundsToHalvesOfAnySize) {
  std::vector<float> x(256);
  for (int i = 0; i < 256; ++i)
    x[i] = i == 255 ? std::ldexp(1.99F, 127)
                    : static_cast<float>(std::ldexp((i * 37 % 64 - 31.3) / 32, i / 16 * 16 - 122));
  std::vector<float> y = x;
  std::vector<float> largest(16);
  run<Halves>({y.data(), largest.data()});
  for (int i = 0; i < 256; ++i) EXPECT_LE(std::fabs(y[i] - x[i]), std::ldexp(std::fabs(x[i]), -11));
  for (int row = 0; row < 16; ++row) {
    float expected = 0;
    for (int i = 0; i < 16; ++i) expected = std::max(expected, std::fabs(y[16 * row + i]));
    EXPECT_EQ(largest[row], expected);
  }

  EXPECT_EQ(__float2half_rn(1 + std::ldexp(1.F, -11)).bits, 0x3C00);  // to even
  EXPECT_EQ(__float2half_rn(1 + std::ldexp(3.F, -11)).bits, 0x3C02);
  EXPECT_EQ(__float2half_rn(-65519).bits, 0xFBFF);
  EXPECT_EQ(__float2half_rn(65520).bits, 0x7C00);
  EXPECT_EQ(__float2half_rn(std::ldexp(3.F, -25)).bits, 2);
  for (int bits = 0; bits <= 0x7C00; ++bits) {
    const __half half = {static_cast<std::uint16_t>(bits)};
    ASSERT_EQ(__float2half_rn(__half2float(half)).bits, bits);
  }
}

struct Shuffles : Plain<64> {
  struct Arguments {
    int* x;  // [6][thread]
  };
  static void run(const Arguments& arguments, Shared&) {
    const int thread = threadIdx.x;
    int* x = arguments.x + thread;
    x[0] = __shfl_sync(~0U, thread, 5);
    x[64] = __shfl_up_sync(~0U, thread, 3);
    x[128] = __shfl_down_sync(~0U, thread, 3, 16);
    x[192] = __shfl_xor_sync(~0U, thread, 6);
    x[256] = static_cast<int>(__ballot_sync(~0U, thread % 3 == 0));
    // Of half a warp each.
    x[320] = __shfl_sync(thread % 32 < 16 ? 0xFFFFU : 0xFFFF'0000U, thread, thread % 32 / 16 * 16);
  }
};

TEST(Emulator, ShufflesWithinAWarp) {
  std::vector<int> x(6 * 64);
  for (int seed = 0; seed < orders; ++seed) {
    run<Shuffles>({x.data()}, seed);
    for (int i = 0; i < 64; ++i) {
      const int lane = i % 32, first = i - lane;
      EXPECT_EQ(x[i], first + 5);
      EXPECT_EQ(x[64 + i], lane < 3 ? i : i - 3);
      EXPECT_EQ(x[128 + i], lane % 16 + 3 < 16 ? i + 3 : i);
      EXPECT_EQ(x[192 + i], i ^ 6);
      EXPECT_EQ(x[320 + i], i / 16 * 16);
      unsigned votes = 0;
      for (int other = 0; other < 32; ++other) votes |= ((first + other) % 3 == 0) << other;
      EXPECT_EQ(static_cast<unsigned>(x[256 + i]), votes);
    }
  }
}

// ---- deadlocks and misuse

struct WaitsForNobody : Plain<64> {
  struct Arguments {};
  struct Shared {
    std::uint64_t first;
    PhaseBarrier barrier;
  };
  static void run(const Arguments&, Shared& shared) {
    if (threadIdx.x == 0) shared.barrier.initialise(33);
    __syncthreads();
    if (threadIdx.x >= 32) {
      shared.barrier.arrive();
      shared.barrier.wait(0);
    } else {
      sm90::sync<64>(3);
    }
  }
};

TEST(Emulator, NamesWhoWaitsWhereInADeadlock) {
  for (int seed = 0; seed < orders; ++seed)
    EXPECT_EQ(
        fault_of<WaitsForNobody>({}, seed),
        "no thread can go on\n"
        "  CTA 0, warp 0: 32 lanes wait at barrier 3, where 32 of 64 threads have come\n"
        "  CTA 0, warp 1: 32 lanes wait at mbarrier at byte 8 of Shared, of whose 33 arrivals "
        "1 and 0 bytes are missing, parity 0");
}

// What no kernel may do, one thing at a time.
enum class Misuse {
  uninitialised,
  too_many_arrivals,
  comes_twice,
  other_count,
  diverged,
  no_fence,
  unread_store,
  unpublished,
  outside
};
template <Misuse misuse>
struct Misused : Plain<128> {
  struct Arguments {
    CUtensorMap map;
  };
  struct Shared {
    sm90::Tile<64, 64> tile;
    PhaseBarrier barrier;
  };
  static void run(const Arguments& x, Shared& shared) {
    if constexpr (misuse == Misuse::uninitialised) shared.barrier.arrive();
    if constexpr (misuse == Misuse::too_many_arrivals) {
      if (threadIdx.x > 0) return;
      shared.barrier.initialise(1);
      shared.barrier.arrive_and_expect(64);
      shared.barrier.arrive();
    }
    if constexpr (misuse == Misuse::comes_twice)
      for (int i = 0; i < 2; ++i) sm90::arrive<256>(1);
    if constexpr (misuse == Misuse::other_count) {
      if (threadIdx.x < 64) {
        sm90::sync<64>(1);
      } else {
        sm90::sync<128>(1);
      }
    }
    if constexpr (misuse == Misuse::diverged) {
      if (threadIdx.x % 32 < 3) {
        __syncwarp();
      } else {
        __ballot_sync(~0U, true);
      }
    }
    if constexpr (misuse == Misuse::no_fence) {
      Sum d[8];
      sm90::multiply<Major::k, Major::k>(d, shared.tile.k_major(0, 0), shared.tile.k_major(0, 0),
                                         false);
    }
    if constexpr (misuse == Misuse::unread_store)
      sm90::store_box(x.map, 0, 0, 0, shared.tile.panel(0));
    if constexpr (misuse == Misuse::unpublished) {
      sm90::put_left(shared.tile, threadIdx.x / 32 * 16, 0, {});
      __syncthreads();
      if (threadIdx.x == 0) sm90::store_box(x.map, 0, 0, 0, shared.tile.panel(0));
      if (threadIdx.x == 0) sm90::wait_stores_read<0>();
    }
    if constexpr (misuse == Misuse::outside) {
      std::uint32_t y[4];
      sm80::ldmatrix(y, shared.tile.start() + sizeof(Shared));
    }
  }
};

TEST(Emulator, RefusesWhatNoKernelMayDo) {
  std::vector<BFloat16> memory(64 * 64 + 8);
  auto* tensor = memory.data();
  while (reinterpret_cast<std::uintptr_t>(tensor) % 16 != 0) ++tensor;
  const CUtensorMap map = sm90::tensor_map(tensor, 64, 1, 64, 64);
  EXPECT_NE(fault_of<Misused<Misuse::uninitialised>>({map}).find("not initialised"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::too_many_arrivals>>({map}).find("one arrival too many"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::comes_twice>>({map}).find("twice before it opens"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::other_count>>({map}).find("threads, which is for"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::diverged>>({map}).find("other lanes of its warp to"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::no_fence>>({map}).find("without products_begin"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::unread_store>>({map}).find("still read shared memory"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::unpublished>>({map}).find("did not publish"), -1UL);
  EXPECT_NE(fault_of<Misused<Misuse::outside>>({map}).find("in shared memory, which ends"), -1UL);
}

// ---- what is asynchronous. Each kernel waits where it must, or as it must not.

// A product of ones, 16 of them, beside whose wait something else is done.
enum class Beside { nothing, operand, left, result, nothing_read };
template <Beside what, bool before_the_wait>
struct Product : Plain<128> {
  struct Arguments {
    float* d;  // [thread]: an element of each
  };
  struct Shared {
    sm90::Tile<64, 64> tile;
  };
  static void fill(Shared& shared, float value) {
    for (int i = threadIdx.x; i < 64 * 64; i += threads) shared.tile.x[i] = to_bfloat16(value);
    sm90::publish_to_async();
    __syncthreads();
  }
  static void run(const Arguments& arguments, Shared& shared) {
    fill(shared, 1);
    Left left;
    for (std::uint32_t& x : left.x) x = sm80::pack(1, 1);
    Sum d[8];
    float read = 0;
    const auto do_it = [&] {
      if (what == Beside::operand) fill(shared, 2);
      if (what == Beside::left) left.x[1] = sm80::pack(2, 2);
      if (what == Beside::result) d[3].x[1] = 0;
      read = d[5].x[2];
    };
    sm90::products_begin();
    sm90::multiply<Major::k>(d, left, shared.tile.k_major(0, 16), false);
    sm90::products_commit();
    if (before_the_wait) do_it();
    sm90::products_wait<0>();
    __syncthreads();  // as the other warps' products read the operand too
    if (!before_the_wait) do_it();
    arguments.d[threadIdx.x] = what == Beside::nothing_read ? read : d[5].x[2];
    __syncthreads();
  }
};

// All results that some order leads to: a number, or the fault's words behind the thread.
template <class Kernel, class... More>
std::set<std::string> results(More... more) {
  std::set<std::string> all;
  for (int seed = 0; seed < orders; ++seed) {
    std::vector<float> d(Kernel::threads, -1);
    std::string fault = fault_of<Kernel>({d.data(), more...}, seed);
    if (!fault.empty()) {
      all.insert(fault.substr(fault.find("waits")).substr(0, 40));
      continue;
    }
    for (const float x : d) all.insert(std::isnan(x) ? "nan" : std::to_string(static_cast<int>(x)));
  }
  return all;
}

using Set = std::set<std::string>;

TEST(Emulator, ProductsTakePlaceAnyTimeUntilTheyAreWaitedFor) {
  EXPECT_EQ((results<Product<Beside::nothing, true>>()), Set{"16"});
  EXPECT_EQ((results<Product<Beside::operand, false>>()), Set{"16"});
  const Set some = results<Product<Beside::operand, true>>();
  EXPECT_TRUE(some.contains("16") && some.contains("32"));
  EXPECT_EQ((results<Product<Beside::nothing_read, false>>()), Set{"16"});
  EXPECT_EQ((results<Product<Beside::nothing_read, true>>()), Set{"nan"});
}

TEST(Emulator, RegistersOfProductsAreLeftAlone) {
  EXPECT_EQ((results<Product<Beside::left, false>>()), Set{"16"});
  EXPECT_EQ((results<Product<Beside::left, true>>()),
            Set{"waits for a product whose left operand w"});
  EXPECT_EQ((results<Product<Beside::result, false>>()), Set{"16"});
  EXPECT_EQ((results<Product<Beside::result, true>>()),
            Set{"waits for a product whose result was ove"});
}

// A box of ones comes, and is read.
template <bool waits>
struct Load : Plain<32> {
  struct Arguments {
    float* d;
    CUtensorMap map;
  };
  struct Shared {
    sm90::Tile<64, 64> tile;
    PhaseBarrier full;
  };
  static void run(const Arguments& arguments, Shared& shared) {
    if (threadIdx.x == 0) {
      shared.full.initialise(1);
      shared.full.arrive_and_expect(sizeof(shared.tile));
      sm90::load_box(shared.tile.panel(0), arguments.map, 0, 0, 0, shared.full);
    }
    __syncwarp();
    if (waits) shared.full.wait(0);
    arguments.d[threadIdx.x] = to_float(shared.tile.x[64 * threadIdx.x]);
    shared.full.wait(0);
  }
};
// Twos go out to where ones are, and zeros follow in their place.
template <bool waits>
struct Store : Plain<32> {
  using Arguments = Load<true>::Arguments;
  struct Shared {
    sm90::Tile<64, 64> tile;
  };
  static void run(const Arguments& arguments, Shared& shared) {
    for (int i = threadIdx.x; i < 64 * 64; i += 32) shared.tile.x[i] = to_bfloat16(2);
    __syncwarp();
    if (threadIdx.x == 0) {
      sm90::store_box(arguments.map, 0, 0, 0, shared.tile.panel(0));
      if (waits) sm90::wait_stores_read<0>();
    }
    __syncwarp();
    for (int i = threadIdx.x; i < 64 * 64; i += 32) shared.tile.x[i] = to_bfloat16(0);
    if (threadIdx.x == 0 && !waits) sm90::wait_stores_read<0>();
  }
};
// 16 bytes of ones by each thread.
template <bool waits>
struct Copy : Plain<32> {
  struct Arguments {
    float* d;
    const BFloat16* ones;
  };
  struct Shared {
    sm80::Tile<64, 64> tile;
  };
  static void run(const Arguments& arguments, Shared& shared) {
    BFloat16* to = shared.tile.unit(threadIdx.x, 8);
    sm80::copy_16(to, arguments.ones);
    sm80::commit_copies();
    sm80::wait_copies<waits ? 0 : 1>();
    arguments.d[threadIdx.x] = to_float(*to);
  }
};

struct alignas(128) Ones {
  BFloat16 x[64 * 64];
  Ones() { std::fill(std::begin(x), std::end(x), to_bfloat16(1)); }
};

TEST(Emulator, CopiesComeAnyTimeUntilTheyAreWaitedFor) {
  Ones ones;
  const CUtensorMap map = sm90::tensor_map(ones.x, 64, 1, 64, 64);
  EXPECT_EQ((results<Load<true>>(map)), Set{"1"});
  EXPECT_EQ((results<Load<false>>(map)), (Set{"1", "nan"}));
  EXPECT_EQ((results<Copy<true>>(ones.x)), Set{"1"});
  EXPECT_EQ((results<Copy<false>>(ones.x)), (Set{"1", "nan"}));
}

TEST(Emulator, StoresReadAnyTimeUntilThatIsWaitedFor) {
  Ones ones;
  const CUtensorMap map = sm90::tensor_map(ones.x, 64, 1, 64, 64);
  const auto stored = [&](auto kernel) {
    Set all;
    for (int seed = 0; seed < orders; ++seed) {
      run<decltype(kernel)>({nullptr, map}, seed);
      for (const BFloat16 x : ones.x) all.insert(std::to_string(static_cast<int>(to_float(x))));
    }
    return all;
  };
  EXPECT_EQ(stored(Store<true>()), Set{"2"});
  EXPECT_EQ(stored(Store<false>()), (Set{"0", "2"}));
}

// ---- orders

// Each warp writes its number to one place, the last one remains.
struct Race : Plain<128> {
  struct Arguments {
    float* d;
  };
  struct Shared {
    int last;
  };
  static void run(const Arguments& arguments, Shared& shared) {
    shared.last = static_cast<int>(threadIdx.x / 32);
    __syncthreads();
    arguments.d[threadIdx.x] = static_cast<float>(shared.last);
  }
};

TEST(Emulator, WarpsGoInAnyOrderWhichTheSeedDetermines) {
  EXPECT_EQ(results<Race>(), (Set{"0", "1", "2", "3"}));
  for (int seed = 0; seed < orders; ++seed) {
    std::vector<float> first(128), second(128);
    run<Race>({first.data()}, seed);
    run<Race>({second.data()}, seed);
    EXPECT_EQ(first, second);
  }
}

}  // namespace
}  // namespace gdn
