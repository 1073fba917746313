// Rungs 4 and 5: a CTA has all 128 values of a head, so that each input is read once a chunk and P
// is made once (fused_chain.cuh), and fragments are spread over 8, 16 or 32 warps.
//
// clang-format off
// The plan of shared memory with one stage, 89 KiB, and what a buffer holds in the course of a chunk:
//   Q      16 KiB  Q                     until everybody has made P and Q S
//   K      16      K                     to the end: P, K S, Kᵀ V̂
//   V      16      V → B (V − Γ K S) → V̂  a warp's own rows and columns, in place
//   A       8      A → P                 after everybody has made V̂
//   gates   1      g, β, γ, exp(g_C − g)
//   state  32      Sᵀ in bf16, as fragments; with 512 and 1024 threads only
// clang-format on
// With two stages all but the state is there twice, and the next chunk comes during this one.
// 256 threads have a warp for 16 values: S, R and V̂ stay in registers and no state is in shared
// memory. With 512 (1024) two (four) warps share 16 values, each a half (quarter) of the keys of S
// and of the tokens of R, V̂ and O, and hand fragments to each other: state, R and V̂.
//
// What holds it: shared memory. Each group of 16 values reads all of K twice, Q, A and P: 4900
// wavefronts of fragments a chunk, 5800 with copies and gates (ncu on chain_equal), of 8200 cycles
// at its clock. 512 and 1024 threads read the same and their exchanged fragments on top, and meet
// at four barriers more a chunk: 5.7 and 7.3 µs a chunk against 4.4 (two stages; one stage for
// 1024) on chain_equal. So here 256 beats 512 beats 1024 (reports/h200/ladder.json). A second stage
// gains 0.6 µs a chunk there: what loading takes when nothing hides it. Against rung 3: half as
// many multiprocessors have work, each with the fragments of twice the values; on a device of 132
// that loses everywhere, though the bytes read are fewer.
//
// Tried and lost: 128 threads, 32 values a warp, which would halve the fragments; it needs more
// registers than there are, also with Q S rounded anew and one block of outputs after the other.
#include "kernels/cuda/fused_chain.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::gpu {
namespace {

std::vector<Knob> knobs(int stages, int threads) {
  return {{"stages", std::to_string(stages)}, {"threads", std::to_string(threads)}};
}

template <int stages, int threads>
Instance instance() {
  return sm80::fused_instance<head_dim, threads, stages>(knobs(stages, threads));
}

Instance unavailable(int stages, int threads, const char* why) {
  return {.knobs = knobs(stages, threads),
          .stages = {},
          .workspace_bytes = nullptr,
          .setup = nullptr,
          .obstacle = why};
}

}  // namespace

Variant wide() {
  return {.name = "wide",
          .idea = "A CTA has all 128 values of a head: each input is read once a chunk.",
          .target = Target::cuda,
          .scopes = {Scope::core},
          .needs = needs_ampere,
          .accepts = nullptr,
          .instances = {
              unavailable(1, 128,
                          "with 32 values a warp, state and outputs or new values take 192 of the "
                          "255 registers of a thread, and it spills"),
              instance<1, 256>(), instance<1, 512>(), instance<1, 1024>(), instance<2, 256>(),
              instance<2, 512>(),
              unavailable(2, 1024,
                          "a second stage's addresses do not fit into the 64 registers "
                          "that 1024 threads leave, and it spills")}};
}

}  // namespace gdn::gpu
