// What the chunk-wise CPU forms share: one chunk of one head as fp32 matrices, and the loop over
// (sequence, head) pairs.
#pragma once

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <cmath>

#include "kernels/variant.hpp"

namespace gdn::cpu {

using Rows =
    Eigen::Matrix<float, Eigen::Dynamic, head_dim, Eigen::RowMajor, chunk_tokens, head_dim>;
using Square = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor, chunk_tokens,
                             chunk_tokens>;
using Vector = Eigen::Matrix<float, Eigen::Dynamic, 1, 0, chunk_tokens, 1>;
using State = Eigen::Matrix<float, head_dim, head_dim, Eigen::RowMajor>;  // [dk][dv]

// A chunk of `length` tokens. Only rows below `length` are ever read or written, so nothing past a
// tail reaches a result.
struct ChunkView {
  const Problem& problem;
  const Tensors& tensors;
  Chunk chunk;
  int head;  // value head

  int length() const { return chunk.length; }

  Rows q() const { return query_rows(tensors.q); }
  Rows k() const { return query_rows(tensors.k); }
  Rows v() const { return rows(tensors.v, problem.value_heads, head); }

  Vector beta() const { return per_token(tensors.beta); }
  Vector g() const { return per_token(tensors.g); }

  Square A() const {  // [row][column], lower triangle; the rest is not read
    Square a = Square::Zero(length(), length());
    for (int r = 0; r < length(); ++r)
      for (int c = 0; c <= r; ++c) a(r, c) = to_float(tensors.A[element(r) * chunk_tokens + c]);
    return a;
  }

  void store_output(const Rows& o) const {
    for (int r = 0; r < length(); ++r)
      for (int c = 0; c < head_dim; ++c)
        tensors.output[element(r) * head_dim + c] = to_bfloat16(o(r, c));
  }

  std::int64_t element(int row) const {  // index in [token][value_head]
    return std::int64_t{chunk.token + row} * problem.value_heads + head;
  }

 private:
  Rows query_rows(const BFloat16* from) const {
    return rows(from, problem.query_heads, head / problem.heads_per_query());
  }

  Rows rows(const BFloat16* from, int heads, int which) const {
    Rows m(length(), head_dim);
    for (int r = 0; r < length(); ++r)
      for (int c = 0; c < head_dim; ++c)
        m(r, c) = to_float(from[(std::int64_t{chunk.token + r} * heads + which) * head_dim + c]);
    return m;
  }

  Vector per_token(const float* from) const {
    Vector x(length());
    for (int r = 0; r < length(); ++r) x(r) = from[element(r)];
    return x;
  }
};

// exp(g_i - g_j) for i >= j, 0 above the diagonal: only differences <= 0 are exponentiated.
inline Square decay_ratios(const Vector& g) {
  Square ratio(g.size(), g.size());
  for (int i = 0; i < g.size(); ++i) {
    ratio.row(i).head(i + 1) = (g(i) - g.head(i + 1).array()).exp();
    ratio.row(i).tail(g.size() - i - 1).setZero();
  }
  return ratio;
}

inline State initial_state(const Problem& problem, const Tensors& tensors, int sequence, int head) {
  if (tensors.initial_state == nullptr) return State::Zero();
  return Eigen::Map<const State>(tensors.initial_state +
                                 (std::int64_t{sequence} * problem.value_heads + head) * head_dim *
                                     head_dim);
}

inline void store_final_state(const Problem& problem, const Tensors& tensors, int sequence,
                              int head, const State& state) {
  Eigen::Map<State>(tensors.final_state + (std::int64_t{sequence} * problem.value_heads + head) *
                                              head_dim * head_dim) = state;
}

// Runs step(view, state) over the chunks of every (sequence, head), heads side by side.
template <class Step>
void for_each_chain(const Problem& problem, const Tensors& tensors, Step step) {
  const int chains = problem.sequences() * problem.value_heads;
#pragma omp parallel for schedule(dynamic)
  for (int chain = 0; chain < chains; ++chain) {
    const int sequence = chain / problem.value_heads;
    const int head = chain % problem.value_heads;
    State state = initial_state(problem, tensors, sequence, head);
    for (int index = tensors.first_chunk[sequence]; index < tensors.first_chunk[sequence + 1];
         ++index)
      step(ChunkView{problem, tensors, tensors.chunks[index], head}, state);
    store_final_state(problem, tensors, sequence, head, state);
  }
}

// The one instance of a variant that is such a loop.
template <class Step>
std::vector<Instance> chain_instance(const char* stage, Step step) {
  return {{.knobs = {},
           .stages = {{.name = stage}},
           .workspace_bytes = nullptr,
           .setup = [step](const Problem& problem, const Tensors& tensors, void*) -> Launch {
             return [=](Stream) { for_each_chain(problem, tensors, step); };
           }}};
}

}  // namespace gdn::cpu
