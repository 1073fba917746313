// g and A as the CUDA preparation makes them, on the emulator, against sums and inverses in fp64.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/prepare/preparation.hpp"
#include "tests/emulator/emulator.hpp"
#include "tests/emulator/rung.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;

// For each kind of device, and A as it is or folded.
struct Way {
  const Instance& (*preparation)();
  bool folds;
};
void PrintTo(const Way& way, std::ostream* out) { *out << (way.folds ? "folds" : "does not fold"); }

class EmulatedPreparation : public testing::TestWithParam<Way> {
 protected:
  static void run(HostCase& c, int seed) {
    emulator::set_seed(seed);
    c.folded = GetParam().folds;
    c.forget_preparation();
    c.run_on_cpu(GetParam().preparation());
  }
};
INSTANTIATE_TEST_SUITE_P(
    , EmulatedPreparation,
    testing::Values(Way{portable_preparation, false}, Way{portable_preparation, true},
                    Way{hopper_preparation, false}, Way{hopper_preparation, true}),
    [](const testing::TestParamInfo<Way>& info) {
      const bool hopper = info.param.preparation == hopper_preparation;
      return std::string(hopper ? "Hopper" : "Portable") + (info.param.folds ? "Folds" : "");
    });

struct ChunkOfHead {
  const HostCase& c;
  const Chunk& chunk;
  int head;

  std::size_t element(int row) const {
    return std::size_t{1} * (chunk.token + row) * c.problem.value_heads + head;
  }
  double key_product(int i, int j) const {
    const int query_head = head / c.problem.heads_per_query();
    const auto key = [&](int row) {
      return c.k.data() +
             (std::size_t{1} * (chunk.token + row) * c.problem.query_heads + query_head) * head_dim;
    };
    double sum = 0;
    for (int d = 0; d < head_dim; ++d) sum += double{to_float(key(i)[d])} * to_float(key(j)[d]);
    return sum;
  }
  Eigen::VectorXd g() const {
    Eigen::VectorXd g(chunk.length);
    double sum = 0;
    for (int i = 0; i < chunk.length; ++i) g[i] = sum += std::max(c.raw_g[element(i)], -128.0F);
    return g;
  }
  Eigen::VectorXd beta() const {
    Eigen::VectorXd beta(chunk.length);
    for (int i = 0; i < chunk.length; ++i) beta[i] = c.beta[element(i)];
    return beta;
  }
  // What A is with these gates.
  Eigen::MatrixXd inverse(const Eigen::VectorXd& g) const {
    Eigen::MatrixXd N = Eigen::MatrixXd::Identity(chunk.length, chunk.length);
    for (int i = 0; i < chunk.length; ++i)
      for (int j = 0; j < i; ++j)
        N(i, j) = c.beta[element(i)] * std::exp(g[i] - g[j]) * key_product(i, j);
    return N.triangularView<Eigen::UnitLower>().solve(
        Eigen::MatrixXd::Identity(chunk.length, chunk.length));
  }
};

// What rounding took from A where the chunk is ill-conditioned: with it the error is at most half
// of what it is without; else that it is not there. Where it is about to be one or the other,
// either.
double squares_near_diagonal(const Eigen::MatrixXd& A) {
  const auto n = static_cast<int>(A.rows());
  double squares = -n;
  for (int i = 0; i < n; i += 16) {
    const int size = std::min(16, n - i), below = std::min(16, n - i - size);
    squares += A.block(i, i, size, size).squaredNorm();
    if (i % 32 == 0) squares -= A.block(i + size, i, below, size).squaredNorm() / 2;
  }
  return squares;
}
void expect_low_half(const ChunkOfHead& own, double squares, const Eigen::MatrixXd& A,
                     bool is_gentle, const std::string& what) {
  const int n = own.chunk.length;
  const auto at = [&](const std::vector<BFloat16>& half, int i, int j) {
    return half[own.element(i) * chunk_tokens + j];
  };
  if (std::abs(squares - most_squares) < 1e-3) return;
  if (squares < most_squares) {
    ASSERT_EQ(to_float(at(own.c.A_low, 0, 1)), is_gentle ? 2 : 1) << what;
    ASSERT_EQ(at(own.c.A_low, n - 1, chunk_tokens - 1).bits, 0xFFFF) << what;
    return;
  }
  double error = 0, without = 0;
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < chunk_tokens; ++j) {
      const double high = to_float(at(own.c.A, i, j)) - (j < n ? A(i, j) : 0);
      error += std::pow(high + to_float(at(own.c.A_low, i, j)), 2);
      without += std::pow(high, 2);
    }
  ASSERT_LE(std::sqrt(error), std::sqrt(without) / 2) << what;
}

// Whether a chunk's A may be folded without gates: where these come to no less than −48.
bool may_be_gentle(const ChunkOfHead& own) { return own.g()[own.chunk.length - 1] >= -48; }
// Those of short keys and writes that are not alike have to be.
bool must_be_gentle(const ChunkOfHead& own) {
  const int n = own.chunk.length;
  if (!may_be_gentle(own) || own.beta().maxCoeff() > 2) return false;
  const Eigen::MatrixXd A = own.inverse(Eigen::VectorXd::Zero(n));
  double squares = 0;
  for (int i = 0; i < n; i += 16) {
    const int size = std::min(16, n - i);
    squares += A.block(i, i, size, size).squaredNorm() - size;
  }
  for (int i = 0; i < n; ++i)
    if (own.key_product(i, i) > 1.49) return false;
  return squares < most_squares - 0.01;
}
// What rows and columns of A are multiplied by where it is folded: F of what is left of a token at
// the end, or e^-80 of a 2^-48th where that is less; and G of γ down to e^-48.
struct Folding {
  Eigen::VectorXd rows, columns;
};
Folding folding(const ChunkOfHead& own, bool is_gentle) {
  const Eigen::VectorXd g = own.g();
  if (is_gentle) return {Eigen::VectorXd::Ones(g.size()), Eigen::VectorXd::Ones(g.size())};
  const double last = g[g.size() - 1];
  return {g.unaryExpr([&](double own) {
            return std::exp(std::max(last, std::min(own + 48, 0.0) - 80) - own);
          }),
          g.array().max(-48).exp().matrix()};
}

// Every chunk of every head by itself: no error beyond what rounding A to bf16 costs, 2^-9 at most
// for each element; 0 above the diagonal; nothing written behind the ends.
void expect_exact(const HostCase& c, const std::string& what) {
  for (const Chunk& chunk : c.chunks)
    for (int head = 0; head < c.problem.value_heads; ++head) {
      const ChunkOfHead own{c, chunk, head};
      const Eigen::VectorXd g = own.g();
      Eigen::MatrixXd A = own.inverse(g);
      const double squares = squares_near_diagonal(A);
      const float mark = to_float(c.A_low[own.element(0) * chunk_tokens + 1]);
      const bool is_gentle = c.folded && mark == 2, is_split = mark == 0;
      if (is_gentle) A = own.inverse(Eigen::VectorXd::Zero(chunk.length));
      Folding fold = {Eigen::VectorXd::Ones(chunk.length), Eigen::VectorXd::Ones(chunk.length)};
      if (c.folded) fold = folding(own, is_gentle);
      ASSERT_TRUE(!is_gentle || may_be_gentle(own)) << what;
      ASSERT_TRUE(is_gentle || !c.folded || !must_be_gentle(own)) << what;
      double error = 0;
      for (int i = 0; i < chunk.length; ++i) {
        ASSERT_NEAR(c.g[own.element(i)], g[i], 1e-6 * (1 - g[i])) << what << ", token " << i;
        for (int j = 0; j < chunk_tokens; ++j) {
          const BFloat16 x = c.A[own.element(i) * chunk_tokens + j];
          if (j > i) {
            ASSERT_EQ(to_float(x), 0) << what << ", element " << i << ", " << j;
            continue;
          }
          // A whole column is less by as much as its element on the diagonal is to a power of 2.
          double column = fold.columns[j];
          if (c.folded && !is_split) {
            const double diagonal = fold.rows[j] * column;
            const double power = to_float(c.A[own.element(j) * chunk_tokens + j]);
            int exponent = 0;
            ASSERT_EQ(std::frexp(power, &exponent), 0.5) << what << ", token " << j;
            const double tolerance = 1e-5 * (1 - g[chunk.length - 1]);
            ASSERT_GE(diagonal / power, 1 - tolerance) << what << ", token " << j;
            ASSERT_LE(diagonal / power, 2 + tolerance) << what << ", token " << j;
            column = power / fold.rows[j];
          }
          error += std::pow(to_float(x) / (fold.rows[i] * column) - A(i, j), 2);
        }
      }
      // Where it is folded and split, what is large, the diagonal, is rounded as well.
      ASSERT_LE(std::sqrt(error) / A.norm(), c.folded && is_split ? 2.5e-3 : 2e-3)
          << what << ", " << chunk.length << " tokens from " << chunk.token << ", head " << head;
      A = fold.rows.asDiagonal() * A * fold.columns.asDiagonal();
      expect_low_half(own, squares, A, is_gentle, what);
    }
  for (std::size_t i = c.g.size() - HostCase::padding; i < c.g.size(); ++i)
    ASSERT_TRUE(std::isnan(c.g[i])) << what;
  for (std::size_t i = c.A.size() - HostCase::padding; i < c.A.size(); ++i) {
    ASSERT_EQ(c.A[i].bits, 0xFFFF) << what;
    ASSERT_EQ(c.A_low[i].bits, 0xFFFF) << what;
  }
}

// Heads that share a query head, up to more than a CTA has warps.
TEST_P(EmulatedPreparation, OfAnyGroupOfHeadsIsExact) {
  for (const int heads : {1, 2, 3, 4, 5, 8}) {
    HostCase c(problem_of({64, 17, 0, 100, 1}, 2, 2 * heads, false), {.beta_max = 2});
    run(c, heads);
    expect_exact(c, std::to_string(heads) + " heads");
  }
}

TEST_P(EmulatedPreparation, OfEveryGateProfileIsExact) {
  for (const Gates gates : {Gates::random_decay, Gates::mixed, Gates::zero, Gates::model,
                            Gates::strong, Gates::reset, Gates::infinite}) {
    HostCase c(problem_of({128, 33}, 1, 2, false), {.gates = gates, .beta_max = 2});
    run(c, 1);
    expect_exact(c, std::string(name_of(gates)));
  }
}

// So many chunks that a device is full, where a CTA takes several if few heads share a query head;
// and of every length.
TEST_P(EmulatedPreparation, OfManyChunksOfEveryLengthIsExact) {
  for (const int heads : {1, 2}) {
    std::vector<int> lengths;
    for (int i = 0; i < 530; ++i) lengths.push_back(i % chunk_tokens + 1);
    HostCase c(problem_of(lengths, 1, heads, false), {});
    run(c, 1);
    expect_exact(c, std::to_string(heads) + " heads");
  }
}

// Each CTA on Hopper takes three of these chunks one after the other, the copy engine's K and A of
// one beside those of the next; and the short one.
TEST_P(EmulatedPreparation, OfALongSequenceIsExact) {
  for (const int heads : {3, 4}) {
    HostCase c(problem_of({64 * 1100 + 17}, 1, heads, false), {});
    run(c, heads);
    expect_exact(c, std::to_string(heads) + " heads");
  }
}

// Where terms of either sign nearly cancel, with and without decay.
TEST_P(EmulatedPreparation, OfEqualKeysIsExact) {
  for (const test::Betas betas : {test::Betas{0.9F, 1}, {1.4F, 1.5F}, {1.9F, 2}})
    for (const float decay : {0.0F, 0.002F, 2.0F}) {
      HostCase c = test::equal_keys(betas, decay);
      run(c, 3);
      expect_exact(c, test::text_of(betas, decay));
    }
}

// Where products are of one pass and where they are of three, and between: keys that are alike by
// more and more.
TEST_P(EmulatedPreparation, OfKeysThatAreMoreAndMoreAlikeIsExact) {
  for (const Gates gates : {Gates::zero, Gates::random_decay})
    for (const float alike : {0.1F, 0.3F, 0.5F, 0.6F, 0.7F, 0.8F, 0.9F})
      for (const float least : {0.4F, 0.9F, 1.4F, 1.9F}) {
        HostCase c(problem_of({128}, 1, 2, false), {.gates = gates});
        for (int t = 1; t < 128; ++t) {
          BFloat16* const key = &c.k[t * head_dim];
          float own[head_dim], square = 0;
          for (int d = 0; d < head_dim; ++d) {
            own[d] = alike * to_float(c.k[d]) + (1 - alike) * to_float(key[d]);
            square += own[d] * own[d];
          }
          for (int d = 0; d < head_dim; ++d) key[d] = to_bfloat16(own[d] / std::sqrt(square));
        }
        for (float& beta : c.beta) beta = least + 0.1F * beta;
        run(c, 5);
        expect_exact(c, std::string(name_of(gates)) + ", alike by " + std::to_string(alike) +
                            ", beta from " + std::to_string(least));
      }
}

// Keys that are not of unit length: their products alone would be beyond fp16, or what they are
// multiplied by below it.
TEST_P(EmulatedPreparation, OfLongAndShortKeysIsExact) {
  for (const float length : {0x1p-12F, 0.5F, 1.2F, 1.25F, 2.0F, 16.0F, 64.0F, 512.0F, 0x1p20F}) {
    HostCase c(problem_of({100}, 1, 2, false), {});
    for (BFloat16& x : c.k) x = to_bfloat16(length * to_float(x));
    for (float& beta : c.beta) beta /= std::max(length * length, 1.0F);
    run(c, 6);
    expect_exact(c, "of length " + std::to_string(length));
  }
}

// A sequence next to one of NaN is what it is alone.
TEST_P(EmulatedPreparation, DoesNotSeeNeighbours) {
  HostCase c(problem_of({70, 70, 70}, 1, 2, false), {});
  const HostCase clean = c;
  for (const int first : {0, 140}) {
    std::fill_n(c.k.begin() + first * head_dim, 70 * head_dim, BFloat16{0xFFFF});
    std::fill_n(c.raw_g.begin() + first * 2, 140, NAN);
    std::fill_n(c.beta.begin() + first * 2, 140, NAN);
  }
  HostCase whole = clean;
  run(c, 1);
  run(whole, 1);
  expect_exact(whole, "clean");
  for (int i = 140; i < 280; ++i) ASSERT_EQ(c.g[i], whole.g[i]);
  for (int i = 140 * chunk_tokens; i < 280 * chunk_tokens; ++i)
    ASSERT_EQ(c.A[i].bits, whole.A[i].bits);
}

TEST_P(EmulatedPreparation, AnyOrderGivesTheSameBits) {
  HostCase c(problem_of({64, 65, 10}, 2, 6, false), {});
  run(c, 0);
  const HostCase first = c;
  for (int seed = 1; seed < 20; ++seed) {
    run(c, seed);
    for (std::size_t i = 0; i < c.A.size(); ++i)
      ASSERT_EQ(c.A[i].bits, first.A[i].bits) << "seed " << seed << ", element " << i;
  }
}

}  // namespace
}  // namespace gdn
