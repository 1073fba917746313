// The fp64 oracle against an independent chunk-wise fp64 form, and against what can be said
// exactly.
#include "src/reference.hpp"

#define EIGEN_DONT_PARALLELIZE
#include <gtest/gtest.h>
#include <omp.h>

#include <Eigen/Dense>
#include <cmath>

#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;

using Matrix = Eigen::MatrixXd;
using Column = Eigen::VectorXd;

struct Truths {
  std::vector<double> output, state;
};

Truths recurrence(HostCase& c) {
  Truths truths{std::vector<double>(c.output.size()), std::vector<double>(c.final_state.size())};
  reference_on_cpu(c.problem, c.tensors(), truths.output.data(), truths.state.data());
  return truths;
}

// Form 3 of kernels/README.md (U/W) in fp64 with a triangular solve: shares nothing with the
// recurrence.
Truths chunk_wise(const HostCase& c) {
  const Problem& p = c.problem;
  Truths truths{std::vector<double>(c.output.size()), std::vector<double>(c.final_state.size())};
  for (int sequence = 0; sequence < p.sequences(); ++sequence)
    for (int head = 0; head < p.value_heads; ++head) {
      const std::int64_t state_at = (std::int64_t{sequence} * p.value_heads + head) * 128 * 128;
      Matrix S = Matrix::Zero(128, 128);
      if (p.initial_state)
        for (int i = 0; i < 128; ++i)
          for (int j = 0; j < 128; ++j) S(i, j) = c.initial_state[state_at + i * 128 + j];
      for (int first = p.offsets[sequence]; first < p.offsets[sequence + 1]; first += 64) {
        const int n = std::min(64, p.offsets[sequence + 1] - first);
        Matrix Q(n, 128), K(n, 128), V(n, 128);
        Column beta(n), g(n);
        double sum = 0;
        for (int r = 0; r < n; ++r) {
          const std::int64_t token = first + r;
          const std::int64_t element = token * p.value_heads + head;
          const std::int64_t query_row =
              token * p.query_heads + head / (p.value_heads / p.query_heads);
          for (int d = 0; d < 128; ++d) {
            Q(r, d) = to_float(c.q[query_row * 128 + d]);
            K(r, d) = to_float(c.k[query_row * 128 + d]);
            V(r, d) = to_float(c.v[element * 128 + d]);
          }
          beta(r) = c.beta[element];
          sum += std::max(static_cast<double>(c.raw_g[element]), -128.0);
          g(r) = sum;
        }
        Matrix decay = Matrix::Zero(n, n);
        for (int i = 0; i < n; ++i)
          for (int j = 0; j <= i; ++j) decay(i, j) = std::exp(g(i) - g(j));
        Matrix T = beta.asDiagonal() * decay.cwiseProduct(K * K.transpose());
        T.triangularView<Eigen::Upper>().setZero();
        T += Matrix::Identity(n, n);
        const auto solver = T.triangularView<Eigen::UnitLower>();
        const Column gamma = g.array().exp();
        const Matrix U = solver.solve(beta.asDiagonal() * V);
        const Matrix W = solver.solve(beta.cwiseProduct(gamma).asDiagonal() * K);
        const Matrix value = U - W * S;
        const Matrix O =
            (gamma.asDiagonal() * (Q * S) + decay.cwiseProduct(Q * K.transpose()) * value) /
            std::sqrt(128.0);
        const Column fade = (g(n - 1) - g.array()).exp();
        S = (std::exp(g(n - 1)) * S + K.transpose() * (fade.asDiagonal() * value)).eval();
        for (int r = 0; r < n; ++r)
          for (int d = 0; d < 128; ++d)
            truths.output[((std::int64_t{first} + r) * p.value_heads + head) * 128 + d] = O(r, d);
      }
      for (int i = 0; i < 128; ++i)
        for (int j = 0; j < 128; ++j) truths.state[state_at + i * 128 + j] = S(i, j);
    }
  return truths;
}

// Largest relative rms over sequences and heads.
double worst_rms(const Problem& p, const Truths& a, const Truths& b) {
  double worst = 0;
  for (int sequence = 0; sequence < p.sequences(); ++sequence)
    for (int head = 0; head < p.value_heads; ++head) {
      double error = 0;
      double size = 0;
      for (std::int64_t t = p.offsets[sequence]; t < p.offsets[sequence + 1]; ++t)
        for (int d = 0; d < 128; ++d) {
          const std::int64_t at = (t * p.value_heads + head) * 128 + d;
          error += std::pow(a.output[at] - b.output[at], 2);
          size += std::pow(b.output[at], 2);
        }
      if (size > 0) worst = std::max(worst, std::sqrt(error / size));
      error = size = 0;
      const std::int64_t first = (std::int64_t{sequence} * p.value_heads + head) * 128 * 128;
      for (std::int64_t at = first; at < first + 128 * 128; ++at) {
        error += std::pow(a.state[at] - b.state[at], 2);
        size += std::pow(b.state[at], 2);
      }
      if (size > 0) worst = std::max(worst, std::sqrt(error / size));
    }
  return worst;
}

class ReferenceOnGates : public testing::TestWithParam<Gates> {};

TEST_P(ReferenceOnGates, AgreesWithTheChunkWiseForm) {
  for (const int beta_max : {1, 2}) {
    HostCase c(problem_of({200, 0, 64, 7, 129}, 2, 4, true),
               {.gates = GetParam(), .beta_max = beta_max, .seed = 5});
    EXPECT_LE(worst_rms(c.problem, recurrence(c), chunk_wise(c)), 1e-12) << "beta_max " << beta_max;
  }
}

INSTANTIATE_TEST_SUITE_P(Every, ReferenceOnGates,
                         testing::Values(Gates::random_decay, Gates::mixed, Gates::zero,
                                         Gates::model, Gates::strong, Gates::reset,
                                         Gates::infinite),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Reference, LongWeakDecayStillAgrees) {
  HostCase c(problem_of({4096}, 1, 1, false), {.gates = Gates::zero});
  EXPECT_LE(worst_rms(c.problem, recurrence(c), chunk_wise(c)), 1e-12);
}

// One token from nothing: S = β kᵀ v and o = scale · (q·k) β v, exactly.
TEST(Reference, OneTokenFromNothing) {
  HostCase c(problem_of({1}, 1, 1, false), {});
  const Truths truths = recurrence(c);
  double product = 0;
  for (int d = 0; d < 128; ++d) product += double{to_float(c.q[d])} * to_float(c.k[d]);
  for (int d = 0; d < 128; ++d) {
    const double write = double{c.beta[0]} * to_float(c.v[d]);
    EXPECT_NEAR(truths.output[d], product * write / std::sqrt(128.0), 1e-15);
    EXPECT_EQ(truths.state[5 * 128 + d], to_float(c.k[5]) * write);
  }
}

// β = 1 and a unit key: what is read back with the key just written is the value just written.
TEST(Reference, AFullWriteIsReadBackExactly) {
  HostCase c(problem_of({50}, 1, 1, true), {.gates = Gates::random_decay});
  const float one = 1;
  for (int t = 0; t < 50; ++t) {
    c.beta[t] = one;
    for (int d = 0; d < 128; ++d) {
      c.k[t * 128 + d] = to_bfloat16(d == t ? 1.0F : 0.0F);
      c.q[t * 128 + d] = c.k[t * 128 + d];
    }
  }
  const Truths truths = recurrence(c);
  for (int i = 0; i < 50 * 128; ++i)
    EXPECT_NEAR(truths.output[i] * std::sqrt(128.0), to_float(c.v[i]), 1e-14);
}

TEST(Reference, AnEmptySequenceHandsItsStateOn) {
  HostCase given(problem_of({0, 3}, 1, 2, true), {});
  const Truths truths = recurrence(given);
  for (int i = 0; i < 2 * 128 * 128; ++i) EXPECT_EQ(truths.state[i], given.initial_state[i]);
}

TEST(Reference, IsTheSameAtAnyThreadCount) {
  HostCase c(problem_of({70, 65}, 2, 6, true), {});
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const Truths one = recurrence(c);
  omp_set_num_threads(5);
  const Truths five = recurrence(c);
  omp_set_num_threads(before);
  EXPECT_EQ(one.output, five.output);
  EXPECT_EQ(one.state, five.state);
}

}  // namespace
}  // namespace gdn
