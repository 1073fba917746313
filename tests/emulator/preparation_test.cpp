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

// For each kind of device.
class EmulatedPreparation : public testing::TestWithParam<const Instance& (*)()> {
 protected:
  static void run(HostCase& c, int seed) {
    emulator::set_seed(seed);
    c.forget_preparation();
    c.run_on_cpu(GetParam()());
  }
};
INSTANTIATE_TEST_SUITE_P(, EmulatedPreparation,
                         testing::Values(portable_preparation, hopper_preparation),
                         [](const testing::TestParamInfo<const Instance& (*)()>& info) {
                           return info.param == hopper_preparation ? "Hopper" : "Portable";
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
  Eigen::MatrixXd inverse() const {
    const Eigen::VectorXd g = this->g();
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
void expect_low_half(const ChunkOfHead& own, const Eigen::MatrixXd& A, const std::string& what) {
  const int n = own.chunk.length;
  double squares = -n;
  for (int i = 0; i < n; i += 16) {
    const int size = std::min(16, n - i), below = std::min(16, n - i - size);
    squares += A.block(i, i, size, size).squaredNorm();
    if (i % 32 == 0) squares -= A.block(i + size, i, below, size).squaredNorm() / 2;
  }
  const auto at = [&](const std::vector<BFloat16>& half, int i, int j) {
    return half[own.element(i) * chunk_tokens + j];
  };
  if (std::abs(squares - most_squares) < 1e-3) return;
  if (squares < most_squares) {
    ASSERT_EQ(to_float(at(own.c.A_low, 0, 0)), 1) << what;
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

// Every chunk of every head by itself: no error beyond what rounding A to bf16 costs, 2^-9 at most
// for each element; 0 above the diagonal; nothing written behind the ends.
void expect_exact(const HostCase& c, const std::string& what) {
  for (const Chunk& chunk : c.chunks)
    for (int head = 0; head < c.problem.value_heads; ++head) {
      const ChunkOfHead own{c, chunk, head};
      const Eigen::VectorXd g = own.g();
      const Eigen::MatrixXd A = own.inverse();
      double error = 0;
      for (int i = 0; i < chunk.length; ++i) {
        ASSERT_NEAR(c.g[own.element(i)], g[i], 1e-6 * (1 - g[i])) << what << ", token " << i;
        for (int j = 0; j < chunk_tokens; ++j) {
          const BFloat16 x = c.A[own.element(i) * chunk_tokens + j];
          if (j > i)
            ASSERT_EQ(x.bits, 0) << what << ", element " << i << ", " << j;
          else
            error += std::pow(to_float(x) - A(i, j), 2);
        }
      }
      ASSERT_LE(std::sqrt(error) / A.norm(), 2e-3)
          << what << ", " << chunk.length << " tokens from " << chunk.token << ", head " << head;
      expect_low_half(own, A, what);
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
