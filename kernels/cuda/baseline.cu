// Rung 1, the U/W form as written (form 3 of kernels/README.md), in three kernels. Everything they
// hand on travels through memory: U, W, each chunk's S and V̂.
//   W = A B Γ K                               a CTA per chunk and head           Wu::make_W
//   U = A B V                                                                    Wu::make_U
//   V̂ = U − W S                               a CTA per head and 64 values,      ChunkState::step
//   S' = γ_C S + Kᵀ diag(exp(g_C − g)) V̂      serial over chunks                 ChunkState::step
//   O = scale (Γ Q S + P V̂)                   a CTA per chunk and head           ChunkOutput
// with P = tril(QKᵀ ∘ exp(g_i − g_j)).
//
// The state kernel works on transposes: a warp keeps 16 rows of Sᵀ (columns of values) in fp32
// accumulators, and accumulators become the next product's left operand by a conversion alone. So
// nothing of the chain passes through shared memory, and warps meet once a chunk, where the ring of
// inputs turns. What is stored is fragments (Handover, below), which spares every layout change.
//
// Bytes a chunk and head. wu: A 8 KiB, V 16, U 16, W 16, K 16 once a query head. chunk_state: W 16,
// U 16, V̂ 16, S 32, K 16 once a query head. At 4.3 TB/s, 8192 tokens and 16/64 heads: 117 µs and
// 164 µs. Cycles a chunk of the state kernel: 128 mma of 2048 multiply-adds a warp, ~900, beside
// 128 KiB out of shared memory, ~1000, and ~400 of conversions: 0.8 µs if all of it overlapped. One
// warp a scheduler cannot: 610 instructions, and every phase begins with the latency of the last.
// Measured on an H200 (reports/h200/ladder.json, `kernels` of the rows in graph timing): wu 123 µs
// on wide_gva_state, near its bytes; chunk_state 1.27 µs a chunk on chain_equal, where a CTA has
// the memory to itself, and 276 µs (three stages: 254) on wide_gva_state, 1.7 times its bytes:
// there it waits for memory.
#include "kernels/cuda/chunk_output.cuh"
#include "kernels/cuda/gates.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::sm80 {
namespace {

constexpr std::int64_t W_size = 4 * 8 * 32;  // fragments of a chunk and head

}  // namespace

struct Wu {
  static constexpr const char* name = "wu";
  static constexpr int threads = 128;
  static constexpr int blocks_per_processor = 4;

  struct Arguments {
    Tensors tensors;
    RightPair* W;  // [chunk][head][token / 16][key / 16][lane]    −Wᵀ: V̂ is one accumulation
    Left* U;       // [chunk][head][value / 16][token / 16][lane]  Uᵀ
    int query_heads, value_heads;
  };

  struct Shared {                          // 41,472 bytes
    Tile<chunk_tokens, head_dim> K;        // 16,384  [token][key]
    Tile<chunk_tokens, head_dim> V;        // 16,384  [token][value]
    Tile<chunk_tokens, chunk_tokens> A;    //  8,192  [i][j]
    float beta[chunk_tokens];              //    256
    float minus_beta_gamma[chunk_tokens];  //    256
  };

  // Rows 16 warp … of −W = −(A B Γ) K. A is lower triangular: blocks past the diagonal take no
  // part.
  static __device__ void make_W(Shared& s, int warp, RightPair* W) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    Sum w[16] = {};  // [key / 8]
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j <= warp) {
        const auto* factor = reinterpret_cast<const float2*>(s.minus_beta_gamma + 16 * j) + t;
        const Left a = scale_columns(left_of(s.A, 16 * warp, 16 * j), factor[0], factor[4]);
#pragma unroll
        for (int k = 0; k < 8; ++k) mma(w + 2 * k, a, right_of(s.K, 16 * j, 16 * k));
      }
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) W[(warp * 8 + k) * 32 + lane] = right(w[2 * k], w[2 * k + 1]);
  }

  // Rows 32 warp … of Uᵀ = Vᵀ (A B)ᵀ.
  static __device__ void make_U(Shared& s, int warp, Left* U) {
    const int lane = threadIdx.x % 32, t = lane % 4;
    Sum u[2][8] = {};  // [block of 16 values][token / 8]
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const auto* factor = reinterpret_cast<const float2*>(s.beta + 16 * j) + t;
      const Left v0 = left_of_transposed(s.V, 32 * warp, 16 * j);
      const Left v1 = left_of_transposed(s.V, 32 * warp + 16, 16 * j);
#pragma unroll
      for (int i = j; i < 4; ++i) {
        const RightPair a =
            scale_rows(right_of_transposed(s.A, 16 * j, 16 * i), factor[0], factor[4]);
        mma(u[0] + 2 * i, v0, a);
        mma(u[1] + 2 * i, v1, a);
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        U[((2 * warp + m) * 4 + i) * 32 + lane] = left(u[m][2 * i], u[m][2 * i + 1]);
      }
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& s) {
    const Tensors& x = arguments.tensors;
    const int warp = dealt_warp();
    const Place at =
        place_of(x.chunks[blockIdx.x / arguments.value_heads], blockIdx.x % arguments.value_heads,
                 arguments.query_heads, arguments.value_heads);
    load<threads>(s.A, x.A + at.inverse(), at.inverse_stride(), at.length);
    load<threads>(s.K, x.k + at.query(), at.query_stride(), at.length);
    commit_copies();
    load<threads>(s.V, x.v + at.value(), at.value_stride(), at.length);
    commit_copies();
    if (threadIdx.x < chunk_tokens) {
      const bool real = threadIdx.x < at.length;
      const float beta = real ? x.beta[at.gate(threadIdx.x)] : 0;
      s.beta[threadIdx.x] = beta;
      s.minus_beta_gamma[threadIdx.x] = real ? -beta * exponential(x.g[at.gate(threadIdx.x)]) : 0;
    }
    wait_copies<1>();
    __syncthreads();
    make_W(s, warp, arguments.W + blockIdx.x * W_size);
    wait_copies<0>();
    __syncthreads();
    make_U(s, warp, arguments.U + blockIdx.x * Handover::value_size);
  }
};

template <int stages>
struct ChunkState {
  static constexpr const char* name = "chunk_state";
  static constexpr int threads = 128;
  static constexpr int blocks_per_processor = 1;

  struct Arguments {
    Tensors tensors;
    const RightPair* W;  // −Wᵀ
    Handover chain;      // chain.value holds Uᵀ, which V̂ᵀ replaces
    int query_heads, value_heads;
  };

  struct Input {                       // of one chunk, 41,984 bytes
    Tile<chunk_tokens, head_dim> K;    // 16,384  [token][key]
    RightPair W[W_size];               // 16,384  [token / 16][key / 16][lane]
    Left U[Handover::value_size / 2];  //  8,192  [value / 16][token / 16][lane]
    ChunkGates gates;                  //  1,024
  };
  struct Shared {  // 83,968 bytes with two stages, 125,952 with three
    Input input[stages];
  };

  // Brings one chunk after the other, each in four parts that are issued among the products.
  struct Loader {
    const BFloat16* k;
    const RightPair* W;
    const Left* U;
    int length;  // tokens of the sequence from this chunk on; at its end nothing but 0 comes
    int query_stride, value_heads;

    __device__ void part(Input& input, int p) const {
      const int thread = threadIdx.x;
      load_rows<threads, chunk_tokens / 4>(input.K, k, query_stride, length, chunk_tokens / 4 * p,
                                           thread);
#pragma unroll
      for (int i = W_size / 4 * p; i < W_size / 4 * (p + 1); i += threads) {
        copy_16(input.W + i + thread, W + i + thread, length > 0);
      }
#pragma unroll
      for (int i = Handover::value_size / 8 * p; i < Handover::value_size / 8 * (p + 1);
           i += threads) {
        copy_16(input.U + i + thread, U + i + thread, length > 0);
      }
    }
    __device__ void next() {
      commit_copies();
      length -= chunk_tokens;
      if (length > 0) {
        k += std::int64_t{chunk_tokens} * query_stride;
        W += value_heads * std::int64_t{W_size};
        U += value_heads * Handover::value_size;
      }
    }
  };

  // One chunk: S [key / 8] is rows 16 warp … of this half's Sᵀ. The next input comes meanwhile.
  static __device__ void step(Input& input, Sum (&S)[16], Left* state_out, Left* value_out,
                              const Loader& loader, Input& next_input) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, t = lane % 4;
    const float gamma = input.gates.gamma_C();
    Left s[8];  // [key / 16]
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      s[k] = left(S[2 * k], S[2 * k + 1]);
      state_out[(warp * 8 + k) * 32 + lane] = s[k];
    }
    Sum value[8];  // [token / 8]  V̂ᵀ = Uᵀ − Sᵀ Wᵀ
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Left u = input.U[(warp * 4 + i) * 32 + lane];
      const float2 a = unpack(u.x[0]), b = unpack(u.x[1]), c = unpack(u.x[2]), d = unpack(u.x[3]);
      value[2 * i] = {a.x, a.y, b.x, b.y};
      value[2 * i + 1] = {c.x, c.y, d.x, d.y};
    }
#pragma unroll
    for (int k = 0; k < 8; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) mma(value + 2 * i, s[k], input.W[(i * 8 + k) * 32 + lane]);
      scale(S[2 * k], gamma);
      scale(S[2 * k + 1], gamma);
      if (k % 2 == 1) loader.part(next_input, k / 2);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto* factor = reinterpret_cast<const float2*>(input.gates.fade + 16 * i) + t;
      value_out[(warp * 4 + i) * 32 + lane] = left(value[2 * i], value[2 * i + 1]);
      scale_columns(value[2 * i], factor[0]);
      scale_columns(value[2 * i + 1], factor[4]);
      const Left faded = left(value[2 * i], value[2 * i + 1]);
#pragma unroll
      for (int k = 0; k < 8; ++k) mma(S + 2 * k, faded, right_of(input.K, 16 * i, 16 * k));
    }
  }

  // Visits this lane's elements of Sᵀ with their places in a state [dk][dv].
  template <class Visit>
  static __device__ void for_each_element(Sum (&S)[16], int half, Visit visit) {
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
    const int value = 64 * half + threadIdx.x / 32 * 16 + g;
#pragma unroll
    for (int n = 0; n < 16; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        visit(S[n].x[i], (8 * n + 2 * t + i % 2) * head_dim + value + i / 2 * 8);
      }
    }
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const Tensors& x = arguments.tensors;
    const int value_heads = arguments.value_heads, query_heads = arguments.query_heads;
    const int half = blockIdx.x % 2, chain = blockIdx.x / 2;  // chain: sequence and head
    const int head = chain % value_heads, sequence = chain / value_heads;
    const int token = x.offsets[sequence], length = x.offsets[sequence + 1] - token;
    const Place at = place_of({sequence, 0, token, length}, head, query_heads, value_heads);
    const std::int64_t block = x.first_chunk[sequence] * std::int64_t{value_heads} + head;
    Left* state =
        arguments.chain.S + block * Handover::state_size + half * Handover::state_size / 2;
    Left* value =
        arguments.chain.value + block * Handover::value_size + half * Handover::value_size / 2;
    Loader loader = {
        x.k + at.query(), arguments.W + block * W_size, value, length, at.query_stride(),
        value_heads};
    TokenGates gates;

#pragma unroll
    for (int stage = 0; stage < stages - 1; ++stage) {
      for (int p = 0; p < 4; ++p) loader.part(shared.input[stage], p);
      loader.next();
    }
    gates.read(x, at);
    gates.write(shared.input[0].gates);
    gates.read(x, at.after(1));
    Sum S[16] = {};  // [key / 8]
    const std::int64_t corner = chain * std::int64_t{head_dim * head_dim};
    if (x.initial_state) {
      for_each_element(S, half, [&](float& s, int i) { s = x.initial_state[corner + i]; });
    }
    int stage = 0, free_stage = stages - 1;
    for (int c = 0; c * chunk_tokens < length; ++c) {
      wait_copies<stages - 2>();
      __syncthreads();  // chunk c is there, and chunk c−1 no longer read
      step(shared.input[stage], S, state, value, loader, shared.input[free_stage]);
      loader.next();
      state += value_heads * Handover::state_size;
      value += value_heads * Handover::value_size;
      free_stage = stage;
      stage = stage + 1 == stages ? 0 : stage + 1;
      gates.write(shared.input[stage].gates);
      gates.read(x, at.after(c + 2));
    }
    for_each_element(S, half, [&](float& s, int i) { x.final_state[corner + i] = s; });
  }
};

static_assert(sizeof(Wu::Shared) == 41472);
static_assert(sizeof(ChunkState<2>::Shared) == 83968 && sizeof(ChunkState<3>::Shared) == 125952);

namespace {

std::size_t workspace_bytes(const Problem& problem) {
  const std::int64_t blocks = chunks_and_heads(problem);
  return Handover::bytes(blocks) + blocks * W_size * sizeof(RightPair);
}

template <int stages>
Launch set_up(const Problem& problem, const Tensors& tensors, void* workspace) {
  const std::int64_t blocks = chunks_and_heads(problem);
  const Handover chain = Handover::at(workspace, blocks);
  auto* W = reinterpret_cast<RightPair*>(static_cast<char*>(workspace) + Handover::bytes(blocks));
  const int query_heads = problem.query_heads, value_heads = problem.value_heads;
  const Launch wu = launcher<Wu>(blocks, {tensors, W, chain.value, query_heads, value_heads});
  const Launch state =
      launcher<ChunkState<stages>>(std::int64_t{2} * problem.sequences() * value_heads,
                                   {tensors, W, chain, query_heads, value_heads});
  const Launch output = launcher<ChunkOutput>(blocks, {tensors, chain, query_heads, value_heads});
  return [=](Stream stream) {
    wu(stream);
    state(stream);
    output(stream);
  };
}

template <int stages>
Instance instance() {
  return {.knobs = {{"stages", std::to_string(stages)}},
          .stages = {stage_of<Wu>(), stage_of<ChunkState<stages>>(), stage_of<ChunkOutput>()},
          .workspace_bytes = workspace_bytes,
          .setup = set_up<stages>};
}

}  // namespace
}  // namespace gdn::sm80

namespace gdn::gpu {

Variant baseline() {
  return {
      .name = "baseline",
      .idea = "The U/W form as written: U, W, each chunk's S and new values travel through memory.",
      .target = Target::cuda,
      .scopes = {Scope::core},
      .needs = needs_ampere,
      .accepts = nullptr,
      .instances = {sm80::instance<2>(), sm80::instance<3>()}};
}

}  // namespace gdn::gpu
