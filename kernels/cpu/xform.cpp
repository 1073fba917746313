// The X form (form 5 of kernels/README.md): the chain through the state is two products, K S and Xᵀ
// R; everything else is independent of the state.
//   X  = B Aᵀ diag(exp(g_C − g)) K
//   P' = tril(Q Kᵀ ∘ exp(g_i − g_j)) A B
//   R  = V − Γ K S
//   O  = scale (Γ Q S + P' R)
//   S' = γ_C S + Xᵀ R
// Fewer tokens a step (the knob `chunk`) make X and P' cheaper, and go more often through the state
// of 64 KiB.
#include "kernels/cpu/chunk.hpp"
#include "kernels/cpu/cpu.hpp"

namespace gdn::cpu {
namespace {

void step_through(const ChunkView& view, State& S) {
  const Rows q = view.q();
  const Rows k = view.k();
  const Square A = view.A();
  const Vector beta = view.beta();
  const Vector g = view.g();
  const Vector gamma = g.array().exp();
  const float last = g(view.length() - 1);
  const Vector fade = (last - g.array()).exp();

  Rows X = A.transpose() * (fade.asDiagonal() * k).eval();
  X = beta.asDiagonal() * X;
  Square score = q * k.transpose();
  score = score.cwiseProduct(decay_ratios(g)).eval();
  Square P = score * A;
  P = P * beta.asDiagonal();

  const Rows residual = view.v() - gamma.asDiagonal() * (k * S);
  Rows o = gamma.asDiagonal() * (q * S);
  o.noalias() += P * residual;
  view.store_output(output_scale * o);
  S *= std::exp(last);
  S.noalias() += X.transpose() * residual;
}

}  // namespace

Variant xform() {
  return {.name = "xform",
          .idea = "The X form: two products on the chain through the state, the rest beside it.",
          .target = Target::cpu,
          .scopes = {Scope::core},
          .needs = nullptr,
          .accepts = nullptr,
          .instances = chunk_instances("xform", step_through)};
}

}  // namespace gdn::cpu
