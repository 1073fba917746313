// Inputs on the device, the same bits as generate.cpp makes: both take every element from
// random.hpp.
//   UnitRows      q, k: a warp a row; the squares meet in a butterfly, as the host adds them
//   Normals16/32  v; initial_state
//   GatesAndBeta  raw_g, beta: a thread an element
//   Hash          any tensor's share sum (hash.hpp)
// Compiled with -fmad=false. ~200 fp64 operations a normal: 0.2 ms for the largest lab case, which
// nobody times.
#include "kernels/cuda/launch.cuh"
#include "kernels/prepare/generate.hpp"
#include "kernels/prepare/hash.hpp"
#include "kernels/prepare/random.hpp"

namespace gdn {
namespace gpu {

constexpr int generator_threads = 256;
constexpr int generator_blocks = 132 * 8;  // grid-stride: any number does

__device__ std::int64_t grid_thread() {
  return std::int64_t{blockIdx.x} * generator_threads + threadIdx.x;
}

// Round to nearest even by the host's own integer arithmetic: no device intrinsic to agree with.
__device__ BFloat16 round_to_bfloat16(float x) {
  const unsigned bits = __float_as_uint(x);
  if ((bits & 0x7FFF'FFFFu) > 0x7F80'0000u) return {0x7FFF};
  return {static_cast<std::uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
}

struct UnitRows {
  static constexpr const char* name = "unit_rows";
  static constexpr int threads = generator_threads;
  static constexpr int blocks_per_processor = 2;
  struct Arguments {
    BFloat16* to;  // [rows][128]
    std::int64_t rows;
    std::uint64_t seed;
    Draw stream;
  };
  struct Shared {};

  static __device__ void run(const Arguments& arguments, Shared&) {
    const int lane = threadIdx.x % 32;
    const std::int64_t warps = std::int64_t{gridDim.x} * threads / 32;
    for (std::int64_t row = grid_thread() / 32; row < arguments.rows; row += warps) {
      const gdn::Normals drawn = normals(arguments.seed, arguments.stream, row * 32 + lane);
      const double* x = drawn.value;
      double sum = (x[0] * x[0] + x[1] * x[1]) + (x[2] * x[2] + x[3] * x[3]);
      for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
      const double length = sqrt(sum);
      for (int i = 0; i < 4; ++i) {
        arguments.to[row * head_dim + 4 * lane + i] =
            round_to_bfloat16(static_cast<float>(x[i] / length));
      }
    }
  }
};

template <class Element>
struct Normals {
  static constexpr const char* name = "normals";
  static constexpr int threads = generator_threads;
  static constexpr int blocks_per_processor = 2;
  struct Arguments {
    Element* to;  // [blocks][4]
    std::int64_t blocks;
    std::uint64_t seed;
    Draw stream;
  };
  struct Shared {};

  static __device__ void store(BFloat16& to, float x) { to = round_to_bfloat16(x); }
  static __device__ void store(float& to, float x) { to = x; }

  static __device__ void run(const Arguments& arguments, Shared&) {
    const std::int64_t stride = std::int64_t{gridDim.x} * threads;
    for (std::int64_t block = grid_thread(); block < arguments.blocks; block += stride) {
      const gdn::Normals drawn = normals(arguments.seed, arguments.stream, block);
      for (int i = 0; i < 4; ++i) {
        store(arguments.to[4 * block + i], static_cast<float>(drawn.value[i]));
      }
    }
  }
};

struct GatesAndBeta {
  static constexpr const char* name = "gates_and_beta";
  static constexpr int threads = generator_threads;
  static constexpr int blocks_per_processor = 2;
  struct Arguments {
    float* raw_g;                 // [tokens][value_heads]
    float* beta;                  // [tokens][value_heads]
    const std::int32_t* offsets;  // [sequences + 1]
    int sequences, value_heads;
    Recipe recipe;
  };
  struct Shared {};

  static __device__ int sequence_of(const Arguments& arguments, std::int64_t token) {
    int low = 0, high = arguments.sequences - 1;  // the last sequence that begins at or before it
    while (low < high) {
      const int middle = (low + high + 1) / 2;
      if (arguments.offsets[middle] <= token) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    return low;
  }

  static __device__ void run(const Arguments& arguments, Shared&) {
    const std::int64_t elements =
        std::int64_t{arguments.offsets[arguments.sequences]} * arguments.value_heads;
    const std::int64_t stride = std::int64_t{gridDim.x} * threads;
    for (std::int64_t i = grid_thread(); i < elements; i += stride) {
      const std::int64_t token = i / arguments.value_heads;
      const std::int64_t first = arguments.offsets[sequence_of(arguments, token)];
      arguments.raw_g[i] =
          raw_gate(arguments.recipe, token, token - first,
                   static_cast<int>(i % arguments.value_heads), arguments.value_heads);
      arguments.beta[i] = write_strength(arguments.recipe, i);
    }
  }
};

struct Hash {
  static constexpr const char* name = "hash";
  static constexpr int threads = generator_threads;
  static constexpr int blocks_per_processor = 4;
  struct Arguments {
    const unsigned char* data;
    std::int64_t bytes;
    unsigned long long* sum;
  };
  struct Shared {};

  static __device__ void run(const Arguments& arguments, Shared&) {
    const std::int64_t words = arguments.bytes / 4, stride = std::int64_t{gridDim.x} * threads;
    const auto* whole = reinterpret_cast<const std::uint32_t*>(arguments.data);
    unsigned long long sum = 0;
    for (std::int64_t i = grid_thread(); i < words; i += stride) sum += hash_share(i, whole[i]);
    if (grid_thread() == 0 && arguments.bytes % 4 != 0) {
      std::uint32_t word = 0;
      for (std::int64_t i = 4 * words; i < arguments.bytes; ++i) {
        word |= std::uint32_t{arguments.data[i]} << 8 * (i % 4);
      }
      sum += hash_share(words, word);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (threadIdx.x % 32 == 0) atomicAdd(arguments.sum, sum);
  }
};

}  // namespace gpu

void enqueue_generation(const Problem& problem, const Recipe& recipe, const InputTensors& inputs,
                        const std::int32_t* offsets, Stream stream) {
  const auto launch = [&]<class Kernel>(Kernel, const typename Kernel::Arguments& arguments) {
    launcher<Kernel>(gpu::generator_blocks, arguments)(stream);
  };
  const std::int64_t tokens = problem.tokens(), heads = problem.value_heads;
  const std::uint64_t seed = recipe.seed;
  launch(gpu::UnitRows{}, {inputs.q, tokens * problem.query_heads, seed, Draw::q});
  launch(gpu::UnitRows{}, {inputs.k, tokens * problem.query_heads, seed, Draw::k});
  launch(gpu::Normals<BFloat16>{}, {inputs.v, tokens * heads * head_dim / 4, seed, Draw::v});
  launch(gpu::GatesAndBeta{},
         {inputs.raw_g, inputs.beta, offsets, problem.sequences(), problem.value_heads, recipe});
  if (problem.initial_state) {
    launch(gpu::Normals<float>{},
           {inputs.initial_state, problem.sequences() * heads * head_dim * head_dim / 4, seed,
            Draw::initial_state});
  }
}

void enqueue_hash(const void* data, std::size_t bytes, unsigned long long* sum, void* stream) {
  launcher<gpu::Hash>(gpu::generator_blocks, {static_cast<const unsigned char*>(data),
                                              static_cast<std::int64_t>(bytes), sum})(stream);
}

}  // namespace gdn
