// Rung 2, the residual form (form 4 of kernels/README.md): W and U are gone, and with them the
// kernel that made them; V̂ needs one product by A instead of two. Each chunk's S and V̂ still travel
// through memory to the kernel that makes the output.
//   R = V − Γ K S                             a CTA per head and 64 values,      residual
//   V̂ = A B R                                 serial over chunks                 multiply_lower
//   S' = γ_C S + Kᵀ diag(exp(g_C − g)) V̂                                         update_state
//   O = scale (Γ Q S + P V̂)                   a CTA per chunk and head           ChunkOutput
//
// As in rung 1 a warp keeps 16 rows of Sᵀ and warps meet once a chunk, where the ring of inputs
// turns.
//
// Bytes a chunk and head of residual_state: A 8 KiB, V 16, V̂ 16, S 32, K 16 once a query head; 148
// µs at 4.3 TB/s for 8192 tokens and 16/64 heads. Measured on an H200
// (reports/h200/ladder.json): 1.5 µs a chunk where a CTA has the memory to itself, against 1.3 for
// rung 1's state kernel, whose chain lacks the product by A. On chain_equal rung 2 is a tenth
// slower and on long_low_gva equal, as rung 1's `wu` costs less than that product does in the
// chain; with many heads it gains, on wide_gva_state the 123 µs of `wu`. There the kernel moves 638
// MB in 254 to 281 µs, 2.5 of 4.3 TB/s; why no more is not understood: three stages are better than
// two by a tenth, four were not tried.
//
// Tried and lost: copies issued before K S (15 to 30 % slower); K S in two halves, so that the
// first half's residual overlaps the second's product (the same); streaming stores for S (the
// same); a multiprocessor for each CTA by more shared memory (the same).
#include "kernels/cuda/chain.cuh"
#include "kernels/cuda/chunk_output.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::sm80 {

template <int stages>
struct ResidualState {
  static constexpr const char* name = "residual_state";
  static constexpr int threads = 128;
  static constexpr int blocks_per_processor = 1;
  static constexpr int width = 64;  // values a CTA

  using Share = sm80::Share<1>;
  using Input = StateInput<width>;  // of one chunk, 33,792 bytes

  struct Arguments {
    Tensors tensors;
    Handover chain;
    int query_heads, value_heads;
  };
  struct Shared {  // 67,584 bytes with two stages, 101,376 with three
    Input input[stages];
  };

  // One chunk. `load_next` brings a later one: once K S is under way, else its many instructions
  // stand before the chain's.
  template <class LoadNext>
  static __device__ void step(const Share& share, Input& input, State<Share>& S, Left* state_out,
                              Left* value_out, LoadNext load_next) {
    const int lane = threadIdx.x % 32;
    Left s[8];  // [key / 16]
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      s[k] = left(S[2 * k], S[2 * k + 1]);
      state_out[(share.block * 8 + k) * 32 + lane] = s[k];
    }
    Values<Share> KS = {};
    multiply_state(
        share, [&](int k) { return s[k]; }, input.K, KS);
    load_next();
    const Spread<Share> R = residual(share, input.gates, input.V, KS);
    Values<Share> value = {};
    multiply_lower(
        share, [&](int j) { return R.own[j]; }, input.A, value);
    const Spread<Share> V = rounded<Share>(value);
#pragma unroll
    for (int i = 0; i < 4; ++i) value_out[(share.block * 4 + i) * 32 + lane] = V.own[i];
    scale_tokens(share, value, input.gates.fade);
    const Spread<Share> faded = rounded<Share>(value);
    update_state(
        share, input.gates.gamma_C(), [&](int i) { return faded.own[i]; }, input.K, S);
  }

  static __device__ void run(const Arguments& arguments, Shared& shared) {
    const Tensors& x = arguments.tensors;
    const auto chain = ChainOf<width>::of_block(x, arguments.query_heads, arguments.value_heads);
    const Share share = Share::of_warp();
    const std::int64_t block =
        x.first_chunk[chain.sequence] * std::int64_t{arguments.value_heads} + chain.at.head;
    const int half = chain.first_value / width;
    Left* state =
        arguments.chain.S + block * Handover::state_size + half * Handover::state_size / 2;
    Left* value =
        arguments.chain.value + block * Handover::value_size + half * Handover::value_size / 2;

    TokenGates gates;
    gates.read(x, chain.at);
    for (int stage = 0; stage < stages - 1; ++stage) {
      load_chunk<threads>(shared.input[stage], x, chain.at.after(stage), chain.first_value);
    }
    gates.write(shared.input[0].gates);
    gates.read(x, chain.at.after(1));
    State<Share> S = {};
    if (x.initial_state) {
      for_each_element(share, S, chain.first_value,
                       [&](float& s, int i) { s = x.initial_state[chain.corner() + i]; });
    }
    int stage = 0, free_stage = stages - 1;
    for (Place at = chain.at; at.length > 0; at = at.after(1)) {
      wait_copies<stages - 2>();
      __syncthreads();  // this chunk is there, and the one before no longer read
      step(share, shared.input[stage], S, state, value, [&] {
        load_chunk<threads>(shared.input[free_stage], x, at.after(stages - 1), chain.first_value);
      });
      free_stage = stage;
      stage = stage + 1 == stages ? 0 : stage + 1;
      gates.write(shared.input[stage].gates);
      gates.read(x, at.after(2));
      state += arguments.value_heads * Handover::state_size;
      value += arguments.value_heads * Handover::value_size;
    }
    for_each_element(share, S, chain.first_value,
                     [&](float& s, int i) { x.final_state[chain.corner() + i] = s; });
  }
};

static_assert(sizeof(ResidualState<2>::Shared) == 67584);

namespace {

template <int stages>
Instance instance() {
  return {.knobs = {{"stages", std::to_string(stages)}},
          .stages = {stage_of<ResidualState<stages>>(), stage_of<ChunkOutput>()},
          .workspace_bytes =
              [](const Problem& problem) {
                return static_cast<std::size_t>(Handover::bytes(chunks_and_heads(problem)));
              },
          .setup = [](const Problem& problem, const Tensors& tensors, void* workspace) -> Launch {
            const std::int64_t blocks = chunks_and_heads(problem);
            const Handover chain = Handover::at(workspace, blocks);
            const int query_heads = problem.query_heads, value_heads = problem.value_heads;
            const Launch state =
                launcher<ResidualState<stages>>(std::int64_t{2} * problem.sequences() * value_heads,
                                                {tensors, chain, query_heads, value_heads});
            const Launch output =
                launcher<ChunkOutput>(blocks, {tensors, chain, query_heads, value_heads});
            return [=](Stream stream) {
              state(stream);
              output(stream);
            };
          }};
}

}  // namespace
}  // namespace gdn::sm80

namespace gdn::gpu {

Variant residual() {
  return {.name = "residual",
          .idea = "The residual form: no W and U, one product by A instead of two.",
          .target = Target::cuda,
          .scopes = {Scope::core},
          .needs = needs_ampere,
          .accepts = nullptr,
          .instances = {sm80::instance<2>(), sm80::instance<3>()}};
}

}  // namespace gdn::gpu
