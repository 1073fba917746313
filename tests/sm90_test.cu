// The instructions behind kernels/sm90, one small kernel each, on the device: what a wrapper says
// it does, against the host. Everything here skips itself where the device is no Hopper.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cuda/ptx>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/roles.cuh"
#include "kernels/sm80/tile.cuh"
#include "kernels/sm90/barrier.cuh"
#include "kernels/sm90/layout.hpp"
#include "kernels/sm90/matrix.cuh"
#include "kernels/sm90/tensor_map.hpp"
#include "kernels/sm90/tile.cuh"
#include "kernels/sm90/tma.cuh"
#include "kernels/sm90/warpgroup.cuh"
#include "kernels/sm90/wgmma.cuh"
#include "src/cuda.hpp"

namespace gdn::sm90 {
namespace {

using sm80::left_of;
using sm80::left_of_transposed;

class CudaSm90 : public testing::Test {
 protected:
  void SetUp() override {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0)
      GTEST_SKIP() << "there is no CUDA device here";
    int major = 0, minor = 0;
    must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "device");
    must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "device");
    if (major != 9 || minor != 0) GTEST_SKIP() << "compute capability 9.0 is needed";
  }
};

// A vector on the device.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& host) : size_(host.size()) {
    T* memory = nullptr;
    must(cudaMalloc(&memory, size_ * sizeof(T)), "cudaMalloc");
    memory_.reset(memory);
    must(cudaMemcpy(memory, host.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), "copy in");
  }
  explicit OnDevice(std::size_t size) : OnDevice(std::vector<T>(size)) {}

  T* get() const { return memory_.get(); }
  std::vector<T> read() const {
    std::vector<T> host(size_);
    must(cudaMemcpy(host.data(), get(), size_ * sizeof(T), cudaMemcpyDeviceToHost), "copy out");
    return host;
  }

 private:
  std::size_t size_;
  CudaHandle<T*, cudaFree> memory_;
};

// Runs a kernel (launch.cuh) on one cluster, and throws if anything went wrong.
template <class Kernel>
void run(const typename Kernel::Arguments& arguments, unsigned ctas = 1) {
  must(cudaFuncSetAttribute(entry<Kernel>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            shared_bytes<Kernel>),
       Kernel::name);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = ctas;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = ctas;
  config.blockDim = Kernel::threads;
  config.dynamicSmemBytes = shared_bytes<Kernel>;
  config.attrs = &cluster;
  config.numAttrs = 1;
  must(cudaLaunchKernelEx(&config, entry<Kernel>, arguments), Kernel::name);
  must(cudaDeviceSynchronize(), Kernel::name);
}

// Bits that no kernel writes, and that no tensor of `numbered` holds.
constexpr BFloat16 untouched = {0xFFFF};

// Different bits in every element, none of them a NaN's and none 0.
std::vector<BFloat16> numbered(std::size_t size) {
  if (size > 0x7F7F) throw std::logic_error("so many numbers are not in 15 bits");
  std::vector<BFloat16> x(size);
  for (std::size_t i = 0; i < size; ++i) x[i] = {static_cast<std::uint16_t>(i + 1)};
  return x;
}

// Between a tile and a plain matrix [rows][columns], by all threads of a CTA.
template <class Tile>
__device__ void fill(Tile& tile, const BFloat16* matrix) {
  constexpr int units = Tile::columns / 8;
  for (int i = threadIdx.x; i < Tile::rows * units; i += blockDim.x) {
    tile.unit(i / units, i % units * 8) = reinterpret_cast<const uint4*>(matrix)[i];
  }
}
template <class Tile>
__device__ void fill(Tile& tile, BFloat16 value) {
  for (int i = threadIdx.x; i < Tile::rows * Tile::columns; i += blockDim.x) tile.x[i] = value;
}
// As it lies in shared memory.
template <class Tile>
__device__ void copy_out(BFloat16* to, const Tile& tile) {
  for (int i = threadIdx.x; i < Tile::rows * Tile::columns; i += blockDim.x) to[i] = tile.x[i];
}

// For messages.
template <class... Words>
std::string words(const Words&... x) {
  std::ostringstream text;
  ((text << x << ' '), ...);
  return text.str();
}

// What stands at an element's place in the image of a tile.
BFloat16 at(const BFloat16* tile, int rows, int row, int column) {
  return tile[tile_offset(rows, row, column) / 2];
}

// ---- barriers

// A single thread looks at a barrier of two arrivals after all that happens to it.
struct Phases {
  static constexpr const char* name = "phases";
  static constexpr int threads = 32, blocks_per_processor = 1, half = 128;  // half: of the bytes
  enum Time { Fresh, OneArrived, BothArrived, BytesExpected, HalfCame, AllCame, times };
  struct Arguments {
    const unsigned char* bytes;
    unsigned char* ended;  // [time][parity]
    unsigned char* copied;
  };
  struct Shared {
    alignas(128) unsigned char bytes[2 * half];
    PhaseBarrier barrier;
  };

  static __device__ bool ended(PhaseBarrier& barrier, std::uint32_t parity) {
    return cuda::ptx::mbarrier_test_wait_parity(&barrier.word, parity);
  }
  static __device__ void copy_half(const Arguments& arguments, Shared& shared, int which) {
    cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global,
                             shared.bytes + which * half, arguments.bytes + which * half, half,
                             &shared.barrier.word);
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    if (threadIdx.x != 0) return;
    PhaseBarrier& barrier = shared.barrier;
    const auto look = [&](Time time) {
      for (std::uint32_t parity = 0; parity < 2; ++parity)
        arguments.ended[2 * time + parity] = ended(barrier, parity);
    };
    barrier.initialise(2);
    publish_barriers();
    look(Fresh);
    barrier.arrive();
    look(OneArrived);
    barrier.arrive();
    barrier.wait(0);
    look(BothArrived);
    barrier.arrive_and_expect(2 * half);
    barrier.arrive();
    look(BytesExpected);
    copy_half(arguments, shared, 0);
    bool early = false;  // if it ends by half of the bytes, then within this time
    for (int i = 0; i < 10'000; ++i) early |= ended(barrier, 1);
    arguments.ended[2 * HalfCame] = ended(barrier, 0);
    arguments.ended[2 * HalfCame + 1] = early;
    copy_half(arguments, shared, 1);
    barrier.wait(1);
    look(AllCame);
    for (int i = 0; i < 2 * half; ++i) arguments.copied[i] = shared.bytes[i];
  }
};

TEST_F(CudaSm90, PhaseEndsWithAllArrivalsAndAllBytes) {
  std::vector<unsigned char> bytes(2 * Phases::half);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<unsigned char>(3 * i + 1);
  const OnDevice<unsigned char> from(bytes);
  const OnDevice<unsigned char> copied(bytes.size());
  const OnDevice<unsigned char> ended(2 * Phases::times);
  run<Phases>({from.get(), ended.get(), copied.get()});
  // Whether the phase of parity 0 has ended, and that of parity 1: before the first, it has.
  const std::vector<unsigned char> expected = {0, 1, 0, 1, 1, 0, 1, 0, 1, 0, 0, 1};
  EXPECT_EQ(ended.read(), expected);
  EXPECT_EQ(copied.read(), bytes);
}

// A warp hands numbers to three others through one place, in turns of two barriers.
struct Ring {
  static constexpr const char* name = "ring";
  static constexpr int threads = 128, blocks_per_processor = 1, turns = 100;
  struct Arguments {
    int* seen;  // [turn][reading thread]
  };
  struct Shared {
    int slot[32];
    PhaseBarrier full, free;
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    if (threadIdx.x == 0) {
      shared.full.initialise(32);
      shared.free.initialise(3);
      publish_barriers();
    }
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int turn = 0; turn < turns; ++turn) {
      const std::uint32_t parity = turn % 2;
      if (warp == 0) {
        shared.free.wait(parity ^ 1);  // at once in the first turn
        shared.slot[lane] = 1000 * turn + lane;
        shared.full.arrive();
      } else {
        shared.full.wait(parity);
        arguments.seen[96 * turn + threadIdx.x - 32] = shared.slot[31 - lane];
        __syncwarp();
        if (lane == 0) shared.free.arrive();
      }
    }
  }
};

TEST_F(CudaSm90, PhasesFollowOneAnother) {
  const OnDevice<int> seen(96 * Ring::turns);
  run<Ring>({seen.get()});
  const std::vector<int> result = seen.read();
  for (int turn = 0; turn < Ring::turns; ++turn)
    for (int i = 0; i < 96; ++i)
      ASSERT_EQ(result[96 * turn + i], 1000 * turn + 31 - i % 32)
          << words("turn", turn, "thread", i);
}

// A warpgroup writes and only arrives, the other one waits and reads what everybody wrote.
struct Numbered {
  static constexpr const char* name = "numbered";
  static constexpr int threads = 256, blocks_per_processor = 1, turns = 100;
  enum Event { Written = 1, Read, Writers };
  struct Arguments {
    int* seen;  // [turn][reading thread]
  };
  struct Shared {
    int own[128], exchanged[128];
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const int thread = threadIdx.x % 128;
    for (int turn = 0; turn < turns; ++turn) {
      if (threadIdx.x / 128 == 0) {
        shared.own[thread] = 1000 * turn + thread;
        sync<128>(Writers);
        if (turn > 0) sync<256>(Read);
        shared.exchanged[thread] = shared.own[127 - thread];
        arrive<256>(Written);
        sync<128>(Writers);  // `own` is no longer read
      } else {
        sync<256>(Written);
        arguments.seen[128 * turn + thread] = shared.exchanged[thread ^ 32];
        if (turn + 1 < turns) arrive<256>(Read);
      }
    }
  }
};

TEST_F(CudaSm90, NumberedBarriersOrderWhoArrivesAndWhoWaits) {
  const OnDevice<int> seen(128 * Numbered::turns);
  run<Numbered>({seen.get()});
  const std::vector<int> result = seen.read();
  for (int turn = 0; turn < Numbered::turns; ++turn)
    for (int i = 0; i < 128; ++i)
      ASSERT_EQ(result[128 * turn + i], 1000 * turn + 127 - (i ^ 32))
          << words("turn", turn, "thread", i);
}

// ---- the copy engine

constexpr int tokens = 70, heads = 3, columns = 128, box_rows = 64;

CUtensorMap map_of(const OnDevice<BFloat16>& tensor, int box_columns = panel_columns) {
  return tensor_map(tensor.get(), tokens, heads, columns, box_rows, box_columns);
}
std::size_t place(int token, int head, int column) {
  return (std::size_t{1} * token * heads + head) * columns + column;
}

template <class Tile>
struct LoadBox {
  static constexpr const char* name = "load_box";
  static constexpr int threads = 128, blocks_per_processor = 1;
  static constexpr int box_columns = columns / Tile::panels;
  struct Arguments {
    CUtensorMap map;
    int head, token;
    BFloat16* image;
  };
  struct Shared {
    Tile tile;
    PhaseBarrier full;
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    fill(shared.tile, untouched);
    publish_to_async();
    if (threadIdx.x == 0) {
      shared.full.initialise(1);
      publish_barriers();
      prefetch(arguments.map);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      shared.full.arrive_and_expect(sizeof(shared.tile.x));
      for (int panel = 0; panel < Tile::panels; ++panel) {
        load_box(shared.tile.panel(panel), arguments.map, panel * box_columns, arguments.head,
                 arguments.token, shared.full);
      }
    }
    shared.full.wait(0);
    copy_out(arguments.image, shared.tile);
  }
};

// `offset(rows, row, column)`: where an element is in the tile.
template <class Kernel, class Offset>
void expect_box(Offset offset) {
  const std::vector<BFloat16> host = numbered(tokens * heads * columns);
  const OnDevice<BFloat16> tensor(host);
  const OnDevice<BFloat16> image(box_rows * columns);
  for (const int head : {0, 2})
    for (const int first : {0, 5, 40, tokens, -3}) {
      run<Kernel>({map_of(tensor, Kernel::box_columns), head, first, image.get()});
      const std::vector<BFloat16> result = image.read();
      for (int row = 0; row < box_rows; ++row)
        for (int column = 0; column < columns; ++column) {
          const int token = first + row;
          const bool inside = token >= 0 && token < tokens;
          ASSERT_EQ(result[offset(box_rows, row, column) / 2].bits,
                    inside ? host[place(token, head, column)].bits : 0)
              << words("head", head, "token", token, "column", column);
        }
    }
}
TEST_F(CudaSm90, BoxComesSwizzledAndAsZeroFromOutside) {
  expect_box<LoadBox<Tile<box_rows, columns>>>(tile_offset);
}
TEST_F(CudaSm90, NarrowBoxComesSwizzledAndAsZeroFromOutside) {
  expect_box<LoadBox<NarrowTile<box_rows, columns>>>(narrow_offset);
}

// Of two CTAs each brings a panel of head 1 to both, and to the other one a panel of head 2.
struct LoadBoxTo {
  static constexpr const char* name = "load_box_to";
  static constexpr int threads = 128, blocks_per_processor = 1, token = 5;
  struct Arguments {
    CUtensorMap map;
    BFloat16 *both, *other;  // a tile each for every CTA
  };
  struct Shared {
    Tile<box_rows, columns> both;
    Tile<box_rows, panel_columns> other;
    PhaseBarrier full;
  };

  static __device__ void meet() {
    cuda::ptx::barrier_cluster_arrive();
    cuda::ptx::barrier_cluster_wait();
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const int own = static_cast<int>(cuda::ptx::get_sreg_cluster_ctarank());
    fill(shared.both, untouched);
    fill(shared.other, untouched);
    publish_to_async();
    if (threadIdx.x == 0) {
      shared.full.initialise(1);
      publish_barriers();
    }
    meet();
    if (threadIdx.x == 0) {
      shared.full.arrive_and_expect(sizeof(shared.both.x) + sizeof(shared.other.x));
      load_box_to(0b11, shared.both.x + own * box_rows * panel_columns, arguments.map,
                  own * panel_columns, 1, token, shared.full);
      load_box_to(static_cast<std::uint16_t>(1 << (own ^ 1)), shared.other.x, arguments.map,
                  own * panel_columns, 2, token, shared.full);
    }
    shared.full.wait(0);
    copy_out(arguments.both + own * box_rows * columns, shared.both);
    copy_out(arguments.other + own * box_rows * panel_columns, shared.other);
    meet();  // nobody goes while the other one may still be written to
  }
};

TEST_F(CudaSm90, BoxGoesToThoseOfTheClusterThatAreNamed) {
  const std::vector<BFloat16> host = numbered(tokens * heads * columns);
  const OnDevice<BFloat16> tensor(host);
  const OnDevice<BFloat16> both(2 * box_rows * columns);
  const OnDevice<BFloat16> other(2 * box_rows * panel_columns);
  run<LoadBoxTo>({map_of(tensor), both.get(), other.get()}, 2);
  const std::vector<BFloat16> images = both.read();
  const std::vector<BFloat16> others = other.read();
  for (int cta = 0; cta < 2; ++cta)
    for (int row = 0; row < box_rows; ++row) {
      const int token = LoadBoxTo::token + row;
      for (int column = 0; column < columns; ++column)
        ASSERT_EQ(at(images.data() + cta * box_rows * columns, box_rows, row, column).bits,
                  host[place(token, 1, column)].bits)
            << words("both, CTA", cta, "row", row, "column", column);
      for (int column = 0; column < panel_columns; ++column)
        ASSERT_EQ(at(others.data() + cta * box_rows * panel_columns, box_rows, row, column).bits,
                  host[place(token, 2, (cta ^ 1) * panel_columns + column)].bits)
            << words("other, CTA", cta, "row", row, "column", column);
    }
}

// A tile to two places, from the same shared memory: it is written anew in between.
template <class Tile>
struct StoreBox {
  static constexpr const char* name = "store_box";
  static constexpr int threads = 128, blocks_per_processor = 1;
  static constexpr int box_columns = columns / Tile::panels;
  struct Arguments {
    CUtensorMap map;
    int heads[2], tokens[2];
    const BFloat16* matrices;  // [2][row][column]
  };
  struct Shared {
    Tile tile;
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    for (int i = 0; i < 2; ++i) {
      fill(shared.tile, arguments.matrices + i * box_rows * columns);
      publish_to_async();
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int panel = 0; panel < Tile::panels; ++panel) {
          store_box(arguments.map, panel * box_columns, arguments.heads[i], arguments.tokens[i],
                    shared.tile.panel(panel));
        }
        wait_stores_read<0>();
      }
      __syncthreads();
    }
  }
};

template <class Kernel>
void expect_stored_box() {
  const std::vector<BFloat16> matrices = numbered(2 * box_rows * columns);
  const OnDevice<BFloat16> from(matrices);
  // Rows outside of the tensor would be in the padding.
  std::vector<BFloat16> expected((tokens + box_rows) * heads * columns, untouched);
  const OnDevice<BFloat16> tensor(expected);
  const typename Kernel::Arguments arguments = {
      map_of(tensor, Kernel::box_columns), {1, 2}, {40, 3}, from.get()};
  run<Kernel>(arguments);
  for (int i = 0; i < 2; ++i)
    for (int row = 0; row < box_rows && arguments.tokens[i] + row < tokens; ++row)
      for (int column = 0; column < columns; ++column)
        expected[place(arguments.tokens[i] + row, arguments.heads[i], column)] =
            matrices[(i * box_rows + row) * columns + column];
  const std::vector<BFloat16> result = tensor.read();
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(result[i].bits, expected[i].bits)
        << words("token", i / columns / heads, "head", i / columns % heads, "column", i % columns);
}
TEST_F(CudaSm90, BoxIsStoredWithinTheTensorAndNowhereElse) {
  expect_stored_box<StoreBox<Tile<box_rows, columns>>>();
  expect_stored_box<StoreBox<NarrowTile<box_rows, columns>>>();
}

// Bytes that come as they lie, and go where others shall not be touched.
struct CopyBytes {
  static constexpr const char* name = "copy_bytes";
  static constexpr int threads = 32, blocks_per_processor = 1;
  static constexpr int bytes = 17408;
  struct Arguments {
    const BFloat16* from;
    BFloat16* to;
  };
  struct Shared {
    alignas(16) BFloat16 x[bytes / 2];
    PhaseBarrier full;
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    if (threadIdx.x != 0) return;
    shared.full.initialise(1);
    publish_barriers();
    shared.full.arrive_and_expect(bytes);
    load_bytes(shared.x, arguments.from, bytes, shared.full);
    shared.full.wait(0);
    store_bytes(arguments.to, shared.x, bytes);
    wait_stores_read<0>();
  }
};

TEST_F(CudaSm90, BytesComeAndGoAsTheyLie) {
  constexpr int size = CopyBytes::bytes / 2, before = 8;
  const std::vector<BFloat16> host = numbered(size);
  std::vector<BFloat16> expected(before + size + before, untouched);
  const OnDevice<BFloat16> from(host), to(expected);
  run<CopyBytes>({from.get(), to.get() + before});
  std::ranges::copy(host, expected.begin() + before);
  const std::vector<BFloat16> result = to.read();
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_EQ(result[i].bits, expected[i].bits) << words("element", i);
}

// The first rows of a tensor by plain copies, and then the tile to another by the copy engine.
struct PlainCopies {
  static constexpr const char* name = "plain_copies";
  static constexpr int threads = 96, blocks_per_processor = 1, length = 41;
  struct Arguments {
    CUtensorMap map;
    const BFloat16* tensor;  // [token][head][column]
  };
  struct Shared {
    Tile<box_rows, columns> tile;
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    fill(shared.tile, untouched);
    __syncthreads();
    load_plainly<threads, columns>(shared.tile, arguments.tensor, heads * columns, length);
    sm80::commit_copies();
    sm80::wait_copies<0>();
    publish_to_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      for (int panel = 0; panel < 2; ++panel) {
        store_box(arguments.map, panel * panel_columns, 0, 0, shared.tile.panel(panel));
      }
      wait_stores_read<0>();
    }
  }
};

TEST_F(CudaSm90, PlainCopiesReachTheCopyEngineAndEndWithTheirRows) {
  std::vector<BFloat16> host = numbered(tokens * heads * columns);
  for (std::size_t i = place(PlainCopies::length, 0, 0); i < host.size(); ++i) host[i] = untouched;
  const OnDevice<BFloat16> from(host), to(host.size());
  run<PlainCopies>({map_of(to), from.get()});
  const std::vector<BFloat16> result = to.read();
  for (int token = 0; token < box_rows; ++token)
    for (int column = 0; column < columns; ++column)
      ASSERT_EQ(result[place(token, 0, column)].bits,
                token < PlainCopies::length ? host[place(token, 0, column)].bits : 0)
          << words("token", token, "column", column);
}

TEST_F(CudaSm90, DriverRefusesATensorThatIsNotAligned) {
  const OnDevice<BFloat16> tensor(tokens * heads * columns);
  // Kept in a vector: GCC 12 gives a map that is dropped a place that is not aligned.
  std::vector<CUtensorMap> maps;
  EXPECT_THROW(maps.push_back(tensor_map(tensor.get() + 1, tokens, heads, columns, box_rows)),
               std::runtime_error);
}

// ---- fragments

struct Fragments {
  static constexpr const char* name = "fragments";
  static constexpr int threads = 128, blocks_per_processor = 1, rows = 64;
  struct Arguments {
    const BFloat16* matrix;  // [row][column]
    BFloat16 *copy, *transposed;
    std::uint32_t *taken, *taken_back;  // [column / 16][thread][register]
  };
  struct Shared {
    Tile<rows, columns> source, copy;
    Tile<columns, rows> transposed;
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    fill(shared.source, arguments.matrix);
    fill(shared.copy, untouched);
    fill(shared.transposed, untouched);
    __syncthreads();
    const int m = threadIdx.x / 32 * 16;
    for (int k = 0; k < columns; k += 16) {
      const Left a = left_of(shared.source, m, k);
      put_left(shared.copy, m, k, a);
      put_left_transposed(shared.transposed, m, k, a);
      for (int i = 0; i < 4; ++i)
        arguments.taken[(k / 16 * threads + threadIdx.x) * 4 + i] = a.x[i];
    }
    __syncthreads();
    for (int k = 0; k < columns; k += 16) {
      const Left a = left_of_transposed(shared.transposed, m, k);
      for (int i = 0; i < 4; ++i)
        arguments.taken_back[(k / 16 * threads + threadIdx.x) * 4 + i] = a.x[i];
    }
    copy_out(arguments.copy, shared.copy);
    copy_out(arguments.transposed, shared.transposed);
  }
};

TEST_F(CudaSm90, FragmentsGoInAsTheyComeOut) {
  constexpr int rows = Fragments::rows;
  const std::vector<BFloat16> matrix = numbered(rows * columns);
  const auto element = [&](int row, int column) { return matrix[row * columns + column].bits; };
  const OnDevice<BFloat16> source(matrix);
  const OnDevice<BFloat16> copy(matrix.size()), transposed(matrix.size());
  const OnDevice<std::uint32_t> taken(matrix.size() / 2), taken_back(matrix.size() / 2);
  run<Fragments>({source.get(), copy.get(), transposed.get(), taken.get(), taken_back.get()});

  // sm80/mma.cuh: lane 4 g + t has of rows g and g + 8 columns 2 t and 2 t + 1, then those + 8.
  const std::vector<std::uint32_t> lefts = taken.read();
  for (int i = 0; i < static_cast<int>(lefts.size()); ++i) {
    const int x = i % 4, thread = i / 4 % 128, k = i / 512 * 16;
    const int row = thread / 32 * 16 + thread % 32 / 4 + x % 2 * 8;
    const int column = k + thread % 4 * 2 + x / 2 * 8;
    ASSERT_EQ(lefts[i], element(row, column) | std::uint32_t{element(row, column + 1)} << 16)
        << words("register", x, "of thread", thread, "k", k);
  }
  EXPECT_EQ(taken_back.read(), lefts);

  const std::vector<BFloat16> as_is = copy.read();
  const std::vector<BFloat16> turned = transposed.read();
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) {
      ASSERT_EQ(at(as_is.data(), rows, row, column).bits, element(row, column))
          << words("row", row, "column", column);
      ASSERT_EQ(at(turned.data(), columns, column, row).bits, element(row, column))
          << words("row", row, "column", column);
    }
}

// The tile of the portable rungs: places by `unit` and by `address`, in bytes from its start.
template <int columns>
struct PortableTile {
  static constexpr const char* name = "portable_tile";
  static constexpr int threads = 128, blocks_per_processor = 1, rows = 64;
  struct Arguments {
    int *by_unit, *by_address;  // [row][column / 8]
  };
  struct Shared {
    sm80::Tile<rows, columns> tile;
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const auto start = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared.tile.x));
    for (int i = threadIdx.x; i < rows * columns / 8; i += threads) {
      const int row = i / (columns / 8), unit = i % (columns / 8);
      arguments.by_unit[i] = static_cast<int>(shared.tile.unit(row, 8 * unit) - shared.tile.x) * 2;
      arguments.by_address[i] = static_cast<int>(
          shared.tile.address(row % 8, unit % 2, row / 8 * 8, unit / 2 * 16) - start);
    }
  }
};

template <int columns>
void expect_portable_tile() {
  constexpr int rows = PortableTile<columns>::rows, units = columns / 8;
  const OnDevice<int> by_unit(rows * units), by_address(rows * units);
  run<PortableTile<columns>>({by_unit.get(), by_address.get()});
  const std::vector<int> places = by_unit.read();
  std::vector<int> taken(rows * units);
  for (int row = 0; row < rows; ++row)
    for (int unit = 0; unit < units; ++unit) {
      const int offset = places[row * units + unit];
      ASSERT_EQ(offset, (row * units + (unit ^ row % 8)) * 16) << words("row", row, "unit", unit);
      ++taken[offset / 16];
    }
  EXPECT_EQ(taken, std::vector<int>(rows * units, 1));
  EXPECT_EQ(by_address.read(), places);
}

TEST_F(CudaSm90, PortableTileIsSwizzledToo) {
  expect_portable_tile<64>();
  expect_portable_tile<128>();
}

// ---- products

constexpr int inner = 128, side = 128;  // K, and how much of M and N is there to choose from

// D [64][n] of an A and a B that begin at m and n of theirs, each stored in its major's order; of
// fp16 where `Fragment` is HalfLeft.
template <int n_, Major a_major_, Major b_major_, bool from_registers, class Fragment = Left,
          template <int, int> class TileOfB = Tile>
struct Product {
  static constexpr const char* name = "product";
  static constexpr int threads = 128, blocks_per_processor = 1, n = n_;
  static constexpr Major a_major = a_major_, b_major = b_major_;
  static constexpr bool half = std::is_same_v<Fragment, HalfLeft>;
  struct Arguments {
    const BFloat16 *a, *b;
    int first_row, first_column;
    float* d;  // [64][n]
  };
  struct Shared {
    Tile<side, inner> a;     // [m][k], or as MN-major [k][m]
    TileOfB<side, inner> b;  // [n][k], or as MN-major [k][n]
  };

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    fill(shared.a, arguments.a);
    fill(shared.b, arguments.b);
    publish_to_async();
    __syncthreads();
    const int first_row = arguments.first_row, first_column = arguments.first_column;
    Fragment left[inner / 16];
    if constexpr (from_registers) {
      const int m = first_row + threadIdx.x / 32 * 16;
#pragma unroll
      for (int i = 0; i < inner / 16; ++i) {
        const Left bits = a_major == Major::k ? left_of(shared.a, m, 16 * i)
                                              : left_of_transposed(shared.a, m, 16 * i);
        left[i] = {bits.x[0], bits.x[1], bits.x[2], bits.x[3]};
      }
    }
    Sum d[n / 8];
#pragma unroll
    for (int r = 0; r < n / 2; ++r) d[r / 4].x[r % 4] = __int_as_float(0x7FC0'0000);  // dropped
    products_begin();
#pragma unroll
    for (int k = 0; k < inner; k += 16) {
      const std::uint64_t b = b_major == Major::k ? shared.b.k_major(first_column, k)
                                                  : shared.b.mn_major(first_column, k);
      if constexpr (from_registers) {
        multiply<b_major>(d, left[k / 16], b, k > 0);
      } else {
        const std::uint64_t a =
            a_major == Major::k ? shared.a.k_major(first_row, k) : shared.a.mn_major(first_row, k);
        multiply<a_major, b_major>(d, a, b, k > 0);
      }
    }
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int r = 0; r < n / 2; ++r) {
      const Element element = element_of(threadIdx.x, r);
      arguments.d[element.row * n + element.column] = d[r / 4].x[r % 4];
    }
  }
};

// Integers so small that the sums are exact, and so uneven that no two rows or columns agree.
struct Factor {
  std::vector<int> numbers;
  std::vector<BFloat16> stored;  // or the bits of fp16
  Major major;

  Factor(Major order, std::uint32_t seed, bool half = false) : major(order) {
    constexpr std::uint16_t halves[] = {0, 0x3C00, 0x4000, 0x4200, 0x4400};  // 0 … 4
    std::uint32_t x = seed;
    for (int i = 0; i < side * inner; ++i) {
      x = x * 1664525 + 1013904223;
      const int number = static_cast<int>(x >> 24) % 9 - 4;
      const int bits = halves[std::abs(number)] | (number < 0 ? 0x8000 : 0);
      numbers.push_back(number);
      stored.push_back(half ? BFloat16{static_cast<std::uint16_t>(bits)}
                            : to_bfloat16(static_cast<float>(number)));
    }
  }
  double operator()(int outer, int k) const {
    return numbers[major == Major::k ? outer * inner + k : k * side + outer];
  }
};

double product(const Factor& a, const Factor& b, int row, int column, int first, int end) {
  double sum = 0;
  for (int k = first; k < end; ++k) sum += a(row, k) * b(column, k);
  return sum;
}

const char* name_of(Major major) { return major == Major::k ? "K-major" : "MN-major"; }

template <class Kernel>
void expect_product() {
  const Factor a(Kernel::a_major, 1, Kernel::half);
  const Factor b(Kernel::b_major, 2, Kernel::half);
  const OnDevice<BFloat16> device_a(a.stored), device_b(b.stored);
  const OnDevice<float> d(64 * Kernel::n);
  for (int first_row = 0; first_row < side; first_row += 64)
    for (int first_column = 0; first_column < side; first_column += Kernel::n) {
      run<Kernel>({device_a.get(), device_b.get(), first_row, first_column, d.get()});
      const std::vector<float> result = d.read();
      for (int row = 0; row < 64; ++row)
        for (int column = 0; column < Kernel::n; ++column)
          ASSERT_EQ(result[row * Kernel::n + column],
                    product(a, b, first_row + row, first_column + column, 0, inner))
              << words("row", first_row, "+", row, "column", first_column, "+", column, "A",
                       name_of(Kernel::a_major), "B", name_of(Kernel::b_major));
    }
}

template <int n, bool from_registers>
void expect_products() {
  expect_product<Product<n, Major::k, Major::k, from_registers>>();
  expect_product<Product<n, Major::k, Major::mn, from_registers>>();
  expect_product<Product<n, Major::mn, Major::k, from_registers>>();
  expect_product<Product<n, Major::mn, Major::mn, from_registers>>();
}

// Of an MN-major B, 32 columns begin within a panel of 64 as well.
TEST_F(CudaSm90, ProductsOf32Columns) { expect_products<32, false>(); }
TEST_F(CudaSm90, ProductsOf64Columns) { expect_products<64, false>(); }
TEST_F(CudaSm90, ProductsOf128Columns) { expect_products<128, false>(); }
TEST_F(CudaSm90, ProductsOf32ColumnsFromRegisters) { expect_products<32, true>(); }
TEST_F(CudaSm90, ProductsOf64ColumnsFromRegisters) { expect_products<64, true>(); }
TEST_F(CudaSm90, ProductsOf128ColumnsFromRegisters) { expect_products<128, true>(); }
TEST_F(CudaSm90, ProductsOfNarrowTiles) {
  expect_product<Product<64, Major::k, Major::k, true, Left, NarrowTile>>();
  expect_product<Product<64, Major::k, Major::mn, true, Left, NarrowTile>>();
  expect_product<Product<128, Major::k, Major::mn, true, Left, NarrowTile>>();
}
TEST_F(CudaSm90, ProductsOfHalvesFromRegisters) {
  expect_product<Product<128, Major::k, Major::k, true, HalfLeft>>();
  expect_product<Product<128, Major::k, Major::mn, true, HalfLeft>>();
}

// Two groups of products, each half of K: the first is used while the second may be under way. What
// the first wrote is then an operand of a third, from registers.
struct Groups {
  static constexpr const char* name = "groups";
  static constexpr int threads = 128, blocks_per_processor = 1, n = 64;
  struct Arguments {
    const BFloat16 *a, *b;
    float* d;  // [3][64][n]
  };
  struct Shared {
    Tile<side, inner> a, b;  // [m][k], [n][k]
  };

  static __device__ void write(float* to, const Sum (&d)[n / 8]) {
#pragma unroll
    for (int r = 0; r < n / 2; ++r) {
      const Element element = element_of(threadIdx.x, r);
      to[element.row * n + element.column] = d[r / 4].x[r % 4];
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    fill(shared.a, arguments.a);
    fill(shared.b, arguments.b);
    publish_to_async();
    __syncthreads();
    Sum first[n / 8], second[n / 8], third[n / 8] = {};
    products_begin();
#pragma unroll
    for (int k = 0; k < inner / 2; k += 16)
      multiply<Major::k, Major::k>(first, shared.a.k_major(0, k), shared.b.k_major(0, k), k > 0);
    products_commit();
#pragma unroll
    for (int k = inner / 2; k < inner; k += 16)
      multiply<Major::k, Major::k>(second, shared.a.k_major(0, k), shared.b.k_major(0, k),
                                   k > inner / 2);
    products_commit();
    products_wait<1>();
    write(arguments.d, first);
    products_wait<0>();
    write(arguments.d + 64 * n, second);

    Left left[n / 16];
#pragma unroll
    for (int i = 0; i < n / 16; ++i) {  // what bf16 holds exactly
      Sum low = first[2 * i], high = first[2 * i + 1];
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        low.x[x] = low.x[x] < 0 ? -1 : 1;
        high.x[x] = high.x[x] < 0 ? -1 : 1;
      }
      left[i] = sm80::left(low, high);
    }
    products_begin();
#pragma unroll
    for (int i = 0; i < n / 16; ++i)
      multiply<Major::k>(third, left[i], shared.b.k_major(0, 16 * i), true);
    products_commit();
    products_wait<0>();
    write(arguments.d + 2 * 64 * n, third);
  }
};

TEST_F(CudaSm90, ResultsAreThereAfterTheWaitForTheirGroup) {
  const Factor a(Major::k, 3);
  const Factor b(Major::k, 4);
  const OnDevice<BFloat16> device_a(a.stored), device_b(b.stored);
  const OnDevice<float> d(3 * 64 * Groups::n);
  run<Groups>({device_a.get(), device_b.get(), d.get()});
  const std::vector<float> result = d.read();
  const auto device = [&](int matrix, int row, int column) {
    return result[(matrix * 64 + row) * Groups::n + column];
  };
  for (int row = 0; row < 64; ++row)
    for (int column = 0; column < Groups::n; ++column) {
      const std::string where = words("row", row, "column", column);
      ASSERT_EQ(device(0, row, column), product(a, b, row, column, 0, inner / 2)) << where;
      ASSERT_EQ(device(1, row, column), product(a, b, row, column, inner / 2, inner)) << where;
      double third = 0;
      for (int k = 0; k < Groups::n; ++k)
        third += (product(a, b, row, k, 0, inner / 2) < 0 ? -1 : 1) * b(column, k);
      ASSERT_EQ(device(2, row, column), third) << where;
    }
}

// ---- warps and warpgroups

// Of three warpgroups that start with 168 registers a thread, one gives, and the others take what a
// calculation on 192 numbers at once needs.
struct Trade {
  static constexpr const char* name = "trade";
  static constexpr int threads = 384, blocks_per_processor = 1, numbers = 192, rounds = 5;
  struct Arguments {
    std::uint32_t* result;  // [thread]
    int rounds;             // as an argument, so that nothing is known beforehand
  };
  struct Shared {};

  template <int count>
  static __host__ __device__ std::uint32_t calculate(std::uint32_t seed, int rounds) {
    std::uint32_t x[count];
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = seed + 2654435761U * i;
#pragma unroll 1
    for (int round = 0; round < rounds; ++round) {
#pragma unroll
      for (int i = 0; i < count; ++i) x[i] = x[i] * 5 + (x[(i + 1) % count] >> 7);
    }
    std::uint32_t sum = 0;
#pragma unroll
    for (int i = 0; i < count; ++i) sum = sum * 3 + x[i];
    return sum;
  }

  static __device__ void run(const Arguments& arguments, Shared&) {
    if (threadIdx.x / 128 == 0) {
      give_registers<40>();
      arguments.result[threadIdx.x] = calculate<8>(threadIdx.x, arguments.rounds);
    } else {
      take_registers<232>();
      arguments.result[threadIdx.x] = calculate<numbers>(threadIdx.x, arguments.rounds);
    }
  }
};

TEST_F(CudaSm90, WarpgroupsTradeRegisters) {
  const OnDevice<std::uint32_t> device(Trade::threads);
  run<Trade>({device.get(), Trade::rounds});
  const std::vector<std::uint32_t> result = device.read();
  for (int thread = 0; thread < Trade::threads; ++thread)
    ASSERT_EQ(result[thread], thread < 128
                                  ? Trade::calculate<8>(thread, Trade::rounds)
                                  : Trade::calculate<Trade::numbers>(thread, Trade::rounds))
        << thread;
}

struct Election {
  static constexpr const char* name = "election";
  static constexpr int threads = 128, blocks_per_processor = 1;
  struct Arguments {
    int* first;
    int* second;
  };
  struct Shared {};

  static __device__ void run(const Arguments& arguments, Shared&) {
    arguments.first[threadIdx.x] = elected();
    __syncwarp();
    arguments.second[threadIdx.x] = elected();
  }
};

TEST_F(CudaSm90, OneThreadOfAWarpIsElectedAndAlwaysTheSame) {
  const OnDevice<int> first(Election::threads), second(Election::threads);
  run<Election>({first.get(), second.get()});
  const std::vector<int> chosen = first.read();
  for (int warp = 0; warp < Election::threads / 32; ++warp) {
    int count = 0;
    for (int lane = 0; lane < 32; ++lane) count += chosen[32 * warp + lane];
    EXPECT_EQ(count, 1) << warp;
  }
  EXPECT_EQ(second.read(), chosen);
}

}  // namespace
}  // namespace gdn::sm90
