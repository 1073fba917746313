// The preparation on Hopper where a CTA is one team, and so a warpgroup: K comes and A goes by the
// copy engine, and L is made by wgmma. The rest is that of any device (chunk_inverse.cuh).
//
// Of what a chunk and head costs there, K by cp.async and ldmatrix is 144 cycles of L1, and A
// through registers on its way out 168. Here K is 32 as it comes and 64 as wgmma reads it; A is 40,
// its zeros 24, and 64 as the copy engine reads it: ~630 in all, not 716, and ~1540 instructions,
// not ~1790. Five CTAs are on a multiprocessor, as 96 registers and 45 KiB allow, not four.
// Predicted, with L1 busy for 83 % of the time and 3 µs around it: 30 µs for 8192 tokens, 16 query
// and 64 value heads, and 17.5 for 32768 tokens, 2 and 8, where that of any device takes 38 and 21.
#include "kernels/cuda/roles.cuh"
#include "kernels/prepare/chunk_inverse.cuh"
#include "kernels/prepare/preparation.hpp"
#include "kernels/sm90/matrix.cuh"
#include "kernels/sm90/tensor_map.hpp"
#include "kernels/sm90/tile.cuh"
#include "kernels/sm90/tma.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace gdn::sm90 {
namespace {

struct HopperPreparation : sm80::Preparation {
  using Portable = sm80::Preparation;

  static constexpr int blocks_per_processor = 5;

  struct Arguments {
    CUtensorMap k, A;
    Portable::Arguments work;
  };
  // 45,056 bytes
  struct Shared {
    struct Own {
      System system;
      alignas(swizzle_bytes) Square squares[warps];
      Factors factors[warps];
    };
    union {  // K before L
      Tile<chunk_tokens, head_dim> K;
      Own own;
    };
    PhaseBarrier k_full;
    Place at[warps];  // for the time in between, when there are no registers to keep these in
  };

  // As Portable::PutPairs.
  struct PutMatrices {
    Square& square;
    __device__ void put(int w, int j, const Left& a) const {
      put_left(square.A, block * w, block * j, a);
    }
    __device__ void put_transposed(int w, int j, const Left& a) const {
      put_left_transposed(square.A, block * j, block * w, a);
    }
  };

  // The copy engine knows no end of a sequence.
  static __device__ bool is_copied_by_engine(const Place& at) {
    return has_engine && at.length == chunk_tokens;
  }

  // Raw gates, and K, which may still be on its way.
  static __device__ void load(const Arguments& arguments, const Work& work, int member,
                              Shared& shared) {
    const Tensors& x = arguments.work.tensors;
    const Place& at = work.at;
    if (threadIdx.x == 0 && is_copied_by_engine(at)) {
      shared.k_full.arrive_and_expect(sizeof shared.K);
      for (int panel = 0; panel < 2; ++panel) {
        load_box(shared.K.panel(panel), arguments.k, panel_columns * panel, at.query_head, at.token,
                 shared.k_full);
      }
    }
    const Share share(at, member, warps, work.heads);
    put_raw(load_gates(x, share), share, shared.own.factors);
    if (!is_copied_by_engine(at)) {
      load_plainly<threads, head_dim>(shared.K, x.k + at.query(), at.query_stride(), at.length);
      sm80::commit_copies();
      sm80::wait_copies<0>();
      publish_to_async();
    }
    __syncthreads();
  }

  // L in the place of K.
  static __device__ void put_products(const Place& at, Shared& shared) {
    if (is_copied_by_engine(at)) shared.k_full.wait(0);
    Sum l[chunk_tokens / 8];
    products_begin();
#pragma unroll
    for (int k = 0; k < head_dim; k += 16) {
      sm90::multiply<Major::k, Major::k>(l, shared.K.k_major(0, k), shared.K.k_major(0, k), k > 0);
    }
    products_commit();
    products_wait<0>();
    __syncthreads();
    const int w = warp();
#pragma unroll
    for (int j = 0; j < blocks; ++j) {
      const int ahead = (j - w) & (blocks - 1);
      if (ahead > 2 || (ahead == 2 && w >= 2)) continue;
      put_product({l[2 * j], l[2 * j + 1]}, w, j, shared.own.system);
    }
  }

  // A out of its tile, which lacks the zeros above the diagonal.
  static __device__ void store(const Arguments& arguments, const Place& at, Square& square) {
    if (!is_copied_by_engine(at)) {
      Portable::store(arguments.work.tensors.A + at.inverse(), at.inverse_stride(), at.length,
                      square);
      return;
    }
#pragma unroll
    for (int w = 0; w < blocks; ++w) {
#pragma unroll
      for (int j = w + 1; j < blocks; ++j) put_left(square.A, block * w, block * j, Left{});
    }
    publish_to_async();
    __syncwarp();
    if (lane() == 0) {
      store_box(arguments.A, 0, at.head, at.token, &square.A);
      wait_stores_read<0>();
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    let_next_launch_begin();
    if (threadIdx.x == 0) {  // before anybody knows where the chunk is
      prefetch(arguments.k);
      prefetch(arguments.A);
      shared.k_full.initialise(1);
      publish_barriers();
    }
    const int member = dealt_warp();
    const Work work = work_of(arguments.work, blockIdx.x, member);
    if (lane() == 0) shared.at[member] = work.at;
    load(arguments, work, member, shared);
    Square& square = shared.own.squares[member];
    Factors& factors = shared.own.factors[member];
    const Gates gates = sum_gates(factors, square, member, warps);
    put_products(work.at, shared);
    const Place at = shared.at[member];
    store_gates(arguments.work.tensors, Share(at, member, warps, work.heads), shared.own.squares);
    __syncthreads();
    if (member >= work.heads) return;
    invert(gates, shared.own.system, square, factors, PutMatrices{square});
    store(arguments, shared.at[member], square);
  }
};

Launch set_up(const Problem& problem, const Tensors& x, void*) {
  using Kernel = HopperPreparation;
  const Kernel::Portable::Arguments work = Kernel::Portable::arguments(problem, x, 1);
  return launcher<Kernel>(
      Kernel::blocks_of(work),
      {tensor_map(x.k, problem.tokens(), problem.query_heads, head_dim, chunk_tokens),
       tensor_map(x.A, problem.tokens(), problem.value_heads, chunk_tokens, chunk_tokens), work});
}

}  // namespace
}  // namespace gdn::sm90

namespace gdn {

const Instance& hopper_preparation() {
  static const Instance instance = {.knobs = {},
                                    .stages = {stage_of<sm90::HopperPreparation>()},
                                    .workspace_bytes = nullptr,
                                    .setup = sm90::set_up};
  return instance;
}

}  // namespace gdn
