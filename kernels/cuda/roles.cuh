// What kernels whose warps have different roles share: where a ring of buffers stands, how a warp
// says that it is done, and plain copies where the copy engine will not do.
#pragma once

#include <cstdint>

#include "kernels/bfloat16.hpp"
#include "kernels/sm80/copy.cuh"
#include "kernels/sm80/opaque.cuh"
#include "kernels/sm90/barrier.cuh"
#include "kernels/variant.hpp"

namespace gdn::sm90 {

// Where a ring of `size` buffers stands.
template <int size>
struct Turn {
  int stage = 0;
  std::uint32_t parity = 0;
  __device__ void next() {
    if (++stage == size) stage = 0, parity ^= 1;
  }
};

__device__ inline int warp() { return threadIdx.x / 32 % 4; }  // of its warpgroup
__device__ inline int lane() { return threadIdx.x % 32; }

// What is the same for all lanes anyway, where the compiler cannot tell: it then stands in
// registers of the warp, as products and the copy engine want it.
__device__ inline int uniform(int x) { return __shfl_sync(~0U, x, 0); }

#ifdef GDNBENCH_PLAIN_LOADS  // for tools that do not see the copy engine
inline constexpr bool has_engine = false;
#else
inline constexpr bool has_engine = true;
#endif

// An arrival of the whole warp.
__device__ inline void release(PhaseBarrier& barrier) {
  __syncwarp();
  if (lane() == 0) barrier.arrive();
}

// A chunk's rows, by `threads` threads from a multiple of that on, each of which then waits for its
// copies (sm80/copy.cuh). Rows from `length` on come as 0, and their memory is not read.
template <int threads, int columns, class Tile>
__device__ void load_plainly(Tile& tile, const BFloat16* tensor, int stride, int length) {
  constexpr int units = columns / 8;
  stride = sm80::opaque(stride);  // or a loop around this would keep all strides in registers
#pragma unroll 1
  for (int i = sm80::opaque(threadIdx.x % threads); i < chunk_tokens * units; i += threads) {
    const int row = i / units, column = i % units * 8;
    sm80::copy_16(&tile.unit(row, column), tensor + std::int64_t{row} * stride + column,
                  row < length);
  }
}

}  // namespace gdn::sm90
