// What the chunk-wise CPU forms share: a chunk of one head, or a part of it, as fp32 matrices, the
// loop over (sequence, head) pairs, and the knobs of that loop.
#pragma once

#define EIGEN_DONT_PARALLELIZE
#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kernels/variant.hpp"

namespace gdn::cpu {

using Rows =
    Eigen::Matrix<float, Eigen::Dynamic, head_dim, Eigen::RowMajor, chunk_tokens, head_dim>;
using Square = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor, chunk_tokens,
                             chunk_tokens>;
using Vector = Eigen::Matrix<float, Eigen::Dynamic, 1, 0, chunk_tokens, 1>;
using State = Eigen::Matrix<float, head_dim, head_dim, Eigen::RowMajor>;  // [dk][dv]

// `length` tokens of a chunk, all of them or a part, as a chunk of their own. Only rows below
// `length` are ever read or written, so nothing past a tail reaches a result.
//
// Why a part may pass for a chunk: g enters the forms and A by differences alone, so it may be
// counted from any token, here from the one before the part. A is the inverse of a lower triangular
// matrix, whose diagonal blocks are the inverses of that matrix' diagonal blocks: that of the
// part's rows and columns is the A of the part.
struct ChunkView {
  const Problem& problem;
  const Tensors& tensors;
  Chunk chunk;    // its token and length are those of the part
  int head;       // value head
  int first = 0;  // of the part, counted from the chunk's first token

  int length() const { return chunk.length; }

  Rows q() const { return query_rows(tensors.q); }
  Rows k() const { return query_rows(tensors.k); }
  Rows v() const { return rows(tensors.v, problem.value_heads, head); }

  Vector beta() const { return per_token(tensors.beta); }
  Vector g() const {
    Vector sums = per_token(tensors.g);
    if (first > 0) sums.array() -= tensors.g[element(-1)];
    return sums;
  }

  Square A() const {  // [row][column], lower triangle; the rest is not read
    Square a = Square::Zero(length(), length());
    for (int r = 0; r < length(); ++r)
      for (int c = 0; c <= r; ++c)
        a(r, c) = to_float(tensors.A[element(r) * chunk_tokens + first + c]);
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

// Runs step(view, state) over the chunks of every (sequence, head), `part_tokens` at a time, with
// heads side by side on as many threads.
template <class Step>
void for_each_chain(const Problem& problem, const Tensors& tensors, Step step, int part_tokens,
                    int threads) {
  const int chains = problem.sequences() * problem.value_heads;
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (int chain = 0; chain < chains; ++chain) {
    const int sequence = chain / problem.value_heads;
    const int head = chain % problem.value_heads;
    State state = initial_state(problem, tensors, sequence, head);
    for (int index = tensors.first_chunk[sequence]; index < tensors.first_chunk[sequence + 1];
         ++index) {
      const Chunk& whole = tensors.chunks[index];
      for (int first = 0; first < whole.length; first += part_tokens) {
        Chunk part = whole;
        part.token += first;
        part.length = std::min(part_tokens, whole.length - first);
        step(ChunkView{problem, tensors, part, head, first}, state);
      }
    }
    store_final_state(problem, tensors, sequence, head, state);
  }
}

// The instances of a variant that is such a loop over whole chunks. Their knob: `threads`, all that
// OpenMP would use, or half of them, since two on one core share its caches and its arithmetic.
template <class Step>
std::vector<Instance> chain_instances(const char* stage, Step step,
                                      int part_tokens = chunk_tokens) {
  const auto instance = [=](const char* name, int share) -> Instance {
    return {.knobs = {{"threads", name}},
            .stages = {{.name = stage}},
            .workspace_bytes = nullptr,
            .setup = [=](const Problem& problem, const Tensors& tensors, void*) -> Launch {
              const int threads = std::max(1, omp_get_max_threads() / share);
              return [=](Stream) { for_each_chain(problem, tensors, step, part_tokens, threads); };
            }};
  };
  return {instance("all", 1), instance("half", 2)};
}

// The same of a variant that may as well step through parts of chunks, with one more knob: `chunk`,
// the tokens of a step.
template <class Step>
std::vector<Instance> chunk_instances(const char* stage, Step step) {
  std::vector<Instance> all;
  for (const int tokens : {chunk_tokens, chunk_tokens / 2, chunk_tokens / 4})
    for (Instance& instance : chain_instances(stage, step, tokens)) {
      instance.knobs.insert(instance.knobs.begin(), {"chunk", std::to_string(tokens)});
      all.push_back(std::move(instance));
    }
  return all;
}

}  // namespace gdn::cpu
