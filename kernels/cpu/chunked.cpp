// 64, 32 or 16 tokens at a time in the residual form (form 4 of kernels/README.md), so that the
// work is matrix products:
//   R  = V − Γ K S                                    what the state does not yet know
//   V̂  = A B R
//   O  = scale (Γ Q S + tril(Q Kᵀ ∘ exp(g_i − g_j)) V̂)
//   S' = γ_C S + Kᵀ diag(exp(g_C − g)) V̂
// Fewer tokens a step (the knob `chunk`) have less to do with one another, the products by A and by
// the scores, and go more often through the state of 64 KiB.
#include "kernels/cpu/chunk.hpp"
#include "kernels/cpu/cpu.hpp"

namespace gdn::cpu {
namespace {

void step_through(const ChunkView& view, State& S) {
  const Rows q = view.q();
  const Rows k = view.k();
  const Vector g = view.g();
  const Vector gamma = g.array().exp();
  const float last = g(view.length() - 1);

  const Rows residual = view.v() - gamma.asDiagonal() * (k * S);
  const Rows value = view.A() * (view.beta().asDiagonal() * residual).eval();

  Square score = q * k.transpose();
  score = score.cwiseProduct(decay_ratios(g)).eval();
  Rows o = gamma.asDiagonal() * (q * S);
  o.noalias() += score * value;
  view.store_output(output_scale * o);

  const Vector fade = (last - g.array()).exp();
  S *= std::exp(last);
  S.noalias() += k.transpose() * (fade.asDiagonal() * value).eval();
}

}  // namespace

Variant chunked() {
  return {.name = "chunked",
          .idea =
              "A chunk at a time in the residual form: matrix products instead of passes over "
              "the state.",
          .target = Target::cpu,
          .scopes = {Scope::core},
          .needs = nullptr,
          .accepts = nullptr,
          .instances = chunk_instances("chunked", step_through)};
}

}  // namespace gdn::cpu
