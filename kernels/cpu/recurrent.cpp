// The definition, token by token and head by head (form 1 of kernels/README.md):
//   S ← α S;  S ← S + β kᵀ (v − k S);  o = scale · q S
// 4 passes over a state of 64 KiB for every token: it lives in the second-level cache, and that is
// what the time goes to: where threads share that cache, half of them (the knob `threads`) may be
// as fast. It serves both scopes from raw_g, since it needs neither g nor A.
#include "kernels/cpu/chunk.hpp"
#include "kernels/cpu/cpu.hpp"

namespace gdn::cpu {
namespace {

void step_through(const ChunkView& view, State& S) {
  using Row = Eigen::Matrix<float, 1, head_dim>;
  const Rows q = view.q();
  const Rows k = view.k();
  const Rows v = view.v();
  Rows o(view.length(), head_dim);
  for (int t = 0; t < view.length(); ++t) {
    const std::int64_t at = view.element(t);
    S *= std::exp(view.tensors.raw_g[at]);
    const Row write = view.tensors.beta[at] * (v.row(t) - k.row(t) * S);
    S.noalias() += k.row(t).transpose() * write;
    o.row(t) = output_scale * (q.row(t) * S);
  }
  view.store_output(o);
}

}  // namespace

Variant recurrent() {
  return {
      .name = "recurrent",
      .idea = "The definition: one token after the other, the state scaled and updated in place.",
      .target = Target::cpu,
      .scopes = {Scope::core, Scope::forward},
      .needs = nullptr,
      .accepts = nullptr,
      .instances = chain_instances("recurrent", step_through)};
}

}  // namespace gdn::cpu
