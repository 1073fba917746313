// The preparation on Hopper where there is more to do than fits on it at once and a CTA is one
// team, and so a warpgroup: K comes and A goes by the copy engine, L is made by wgmma, and a CTA
// goes through several works. The rest is that of any device (chunk_inverse.cuh).
//
// What orders a work, of which each warp has a head ("─" is a barrier of the CTA, "┈" one at which
// only the warp waits that brings K):
//   K has come, and with it all gates: L by wgmma, and beside it prefix sums and factors
//   ─ L in K's place; g out
//   ─ the last A has been read, and the next gates are on their way; N and D of the warp's own
//   head; what products take of L, to registers; the next gates have come
//   ┈ the next K is on its way; A, and A out
// A head of three passes has no registers for L, and reads it until its A is there.
// tests/protocol_test.cpp goes through all interleavings of this. What racecheck reports, writes of
// g by sum_gates against reads by store_gates, has a barrier of the CTA between and is no hazard.
//
// Of what a chunk and head costs on any device, K by cp.async and ldmatrix is 144 cycles of L1, and
// A through registers on its way out 168. Here K is 32 as it comes and 64 as wgmma reads it; A is
// 40, its zeros 8, and 48 as the copy engine reads it: ~500 in all, not ~640, and ~920
// instructions, not ~1250, of an ordinary head. Four CTAs are on a multiprocessor, of 56 KiB, all
// that it has, and 128 registers.
//
// Measured on an H200 for 8192 tokens, 16 query and 64 value heads, in µs:
//   37   any device's
//   39   K, A and L as here, a CTA a work, five at once: 40 % of its time it waited for the chunk's
//        place, gates, K and the end of A's copy, and 2048 works are 3.1 waves
//   38   CTAs that stay, four at once, with gates beside the work before
//   35   A's place waited for when it is written, and K brought as soon as L has been read, which
//        halved what was waited for K
//   35   K brought to L2 before that
//   33   one pass of fp16 and substitution of 8 × 8 for ordinary heads, and a CTA keeps its heads:
//        ~1080 instructions, not ~1540
// where 25 are DRAM's. At 33, L1 was busy for 66 % of the time, and a warp issued every twelfth
// cycle: a work took ~12,500. Of these K was waited for 8 %, other warps 11 %; and a prefetch to L2
// held the warp that asked for it up for ~800, twice a work, and the others waited for that one.
// Since then
//   K comes as soon as products have L in registers, before them, and to L2 a line a thread: by
//     itself it was waited for 14 % of the time; all warps wait for each other twice, not 4 times
//   what the copy engine is told is uniform, of an elected thread, without a loop over lanes
//   where a chunk is stays in registers, and L is rounded once: ~980 instructions, with what a CTA
//   does once
// At 9,500 to 10,000 cycles a work, and 6,000 to begin and to end, 28 were predicted: 34 came.
// Then A went out without the quadrant above its diagonal, which is 0 beforehand (variant.hpp): 50
// MB and not 67. By ncu 34.7 to 36.2 became 32.2 to 32.8, and the whole forward of wide_gva_state
// 177.7 to 174.3 by the graph; with no A written at all it would be 14 less than at first. Of its
// time a warp then waits 13 % for the first gates, behind the first K of all CTAs, 5 % for K, and
// 34 % for shared memory; DRAM gives 2.9 TB/s. With gates before K 171.8 became 169.9.
// With the chunks that segments begin with made last, so that their K and A are in L2 then, forward
// went from 167.9 to 166.6 (wide_gva_state), 168.1 to 168.0 (deep); those of warm-ups come first.
#include "kernels/cuda/processors.cuh"
#include "kernels/cuda/roles.cuh"
#include "kernels/prepare/chunk_inverse.cuh"
#include "kernels/prepare/preparation.hpp"
#include "kernels/sm90/matrix.cuh"
#include "kernels/sm90/tensor_map.hpp"
#include "kernels/sm90/tile.cuh"
#include "kernels/sm90/tma.cuh"
#include "kernels/sm90/warpgroup.cuh"
#include "kernels/sm90/wgmma.cuh"

namespace gdn::sm90 {
namespace {

template <bool folds>
struct HopperPreparation : sm80::Preparation {
  using Portable = sm80::Preparation;

  struct Arguments {
    CUtensorMap k, upper, lower;  // A in halves of 32 rows
    Portable::Arguments work;
    unsigned chunks, step;  // a CTA has the same heads of every `step`th chunk
    unsigned parts;         // of all chunks, that the chain's kernel goes through side by side
  };
  // Which chunk is the i-th: the later ones of all parts come first. So the earlier ones, with
  // which segments begin but for their warm-up, are in L2 then. Parts may be longer by one.
  static __device__ unsigned chunk_of(const Arguments& arguments, unsigned i) {
    const unsigned parts = arguments.parts, length = arguments.chunks / parts;
    const unsigned longer = arguments.chunks % parts;
    const bool is_of_longer = i < longer;
    if (!is_of_longer) i -= longer;
    const unsigned part = i % parts, place = is_of_longer ? length : length - 1 - i / parts;
    return part * length + min(part, longer) + place;
  }
  // Of a head, for all warps: raw g, which then becomes g, and β.
  struct TeamGates {  // 512 bytes
    float g[chunk_tokens], beta[chunk_tokens];
  };
  // L, and what of it products of fp16 take.
  struct BothSystems {  // 12,288 bytes
    System system;
    HalfLeft halves[6][32];
  };
  // A without the quadrant above its diagonal, which is 0 and stays as it is in memory.
  struct Triangle {  // 6,144 bytes
    NarrowTile<chunk_tokens / 2, narrow_columns> upper;
    Tile<chunk_tokens / 2, chunk_tokens> lower;
  };
  static_assert(sizeof(Triangle) <= sizeof(Square));
  static __device__ Triangle& triangle(Square& square) {
    return reinterpret_cast<Triangle&>(square);
  }
  struct Shared {  // 57,344 bytes
    union {        // the one after the other
      Tile<chunk_tokens, head_dim> K;
      BothSystems l;
    };
    Square squares[warps];
    Factors factors[warps];
    TeamGates gates[warps];  // of the next work, while factors are of this one
    PhaseBarrier k_full;
  };

  // The copy engine knows no end of a sequence.
  static __device__ bool is_copied_by_engine(const Place& at) {
    return has_engine && at.length == chunk_tokens;
  }

  static __device__ bool brings_keys() { return threadIdx.x < 32; }
  // K of a whole chunk, by one thread.
  static __device__ void bring_keys(const Arguments& arguments, const Place& at, Shared& shared) {
    if (!is_copied_by_engine(at) || !elected()) return;
    shared.k_full.arrive_and_expect(sizeof shared.K);
    for (int panel = 0; panel < 2; ++panel) {
      load_box(shared.K.panel(panel), arguments.k, panel_columns * panel, at.query_head, at.token,
               shared.k_full);
    }
  }
  // The same as far as L2, where its place is not free yet: a line a thread.
  static __device__ void prefetch_keys(const Tensors& x, const Place& at) {
    if (!is_copied_by_engine(at)) return;
    static_assert(threads == chunk_tokens * 2);
    const int own = sm80::opaque(threadIdx.x);
    sm80::prefetch_to_l2(x.k + at.query() + own / 2 * at.query_stride() + own % 2 * panel_columns);
  }
  // K of another one, by all.
  static __device__ void load_keys(const Tensors& x, const Place& at, Shared& shared) {
    load_plainly<threads, head_dim>(shared.K, x.k + at.query(), at.query_stride(), at.length);
    sm80::commit_copies();
    sm80::wait_copies<0>();
    publish_to_async();
  }

  // Raw gates, as load_gates and put_raw, but without registers between.
  static __device__ void bring_gates(const Tensors& x, const Share& share, TeamGates* to) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int at = share.at + e * share.stride, place = share.place + 32 * e;
      sm80::copy_4(&to[share.own].g[place], x.raw_g + at, share.real[e]);
      sm80::copy_4(&to[share.own].beta[place], x.beta + at, share.real[e]);
    }
    sm80::commit_copies();
  }

  // Zeros above the diagonal of A, as far as there is a place for them.
  static __device__ void put_zeros(Triangle& A) {
    put_left(A.upper, 0, block, Left{});
    put_left(A.lower, 0, 3 * block, Left{});
  }

  // As Portable::PutPairs. The next K comes when all warps have released L and brought gates, so
  // that whoever waits for K has waited for them.
  struct PutMatrices {
    const Arguments& arguments;
    Shared& shared;
    int member;
    const Place& next;

    __device__ Triangle& own() const { return triangle(shared.squares[member]); }
    __device__ void put(int w, int j, const Left& a) const {
      if (w < 2) {
        put_left(own().upper, block * w, block * j, a);
      } else {
        put_left(own().lower, block * (w - 2), block * j, a);
      }
    }
    __device__ void put_transposed(int w, int j, const Left& a) const {
      if (w < 2) {
        put_left_transposed(own().upper, block * j, block * w, a);
      } else {
        put_left_transposed(own().lower, block * j, block * (w - 2), a);
      }
    }
    __device__ HalfSystem halves(const System&) const {
      HalfSystem halves;
#pragma unroll
      for (int i = 0; i < 6; ++i) halves.l[i] = shared.l.halves[i][lane()];
      return halves;
    }
    __device__ void release() const {
      put_zeros(own());
      sm80::wait_copies<0>();  // the next gates
      if (!brings_keys()) return arrive<threads>(1);
      sync<threads>(1);
      bring_keys(arguments, next, shared);
    }
  };

  // L as accumulators, of which a warp has block row warp(); and in the place of K.
  using RowOfProducts = Sum[chunk_tokens / 8];
  static __device__ void begin_products(RowOfProducts& l, Shared& shared) {
    products_begin();
#pragma unroll
    for (int k = 0; k < head_dim; k += 16) {
      sm90::multiply<Major::k, Major::k>(l, shared.K.k_major(0, k), shared.K.k_major(0, k), k > 0);
    }
    products_commit();
  }
  static __device__ void put_products(RowOfProducts& l, Shared& shared) {
    products_wait<0>();
    __syncthreads();
    const int w = sm80::opaque(warp());
#pragma unroll
    for (int j = 0; j < blocks; ++j) {
      const Sum own[] = {l[2 * j], l[2 * j + 1]};
      if (j == w) put_diagonal(own, j, shared.l.system);
      if (j <= w) continue;
      put_upper(own, number(j, w), shared.l.system);
      shared.l.halves[number(j, w)][lane()] = sm80::half_left(own);
    }
    publish_to_async();  // the next K comes over it
  }

  static __device__ void store(const Arguments& arguments, const Place& at, Triangle& A) {
    if (!is_copied_by_engine(at)) return store_short(arguments.work.tensors.A, at, A);
    publish_to_async();
    __syncwarp();
    if (!elected()) return;
    store_box(arguments.upper, 0, at.head, at.token, &A.upper);
    store_box(arguments.lower, 0, at.head, at.token + chunk_tokens / 2, &A.lower);
  }
  static __device__ void store_short(BFloat16* tensor, const Place& at, Triangle& A) {
    const int own = sm80::opaque(lane());  // or places would be kept, for what is seldom
    const int column = own % 8 * 8;
    for (int row = own / 8; row < at.length; row += 4) {
      BFloat16* const to = tensor + at.inverse() + row * at.inverse_stride() + column;
      if (row >= chunk_tokens / 2) {
        *reinterpret_cast<uint4*>(to) = A.lower.unit(row - chunk_tokens / 2, column);
      } else if (column < narrow_columns) {
        *reinterpret_cast<uint4*>(to) = A.upper.unit(row, column);
      }
    }
  }
  // Before the square is written again.
  static __device__ void wait_stored() {
    if (elected()) wait_stores_read<0>();
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    let_next_launch_begin();
    if (brings_keys() && elected()) {  // before anybody knows where the chunk is
      prefetch(arguments.k);
      prefetch(arguments.upper);
      prefetch(arguments.lower);
      shared.k_full.initialise(1);
      publish_barriers();
    }
    const Tensors& x = arguments.work.tensors;
    int member = dealt_warp();
    const unsigned of_chunk = Portable::of_chunk(arguments.work);
    auto [at, heads] = work_of(arguments.work, blockIdx.x % of_chunk, {}, member);
    const bool has_head = member < heads;
    unsigned i = blockIdx.x / of_chunk;
    const Chunk first = x.chunks[chunk_of(arguments, i)];
    at.token = first.token, at.length = first.length;
    bring_gates(x, Share(at, member, warps, heads), shared.gates);
    if (brings_keys()) bring_keys(arguments, at, shared);
    sm80::wait_copies<0>();
    __syncthreads();
    std::uint32_t parity = 0;
    while (i < arguments.chunks) {
      i += arguments.step;
      member = sm80::opaque(member);  // or a work would begin with registers full of addresses
      Factors& factors = shared.factors[member];
      TeamGates& own = shared.gates[member];
      Place next = at;
      next.length = 0;
      if (i < arguments.chunks) {
        const Chunk chunk = x.chunks[chunk_of(arguments, i)];
        next.token = chunk.token, next.length = chunk.length;
      }
      if (is_copied_by_engine(at)) {
        shared.k_full.wait(parity);
        parity ^= 1;
      } else {
        __syncthreads();
        load_keys(x, at, shared);
        __syncthreads();
      }
      RowOfProducts l;
      begin_products(l, shared);
      const Gates gates = sum_gates(own.g, own.beta, own.g, member, warps);
      const bool gentle = put_factors<folds>(gates, factors);
      put_products(l, shared);
      prefetch_keys(x, next);
      store_gates(x, Share(at, member, warps, heads), shared.gates);
      __syncthreads();
      wait_stored();  // the last A, and not the gates to come
      __syncwarp();
      // The next gates come while A is made.
      bring_gates(x, Share(next, member, warps, heads), shared.gates);
      const PutMatrices to = {arguments, shared, member, next};
      if (has_head) {
        invert<folds>(gates, gentle, shared.l.system, shared.squares[member], factors, to,
                      PutLow{x, at});
        store(arguments, at, triangle(shared.squares[member]));
      } else {
        to.release();
      }
      at = next;
    }
    wait_stored();
  }
};

static_assert(sizeof(HopperPreparation<true>::Shared) == 57'344);

template <bool folds>
Launch launch_of(const Problem& problem, const Tensors& x) {
  using Kernel = HopperPreparation<folds>;
  const typename Kernel::Portable::Arguments work = Kernel::Portable::arguments(problem, x, 1);
  const std::int64_t chunks = std::ssize(problem.chunks());
  const std::int64_t of_chunk = std::int64_t{problem.query_heads} * work.groups;
  // As many rounds as it takes, all of them as full.
  const std::int64_t most = Kernel::blocks_per_processor * processors();
  const std::int64_t side_by_side = std::max<std::int64_t>(most / of_chunk, 1);
  const std::int64_t rounds = (chunks + side_by_side - 1) / side_by_side;
  const std::int64_t step = rounds > 0 ? (chunks + rounds - 1) / rounds : 0;
  const auto half_of_A = [&](int columns) {
    return tensor_map(x.A, problem.tokens(), problem.value_heads, chunk_tokens, chunk_tokens / 2,
                      columns);
  };
  return launcher<Kernel>(
      step * of_chunk,
      {tensor_map(x.k, problem.tokens(), problem.query_heads, head_dim, chunk_tokens),
       half_of_A(narrow_columns), half_of_A(panel_columns), work, static_cast<unsigned>(chunks),
       static_cast<unsigned>(step),
       static_cast<unsigned>(std::max(processors() / problem.value_heads, 1))});
}
Launch set_up(const Problem& problem, const Tensors& x, void*) {
  return x.folded ? launch_of<true>(problem, x) : launch_of<false>(problem, x);
}

}  // namespace
}  // namespace gdn::sm90

namespace gdn {

const Instance& hopper_preparation() {
  static const Instance instance = {.knobs = {},
                                    .stages = {stage_of<sm90::HopperPreparation<false>>()},
                                    .folded_stages = {stage_of<sm90::HopperPreparation<true>>()},
                                    .workspace_bytes = nullptr,
                                    .setup = sm90::set_up};
  return instance;
}

}  // namespace gdn
