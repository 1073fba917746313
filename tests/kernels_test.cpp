// Every instance of the ladder against the fp64 recurrence, on the inputs that other kernels got
// wrong. Those of the GPU skip themselves where there is none.
#include <gtest/gtest.h>

#include <Eigen/Dense>
#include <algorithm>
#include <random>

#include "kernels/variant.hpp"
#include "tests/support.hpp"

namespace gdn {

// Beside its type, where GoogleTest looks.
static void PrintTo(Target target, std::ostream* out) { *out << name_of(target); }

namespace {

using test::HostCase;
using test::problem_of;

struct Rung {
  const Variant* variant;
  const Instance* instance;
  bool folded = false;  // behind a preparation that folds A

  std::string id() const { return variant_id(*variant, *instance) + (folded ? ":folded" : ""); }
};

void PrintTo(const Rung& rung, std::ostream* out) { *out << rung.id(); }

std::vector<Rung> rungs() {
  std::vector<Rung> all;
  for (const Variant& variant : ladder())
    for (const Instance& instance : variant.instances)
      if (instance.obstacle.empty()) {
        all.push_back({&variant, &instance});
        if (!instance.folded_stages.empty()) all.push_back({&variant, &instance, true});
      }
  return all;
}

// "Cpu_recurrent_threads_all", "Cuda_baseline_stages_3"
std::string test_name(const testing::TestParamInfo<Rung>& info) {
  std::string name = info.param.variant->target == Target::cuda ? "Cuda_" : "Cpu_";
  for (const char c : info.param.id())
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class Kernels : public testing::TestWithParam<Rung> {
 protected:
  void SetUp() override {
    if (!on_gpu()) return;
    if (!test::has_gpu()) GTEST_SKIP() << "there is no CUDA device here";
    const std::string why =
        obstacle(*GetParam().variant, *GetParam().instance, test::gpu().device());
    if (!why.empty()) GTEST_SKIP() << why;
  }

  bool on_gpu() const { return GetParam().variant->target == Target::cuda; }
  std::string id() const { return GetParam().id(); }
  void run(HostCase& c) const {
    c.folded = GetParam().folded;
    c.run_forward(*GetParam().instance, GetParam().variant->target);
  }

  // Within the health gate; `ordinary` inputs within what a sound bf16 kernel reaches.
  void expect_right(HostCase& c, const std::string& what, bool ordinary = true) const {
    run(c);
    const Finding finding = c.finding();
    EXPECT_EQ(finding.reason, "") << id() << ": " << what;
    if (!ordinary && on_gpu()) return;
    const double limit = on_gpu() ? 6e-3 : 4e-3;  // of the worst head, of which some are tiny
    EXPECT_LE(finding.error.output_rms, limit) << id() << ": " << what;
    EXPECT_LE(finding.error.state_rms, limit) << id() << ": " << what;
  }
};

INSTANTIATE_TEST_SUITE_P(Ladder, Kernels, testing::ValuesIn(rungs()), test_name);

TEST_P(Kernels, EveryLengthTo200) {
  for (int tokens = 1; tokens <= 200; ++tokens) {
    HostCase c(problem_of({tokens}, 1, 2, tokens % 2 == 0), {.seed = 11});
    expect_right(c, std::to_string(tokens) + " tokens");
  }
}

TEST_P(Kernels, EveryGateProfile) {
  for (const Gates gates : {Gates::random_decay, Gates::mixed, Gates::zero, Gates::model,
                            Gates::strong, Gates::reset, Gates::infinite})
    for (const int beta_max : {1, 2}) {
      HostCase c(problem_of({300, 65}, 2, 4, true), {.gates = gates, .beta_max = beta_max});
      expect_right(c, std::string(name_of(gates)) + ", beta_max " + std::to_string(beta_max),
                   false);
    }
}

TEST_P(Kernels, GatesNearAPowerOf2) {
  HostCase c = test::gates_near_a_power_of_2();
  expect_right(c, "gates of 2^-100");
}

// FLA 389, 924: nothing forgotten over many chunks. kernelbench 7, 11: weak decay at length.
TEST_P(Kernels, ZeroGatesOver4096Tokens) {
  HostCase c(problem_of({4096}, 1, 1, false), {.gates = Gates::zero});
  expect_right(c, "zero gates", false);
}

// pegainfer 691: tails with 48 heads.
TEST_P(Kernels, TailsWith48Heads) {
  for (const int tokens : {1, 2, 63, 64, 65, 127, 128}) {
    HostCase c(problem_of({tokens}, 16, 48, true), {.seed = 4});
    expect_right(c, std::to_string(tokens) + " tokens, 48 heads");
  }
}

TEST_P(Kernels, HeadGroupsOfTheModels) {
  for (const auto& [query, value] : {std::pair{2, 4}, {2, 6}, {2, 8}, {2, 2}, {4, 12}}) {
    HostCase c(problem_of({130}, query, value, false), {});
    expect_right(c, std::to_string(query) + "/" + std::to_string(value));
  }
}

// FlashInfer 3536 and 4311: empty sequences among others; block ends of short tails.
TEST_P(Kernels, RaggedAndEmptySequences) {
  for (const auto& lengths :
       {std::initializer_list<int>{0, 64, 0, 7}, {64, 111, 192}, {1, 1, 1, 0}}) {
    HostCase c(problem_of(lengths, 1, 2, true), {.gates = Gates::strong});
    expect_right(c, "ragged", false);
    HostCase without(problem_of(lengths, 1, 2, false), {});
    expect_right(without, "ragged, no initial state");
  }
}

// tokenspeed 520: several sequences in one call are each what they are alone, bit for bit, whatever
// stands in their neighbours.
TEST_P(Kernels, ASequenceDoesNotSeeItsNeighbours) {
  const Recipe recipe{.seed = 9};
  HostCase packed(problem_of({65, 65, 65}, 1, 2, true), recipe);
  const HostCase clean = packed;
  const auto spoil = [&](int sequence) {  // NaN into every input of one sequence
    const int first = packed.problem.offsets[sequence];
    for (int i = first * 128; i < (first + 65) * 128; ++i) packed.q[i] = packed.k[i] = {0xFFFF};
    for (int i = first * 256; i < (first + 65) * 256; ++i) packed.v[i] = {0xFFFF};
    for (int i = first * 2; i < (first + 65) * 2; ++i) packed.raw_g[i] = packed.beta[i] = NAN;
  };
  spoil(0);
  spoil(2);
  run(packed);
  HostCase whole = clean;
  run(whole);
  for (int i = 65 * 256; i < 130 * 256; ++i)
    ASSERT_EQ(packed.output[i].bits, whole.output[i].bits) << "element " << i;
  for (int i = 2 * 128 * 128; i < 4 * 128 * 128; ++i)
    ASSERT_EQ(packed.final_state[i], whole.final_state[i]);
}

// FlashInfer 3698: S0 = 0 given is S0 not given, bit for bit.
TEST_P(Kernels, AZeroInitialStateIsNone) {
  HostCase without(problem_of({100, 30}, 1, 2, false), {});
  HostCase with(problem_of({100, 30}, 1, 2, true), {});
  std::fill(with.initial_state.begin(), with.initial_state.end(), 0.0F);
  run(without);
  run(with);
  for (int i = 0; i < 130 * 256; ++i) ASSERT_EQ(with.output[i].bits, without.output[i].bits);
  for (int i = 0; i < 4 * 128 * 128; ++i) ASSERT_EQ(with.final_state[i], without.final_state[i]);
}

// pegainfer 691, sparkinfer 1071, transformers 46190: one sequence in parts, the state handed over,
// against the oracle of the whole.
TEST_P(Kernels, AStateHandedOverGoesOnAsIfNothingHappened) {
  const auto expect_split_is_right = [&](int tokens, std::vector<int> ends) {
    HostCase whole(problem_of({tokens}, 1, 2, true), {.seed = 21});
    std::vector<float> state(whole.initial_state);
    int first = 0;
    ends.push_back(tokens);
    for (const int end : ends) {
      const int n = end - first;
      HostCase part(problem_of({n}, 1, 2, true), {});
      std::copy_n(whole.q.begin() + first * 128, n * 128, part.q.begin());
      std::copy_n(whole.k.begin() + first * 128, n * 128, part.k.begin());
      std::copy_n(whole.v.begin() + first * 256, n * 256, part.v.begin());
      std::copy_n(whole.raw_g.begin() + first * 2, n * 2, part.raw_g.begin());
      std::copy_n(whole.beta.begin() + first * 2, n * 2, part.beta.begin());
      std::copy(state.begin(), state.end(), part.initial_state.begin());
      run(part);
      std::copy_n(part.output.begin(), n * 256, whole.output.begin() + first * 256);
      state = part.final_state;
      first = end;
    }
    whole.final_state = state;
    EXPECT_EQ(whole.finding().reason, "") << id() << ", parts " << ends.size();
  };
  expect_split_is_right(128, {127});
  for (const int cut : {1, 63, 64, 65, 100, 150}) expect_split_is_right(160, {cut});
  std::vector<int> steps;  // a prefill, then 64 single tokens
  for (int t = 100; t < 164; ++t) steps.push_back(t);
  expect_split_is_right(164, steps);
}

TEST_P(Kernels, RandomShapes) {
  std::mt19937 random(2412);
  const auto up_to = [&](int n) { return static_cast<int>(random() % n); };
  const int shapes = on_gpu() ? 300 : 40;
  for (int i = 0; i < shapes; ++i) {
    std::vector<int> lengths;
    for (int s = 0; s <= up_to(5); ++s) lengths.push_back(up_to(4) == 0 ? up_to(3) : up_to(330));
    lengths.push_back(1 + up_to(70));
    const int query_heads = 1 + up_to(3);
    const int value_heads = query_heads * (1 + up_to(4));
    const Recipe recipe{
        .gates = static_cast<Gates>(up_to(7)), .beta_max = 1 + up_to(2), .seed = random()};
    HostCase c(problem_of(lengths, query_heads, value_heads, up_to(2) == 0), recipe);
    expect_right(c, "shape " + std::to_string(i) + ", " + std::string(name_of(recipe.gates)),
                 false);
  }
}

// Long enough for kernels that cut a sequence to do so, under gates that let them begin near and
// far from the cut.
TEST_P(Kernels, LongSequencesOfEveryGateProfile) {
  for (const Gates gates : {Gates::random_decay, Gates::mixed, Gates::zero, Gates::model,
                            Gates::strong, Gates::reset, Gates::infinite}) {
    HostCase c(problem_of({2100, 0, 700}, 1, 2, true), {.gates = gates, .seed = 3});
    expect_right(c, "long, " + std::string(name_of(gates)), false);
  }
}

// Gates that forget in some places only, from once a chunk to once in 48.
TEST_P(Kernels, SequencesThatForgetNowAndThen) {
  for (const int period : {1, 2, 5, 16, 33, 48}) {
    HostCase c(problem_of({64 * 100 + 17}, 1, 1, true), {.gates = Gates::zero, .seed = 8});
    for (int chunk = 0; chunk < 100; chunk += period) c.raw_g[64 * chunk + 31] = -13;
    expect_right(c, "forgets every " + std::to_string(period) + " chunks", false);
  }
}

TEST_P(Kernels, AThousandSequences) {
  std::vector<int> lengths(1024);
  for (int i = 0; i < 1024; ++i) lengths[i] = i * 37 % 100 - 8 < 0 ? 0 : i * 37 % 100 - 8;
  lengths[500] = 1000;
  HostCase c(problem_of(lengths, 1, 1, true), {.seed = 5});
  expect_right(c, "a thousand sequences", false);
}

// A gate of -inf forgets everything: what came before must not matter at all.
TEST_P(Kernels, AResetForgetsEverything) {
  HostCase a(problem_of({100}, 1, 1, true), {});
  a.raw_g[70] = -INFINITY;
  HostCase b = a;
  for (int i = 0; i < 70 * 128; ++i) b.v[i] = to_bfloat16(to_float(b.v[i]) + 1);
  run(a);
  run(b);
  for (int i = 70 * 128; i < 100 * 128; ++i)
    ASSERT_NEAR(to_float(a.output[i]), to_float(b.output[i]), 1e-6) << i;
}

TEST_P(Kernels, LargeValuesAndStates) {
  HostCase c(problem_of({130}, 1, 2, true), {});
  for (float& x : c.initial_state) x *= 100;
  for (BFloat16& x : c.v) x = to_bfloat16(1000 * to_float(x));
  expect_right(c, "states of scale 100, values of scale 1000");
}

TEST_P(Kernels, TwoRunsAgreeBitForBit) {
  HostCase c(problem_of({200, 65}, 2, 4, true), {});
  HostCase again = c;
  run(c);
  run(again);
  for (int i = 0; i < 265 * 4 * 128; ++i) ASSERT_EQ(c.output[i].bits, again.output[i].bits);
}

TEST_P(Kernels, NothingIsWrittenPastTheEnds) {
  HostCase c(problem_of({65}, 1, 2, false), {});
  run(c);
  for (std::size_t i = c.output.size() - HostCase::padding; i < c.output.size(); ++i)
    ASSERT_EQ(c.output[i].bits, 0xFFFF);
  for (std::size_t i = c.A.size() - HostCase::padding; i < c.A.size(); ++i)
    ASSERT_EQ(c.A[i].bits, 0xFFFF);
  for (std::size_t i = c.final_state.size() - HostCase::padding; i < c.final_state.size(); ++i)
    ASSERT_TRUE(std::isnan(c.final_state[i]));
}

// Preparation against closed forms in fp64: the prefix sum, and A as an inverse.
class Preparation : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    if (GetParam() == Target::cuda && !test::has_gpu())
      GTEST_SKIP() << "there is no CUDA device here";
  }
  static void run(HostCase& c) {
    for (const Variant& variant : ladder())
      if (variant.target == GetParam()) return c.run_forward(variant.instances.front(), GetParam());
  }
  static void expect_inverse(HostCase& c, const char* what);
};

std::vector<Target> targets() {
  std::vector<Target> all;
  for (const Variant& variant : ladder())
    if (std::ranges::find(all, variant.target) == all.end()) all.push_back(variant.target);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Of, Preparation, testing::ValuesIn(targets()), [](const auto& info) {
  return info.param == Target::cuda ? "Cuda" : "Cpu";
});

TEST_P(Preparation, PrefixSumRestartsAtEachChunkAndClamps) {
  HostCase c(problem_of({70, 3}, 1, 1, false), {.gates = Gates::strong});
  c.raw_g[5] = -INFINITY;
  run(c);
  for (const Chunk& chunk : c.chunks) {
    double sum = 0;
    for (int r = 0; r < chunk.length; ++r) {
      sum += std::max(double{c.raw_g[chunk.token + r]}, -128.0);
      EXPECT_NEAR(c.g[chunk.token + r], sum, 1e-4);
    }
  }
}

void Preparation::expect_inverse(HostCase& c, const char* what) {
  run(c);
  const int heads = c.problem.value_heads;
  for (const Chunk& chunk : c.chunks)
    for (int head = 0; head < heads; ++head) {
      Eigen::MatrixXd T = Eigen::MatrixXd::Identity(chunk.length, chunk.length);
      for (int i = 0; i < chunk.length; ++i)
        for (int j = 0; j < i; ++j) {
          double product = 0;
          for (int d = 0; d < 128; ++d)
            product += double{to_float(c.k[(chunk.token + i) * 128 + d])} *
                       to_float(c.k[(chunk.token + j) * 128 + d]);
          double decay = 0;
          for (int m = j + 1; m <= i; ++m) decay += c.raw_g[(chunk.token + m) * heads + head];
          T(i, j) = c.beta[(chunk.token + i) * heads + head] * std::exp(decay) * product;
        }
      const Eigen::MatrixXd exact = T.inverse();
      double error = 0;
      for (int i = 0; i < chunk.length; ++i)
        for (int j = 0; j < 64; ++j) {
          const double got = to_float(c.A[(std::int64_t{chunk.token + i} * heads + head) * 64 + j]);
          if (j > i)
            EXPECT_EQ(got, 0) << what << " row " << i << " column " << j;
          else
            error += std::pow(got - exact(i, j), 2);
        }
      EXPECT_LE(std::sqrt(error) / exact.norm(), 3e-3) << what;
    }
}

TEST_P(Preparation, AIsTheInverse) {
  HostCase ordinary(problem_of({64, 17, 100}, 1, 2, false), {});
  expect_inverse(ordinary, "ordinary");
  HostCase strong(problem_of({64}, 1, 1, false), {.gates = Gates::strong});
  expect_inverse(strong, "strong gates");
  // The worst conditioned: all keys equal, nothing forgotten, beta near 2.
  HostCase equal(problem_of({64}, 1, 1, false), {.gates = Gates::zero, .beta_max = 2});
  for (int i = 128; i < 64 * 128; ++i) equal.k[i] = equal.k[i % 128];
  for (int t = 0; t < 64; ++t) equal.beta[t] = 1.99F;
  expect_inverse(equal, "equal keys");
}

}  // namespace
}  // namespace gdn
