// Preparation: g and A of every chunk and value head, in one launch.
//
//   g_i = Σ_{m <= i} max(raw_g_m, −128)                                          prefix_sum
//   KKᵀ                                      once for the value heads of a CTA   key_products
//   N = strictly_lower(B · exp(g_i − g_j) ∘ KKᵀ)                                 write_system
//   D_w = (I + N_ww)⁻¹                       its four 16 × 16 diagonal blocks    invert_diagonal
//   A_ww = D_w,  A_wj = −(Σ_{j < m <= w} A_wm N_mj) D_j   from right to left     solve_row
//
// A CTA has four warps and takes one chunk and up to four value heads of one query head, one after
// the other. Warp w owns block column w of N, where it makes 4−w blocks, and block row w of A,
// where it makes w+1. N stands transposed: KKᵀ is symmetric, so a warp that computes rows j of it
// holds pairs (i, i+1) of a column of N, which is how mma_fp32 wants its right operand.
//
// Precision: bf16 products are exact, all else is fp32 (products by three tf32 passes, 22 bits),
// and only differences g_i − g_j <= 0 are exponentiated. Substitution, not a series, inverts the
// diagonal blocks: with β near 2 and equal keys a series loses every digit.
//
// Bytes: 128 written a token and head, 256 read a token and query head; 67 + 34 MB, 24 µs at
// 4.3 TB/s, for 8192 tokens, 16 query and 64 value heads. It is latency that counts: ~1000
// instructions a head on the busiest warp, most of them waiting for the one before, and four CTAs a
// multiprocessor to fill the gaps: ~2500 cycles a chunk and head, 90 µs on 132 multiprocessors.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/place.cuh"
#include "kernels/prepare/preparation.hpp"
#include "kernels/sm80/tile.cuh"

namespace gdn {
namespace sm80 {

struct Preparation {
  static constexpr const char* name = "preparation";
  static constexpr int threads = 128;
  static constexpr int blocks_per_processor = 4;
  static constexpr int heads_at_once = 4;  // one a warp, when gates are summed
  static constexpr int block = 16, blocks = chunk_tokens / block;

  struct Arguments {
    Tensors tensors;
    int query_heads, value_heads;
    int groups;  // CTAs that share the value heads of a query head
  };

  struct Shared {  // 28,672 bytes
    union {
      Tile<chunk_tokens, head_dim> K;           // 16,384: until KKᵀ is done
      float N[chunk_tokens][chunk_tokens + 8];  // 18,432: [j][i], transposed; D_w in place of N_ww
    };
    Tile<chunk_tokens, chunk_tokens> A;       //  8,192: each warp its own 16 rows
    float g[heads_at_once][chunk_tokens];     //  1,024
    float beta[heads_at_once][chunk_tokens];  //  1,024
  };

  using Blocks = Sum[blocks][2];  // a row of 16 × 16 blocks, the right 8 columns of each second

  // Scans 64 gates, two a lane. Tokens beyond the end keep the last sum, and have β = 0.
  static __device__ void prefix_sum(const Tensors& x, const Place& at, float* g, float* beta) {
    const int lane = threadIdx.x % 32, i = 2 * lane;
    float first = 0, second = 0, beta0 = 0, beta1 = 0;
    if (i < at.length) first = fmaxf(x.raw_g[at.gate(i)], -128.0F), beta0 = x.beta[at.gate(i)];
    if (i + 1 < at.length) {
      second = fmaxf(x.raw_g[at.gate(i + 1)], -128.0F), beta1 = x.beta[at.gate(i + 1)];
    }
    const float both = first + second;
    float sum = both;
    for (int step = 1; step < 32; step *= 2) {
      const float before = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += before;
    }
    float before = __shfl_up_sync(~0u, sum, 1);
    if (lane == 0) before = 0;
    first += before;
    second += first;
    g[i] = first, g[i + 1] = second;
    beta[i] = beta0, beta[i + 1] = beta1;
    if (i < at.length) x.g[at.gate(i)] = first;
    if (i + 1 < at.length) x.g[at.gate(i + 1)] = second;
  }

  // Blocks (w, w+e) of KKᵀ.
  static __device__ void key_products(Shared& s, int warp, Blocks& kk) {
#pragma unroll
    for (int e = 0; e < blocks; ++e) kk[e][0] = kk[e][1] = {};
#pragma unroll
    for (int k = 0; k < head_dim; k += 16) {
      const Left rows = left_of(s.K, block * warp, k);
#pragma unroll
      for (int e = 0; e < blocks; ++e) {
        if (warp + e < blocks) mma(kk[e], rows, right_of_transposed(s.K, k, block * (warp + e)));
      }
    }
  }

  // Block column w of N.
  static __device__ void write_system(Shared& s, int warp, int head, const Blocks& kk) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const float* gates = s.g[head];
    const float* beta = s.beta[head];
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const int j = block * warp + g + 8 * row;
      const float gate = gates[j];
#pragma unroll
      for (int e = 0; e < blocks; ++e) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if (warp + e >= blocks) continue;
          const int i = block * (warp + e) + 8 * half + 2 * t;
          const float2 later = *reinterpret_cast<const float2*>(gates + i);
          const float2 b = *reinterpret_cast<const float2*>(beta + i);
          const float* products = kk[e][half].x + 2 * row;
          float2 n = {b.x * decay(later.x, gate) * products[0],
                      b.y * decay(later.y, gate) * products[1]};
          if (e == 0 && i <= j) n.x = 0;
          if (e == 0 && i + 1 <= j) n.y = 0;
          *reinterpret_cast<float2*>(&s.N[j][i]) = n;
        }
      }
    }
  }

  // D_w by forward substitution, one column a lane (lanes 16–31 repeat 0–15), in place of N_ww.
  static __device__ void invert_diagonal(Shared& s, int warp) {
    const int column = threadIdx.x % block;
    float x[block];
#pragma unroll
    for (int i = 0; i < block; ++i) x[i] = i == column ? 1.0F : 0.0F;
#pragma unroll
    for (int m = 0; m < block - 1; ++m) {
#pragma unroll
      for (int i = (m + 1) / 4 * 4; i < block; i += 4) {
        const float4 n = *reinterpret_cast<const float4*>(&s.N[block * warp + m][block * warp + i]);
        if (i > m) x[i] -= n.x * x[m];
        if (i + 1 > m) x[i + 1] -= n.y * x[m];
        if (i + 2 > m) x[i + 2] -= n.z * x[m];
        if (i + 3 > m) x[i + 3] -= n.w * x[m];
      }
    }
    __syncwarp();
    if (threadIdx.x % 32 < block) {
      auto* row = reinterpret_cast<float4*>(&s.N[block * warp + column][block * warp]);
#pragma unroll
      for (int i = 0; i < block; i += 4) row[i / 4] = {x[i], x[i + 1], x[i + 2], x[i + 3]};
    }
  }

  // d += a N_rc, of which a is one [16 × 16] block.
  static __device__ void multiply(const Shared& s, Sum (&d)[2], const Sum (&a)[2], int r, int c) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    Sum low[2] = {};
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const float* pair = &s.N[block * c + 8 * n + g][block * r + 8 * k + 2 * t];
        mma_fp32(d[n], low[n], a[k], *reinterpret_cast<const float2*>(pair));
      }
    }
    add(d[0], low[0]), add(d[1], low[1]);
  }

  static __device__ void write_block(Shared& s, int warp, int column, const Sum (&d)[2]) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int j = block * column + 8 * n + 2 * t;
      s.A.pair(block * warp + g, j) = pack(d[n].x[0], d[n].x[1]);
      s.A.pair(block * warp + g + 8, j) = pack(d[n].x[2], d[n].x[3]);
    }
  }

  // Block row w of A, right to left: a[e] is block (w, w−e).
  static __device__ void solve_row(Shared& s, int warp) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    Blocks a;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const int i = block * warp + g, j = block * warp + 8 * n + 2 * t;
      a[0][n] = {s.N[j][i], s.N[j + 1][i], s.N[j][i + 8], s.N[j + 1][i + 8]};
    }
    write_block(s, warp, warp, a[0]);
#pragma unroll
    for (int e = 1; e < blocks; ++e) {
      if (e <= warp) {
        Sum sum[2] = {};
#pragma unroll
        for (int m = 0; m < e; ++m) multiply(s, sum, a[m], warp - m, warp - e);
        scale(sum[0], -1.0F), scale(sum[1], -1.0F);
        a[e][0] = a[e][1] = {};
        multiply(s, a[e], sum, warp - e, warp - e);
        write_block(s, warp, warp - e, a[e]);
      }
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& s) {
    const Tensors& x = arguments.tensors;
    const int warp = dealt_warp(), lane = threadIdx.x % 32;
    const int groups = arguments.query_heads * arguments.groups;
    const int query_head = blockIdx.x % groups / arguments.groups;
    const int group = blockIdx.x % arguments.groups;
    const int heads_per_query = arguments.value_heads / arguments.query_heads;
    const int step = (heads_per_query + arguments.groups - 1) / arguments.groups;
    const int first = query_head * heads_per_query + group * step;
    const int heads = min(step, heads_per_query - group * step);
    Place at = place_of(x.chunks[blockIdx.x / groups], first, arguments.query_heads,
                        arguments.value_heads);

    load<threads>(s.K, x.k + at.query(), at.query_stride(), at.length);
    commit_copies();
    if (warp < heads) {
      Place mine = at;
      mine.head += warp;
      prefix_sum(x, mine, s.g[warp], s.beta[warp]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // blocks of A above the diagonal stay 0
      *reinterpret_cast<uint4*>(s.A.unit(block * warp + 4 * i + lane / 8, lane % 8 * 8)) = {};
    }
    wait_copies<0>();
    __syncthreads();
    Blocks kk;
    key_products(s, warp, kk);

    for (int head = 0; head < heads; ++head) {
      __syncthreads();  // K, or N of the head before, is no longer read
      write_system(s, warp, head, kk);
      __syncwarp();
      invert_diagonal(s, warp);
      __syncthreads();  // N and every D are there
      solve_row(s, warp);
      __syncwarp();
      at.head = first + head;
      store_rows<32, block>(x.A + at.inverse(), at.inverse_stride(), at.length, s.A, block * warp,
                            lane);
      __syncwarp();
    }
  }
};

static_assert(sizeof(Preparation::Shared) == 28672);

}  // namespace sm80

namespace {

// One value head a CTA while the device is not full, else as many as share KKᵀ.
int groups_of(const Problem& problem, std::int64_t chunks) {
  int device = 0, processors = 1;
  throw_on_error(cudaGetDevice(&device), "preparation");
  throw_on_error(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
                 "preparation");
  const int heads = problem.heads_per_query(), most = sm80::Preparation::heads_at_once;
  if (chunks * problem.value_heads <= 2 * sm80::Preparation::blocks_per_processor * processors) {
    return heads;
  }
  return (heads + most - 1) / most;
}

Launch set_up(const Problem& problem, const Tensors& tensors, void*) {
  const auto chunks = static_cast<std::int64_t>(problem.chunks().size());
  const int groups = groups_of(problem, chunks);
  return launcher<sm80::Preparation>(chunks * problem.query_heads * groups,
                                     {tensors, problem.query_heads, problem.value_heads, groups});
}

}  // namespace

const Instance& cuda_preparation() {
  static const Instance instance = {.knobs = {},
                                    .stages = {stage_of<sm80::Preparation>()},
                                    .workspace_bytes = nullptr,
                                    .setup = set_up};
  return instance;
}

}  // namespace gdn
