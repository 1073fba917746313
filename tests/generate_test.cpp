// Inputs: the same bits for a seed, everywhere and for ever; and the distributions that the cases
// names.
#include "kernels/prepare/generate.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "kernels/prepare/hash.hpp"
#include "kernels/prepare/random.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;

// Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Philox, KnownAnswers) {
  const Words zero = philox({{0, 0, 0, 0}}, 0);
  EXPECT_EQ(zero.word[0], 0x6627e8d5u);
  EXPECT_EQ(zero.word[1], 0xe169c58du);
  EXPECT_EQ(zero.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zero.word[3], 0x9b00dbd8u);
  const Words ones = philox({{~0u, ~0u, ~0u, ~0u}}, ~0ull);
  EXPECT_EQ(ones.word[0], 0x408f276du);
  EXPECT_EQ(ones.word[1], 0x41c83b0eu);
  EXPECT_EQ(ones.word[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.word[3], 0x6d5451fdu);
}

TEST(Series, AgreeWithTheMathLibrary) {
  for (double x = -40; x <= 40; x += 0.0371)
    EXPECT_NEAR(series_exp(x) / std::exp(x), 1, 1e-14) << x;
  for (double x = 1e-9; x < 100; x *= 1.07)
    EXPECT_NEAR(series_log(x), std::log(x), 1e-14 * std::max(1.0, std::abs(std::log(x)))) << x;
  for (double x = 1e-12; x < 1e6; x *= 1.3)
    EXPECT_NEAR(series_log1p(x) / std::log1p(x), 1, 1e-14) << x;
  for (double turn = 0; turn < 1; turn += 0.00097) {
    double c;
    double s;
    series_cos_sin(turn, c, s);
    EXPECT_NEAR(c, std::cos(2 * M_PI * turn), 2e-15) << turn;
    EXPECT_NEAR(s, std::sin(2 * M_PI * turn), 2e-15) << turn;
  }
}

struct Moments {
  double mean = 0, variance = 0, kurtosis = 0;
};

Moments moments(Draw stream) {
  constexpr int count = 400'000;
  double m1 = 0;
  double m2 = 0;
  double m4 = 0;
  for (int block = 0; block < count / 4; ++block)
    for (const double x : normals(7, stream, block).value) {
      m1 += x / count;
      m2 += x * x / count;
      m4 += x * x * x * x / count;
    }
  return {m1, m2, m4 / (m2 * m2)};
}

TEST(Normals, HaveTheMomentsOfANormal) {
  for (const Draw stream : {Draw::q, Draw::v, Draw::beta}) {
    const Moments m = moments(stream);
    EXPECT_NEAR(m.mean, 0, 0.008);  // 5 standard errors
    EXPECT_NEAR(m.variance, 1, 0.012);
    EXPECT_NEAR(m.kurtosis, 3, 0.04);
  }
}

std::string hash_of(const HostCase& c) {
  std::uint64_t hash = 0;
  const auto add = [&](const auto& tensor) {
    hash = chain_hash(
        hash, hash_bytes(tensor.data(), (tensor.size() - HostCase::padding) * sizeof(tensor[0])));
  };
  add(c.q);
  add(c.k);
  add(c.v);
  add(c.raw_g);
  add(c.beta);
  if (c.problem.initial_state) add(c.initial_state);
  return fmt::format("{:016x}", hash);
}

HostCase sample(Gates gates, int beta_max = 1, std::uint64_t seed = 1) {
  return HostCase(problem_of({37, 0, 91}, 2, 4, true),
                  {.gates = gates, .beta_max = beta_max, .seed = seed});
}

// Bits that were made once and must never change: results are compared across versions by them.
TEST(Inputs, GoldenHashes) {
  const std::map<Gates, std::string> golden = {
      {Gates::random_decay, "d07b704310178d58"}, {Gates::mixed, "22f66c3799cb2248"},
      {Gates::zero, "339b55bb22820f31"},         {Gates::model, "5f64274275be23a8"},
      {Gates::strong, "d2517e158d08df95"},       {Gates::reset, "0b3d32d951d079ac"},
      {Gates::infinite, "a641dddfcf63116f"}};
  for (const auto& [gates, hash] : golden)
    EXPECT_EQ(hash_of(sample(gates)), hash) << name_of(gates);
  EXPECT_EQ(hash_of(sample(Gates::random_decay, 2)), "7be4c65709065095");
  EXPECT_EQ(hash_of(sample(Gates::random_decay, 1, 0xFEDCBA9876543210u)), "fc9527e5d211e391");
}

TEST(Inputs, AreTheSameAtAnyThreadCount) {
  const int before = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::string one = hash_of(sample(Gates::model));
  omp_set_num_threads(7);
  const std::string seven = hash_of(sample(Gates::model));
  omp_set_num_threads(before);
  EXPECT_EQ(one, seven);
}

TEST(Inputs, KeysAndQueriesHaveUnitLength) {
  const HostCase c = sample(Gates::zero);
  for (const auto* tensor : {&c.q, &c.k})
    for (std::int64_t row = 0; row < c.problem.tokens() * c.problem.query_heads; ++row) {
      double squares = 0;
      for (int d = 0; d < head_dim; ++d) {
        const double x = to_float((*tensor)[row * head_dim + d]);
        squares += x * x;
      }
      EXPECT_NEAR(std::sqrt(squares), 1, 5e-3);
    }
}

TEST(Gate, ProfilesAreWhatTheyAreCalled) {
  const auto gates_of = [](Gates gates) {
    const HostCase c(problem_of({2000, 2000}, 1, 4, false), {.gates = gates, .seed = 3});
    return std::vector<float>(c.raw_g.begin(), c.raw_g.end() - HostCase::padding);
  };
  double mean = 0;
  for (const float g : gates_of(Gates::random_decay)) {
    EXPECT_LT(g, 0);
    mean += g / 16000;
  }
  EXPECT_NEAR(mean, -0.80606 / 16, 1e-3);  // E[log sigmoid(N(0,1))] = -0.80606
  const std::vector<float> mixed = gates_of(Gates::mixed);
  for (int token = 0; token < 4000; ++token)
    for (int head = 0; head < 4; ++head) EXPECT_EQ(mixed[token * 4 + head] == 0, token % 2 == 0);
  for (const float g : gates_of(Gates::zero)) EXPECT_EQ(g, 0);
  for (const float g : gates_of(Gates::strong)) {
    EXPECT_LT(g, -1);
    EXPECT_GT(g, -12);
  }
  for (const float g : gates_of(Gates::model)) EXPECT_LE(g, 0);
  const auto share = [](const std::vector<float>& gates, auto is) {
    return static_cast<double>(std::count_if(gates.begin(), gates.end(), is)) / gates.size();
  };
  EXPECT_NEAR(share(gates_of(Gates::reset), [](float g) { return g == -50; }), 0.05, 0.02);
  EXPECT_NEAR(share(gates_of(Gates::infinite), [](float g) { return std::isinf(g) && g < 0; }),
              0.02, 0.012);
}

TEST(Beta, LiesBetweenZeroAndItsMaximum) {
  for (const int beta_max : {1, 2}) {
    const HostCase c(problem_of({1000}, 1, 8, false), {.beta_max = beta_max});
    double mean = 0;
    for (std::size_t i = 0; i < 8000; ++i) {
      EXPECT_GT(c.beta[i], 0);
      EXPECT_LT(c.beta[i], beta_max);
      mean += c.beta[i] / 8000;
    }
    EXPECT_NEAR(mean, beta_max / 2.0, 0.02 * beta_max);
  }
}

TEST(BFloat16, RoundsToNearestEvenAndKeepsSpecials) {
  EXPECT_EQ(to_bfloat16(1.0F).bits, 0x3F80);
  EXPECT_EQ(to_bfloat16(1.00390625F).bits, 0x3F80);  // half way: to even, down
  EXPECT_EQ(to_bfloat16(1.01171875F).bits, 0x3F82);  // half way: to even, up
  EXPECT_EQ(to_bfloat16(3.4e38F).bits, 0x7F80);      // overflows to infinity
  EXPECT_EQ(to_bfloat16(-INFINITY).bits, 0xFF80);
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(NAN))));
}

}  // namespace
}  // namespace gdn
