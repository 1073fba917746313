// Rung 8: the state stays in registers (register_chain.cuh), and every product on the chain takes
// its left operand from there. Rung 7 rounds S, R, V̂ and faded V̂ into shared memory in turn, with a
// fence and a barrier each before the next product may begin; here each is the next operand by a
// conversion, and a warpgroup waits for nobody but for its own products.
//
// A CTA goes through a sequence, for a head or half of it. Knobs: value_width, 128 for two state
// warpgroups in a CTA, or 64 for one and twice the CTAs, each of which reads Q, K and A and makes
// P' for itself; stages of the ring of inputs; form, w for the U/W form, or x for the X form, whose
// chain is shorter and whose tensor cores have more to do (x_chain.cuh).
//
// Bytes a chunk and head, with 128 values: A 6 KiB, without the quadrant above its diagonal, V 16,
// O 16, and Q and K 32 once a query head: 93 µs at 4.3 TB/s for 8192 tokens and 16/64 heads.
// Predicted: the tensor cores take 32 cycles for a step of 16 of 64 × 64, one warpgroup 42, or 74
// for 64 × 128. With 64 values there is one chain: K S 336, Q S 336 with R rounded beside it, A R
// 168, W rounded ~150, S' 296, W P' 168 and ~200 beside it: ~1490, 0.85 µs at 1.75 GHz. With 128
// values two chains fill each other's gaps, up to the tensor cores' 2304, 256 of them the scores':
// 1.32 µs, or rather 1.7, as both wait for the same loads and shared memory.
//
// Measured (H200, graph timing, reports/h200/ladder.json), µs a chunk of chain_equal, long_low_gva
// and batch_split_gva, three stages: 64 values 1.13 to 1.19, 128 values 1.62 to 1.68. With two
// stages 1.6 to 1.7 and 2.4 to 2.5: a stage is free for V only when Store has read O from there.
//
// What was tried (segmented, wide_gva_state, µs; one after the other):
//   150.2  as it was: ptxas mixes arithmetic in between the products, as it likes
//   154.4  all products of a group issued first, arithmetic behind them: a product from registers
//          is issued when the one before is about done, so nothing is left to do it beside
//   148.8  arithmetic between the products; S faded and R started in blocks of their own, which
//          ptxas does not move behind the wait; W P' with the next chunk
//   142.9  O in V's place. With one place for O State waited for Store for a seventh of its time;
//          and factors 16 bytes at a time: they were a quarter of what was read of shared memory
//   138.7  V loaded apart from the rest of a stage, factors loaded before products, no Q in
//          warm-ups, and segments cut by what a warm-up takes
// and lost beside them: Q S in two halves around A R +2 %, R started before the last product of S'
// +1 %. Of the 142.9, without starting R it would be 135.5, without scores 133.9, without O 142.7.
#include "kernels/cuda/register_chain.cuh"
#include "kernels/cuda/rungs.hpp"
#include "kernels/cuda/x_chain.cuh"

namespace gdn::gpu {
namespace {

using sm90::RegisterChain, sm90::XChain;

template <class Base>
struct RegisterState : Base {
  using Chain = typename Base::Chain;
  static constexpr const char* name = "register_state";
  static constexpr bool waits_itself = true;

  static __device__ void run(const typename Base::Arguments& arguments,
                             typename Base::Shared& shared) {
    const Chain chain =
        Chain::of_block(arguments.tensors, arguments.query_heads, arguments.value_heads);
    Base::run(arguments, shared, chain, [&] {
      return sm90::Segment{0, 0, (chain.at.length + chunk_tokens - 1) / chunk_tokens};
    });
  }
};

template <class Base>
Instance instance() {
  using Kernel = RegisterState<Base>;
  return {.knobs = {{"form", Base::form},
                    {"stages", std::to_string(Base::stages)},
                    {"value_width", std::to_string(Base::width)}},
          .stages = {stage_of<Kernel>()},
          .workspace_bytes = nullptr,
          .setup =
              [](const Problem& problem, const Tensors& x, void*) {
                return launcher<Kernel>(
                    std::int64_t{Kernel::Chain::slices} * problem.sequences() * problem.value_heads,
                    Kernel::arguments(problem, x));
              },
          .obstacle = ""};
}

}  // namespace

Variant register_state() {
  return {
      .name = "register_state",
      .idea = "The state stays in registers, and every product on the chain takes it from there.",
      .target = Target::cuda,
      .scopes = {Scope::core},
      .needs = needs_hopper,
      .accepts = nullptr,
      .instances = {instance<RegisterChain<128, 2>>(), instance<RegisterChain<128, 3>>(),
                    instance<RegisterChain<64, 2>>(), instance<RegisterChain<64, 3>>(),
                    instance<XChain>()}};
}

}  // namespace gdn::gpu
