// Rung 10 on the emulator, against the fp64 recurrence.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cuda/makespan.hpp"
#include "kernels/cuda/rungs.hpp"
#include "kernels/cuda/two_pass_plan.hpp"
#include "tests/emulator/emulator.hpp"
#include "tests/emulator/rung.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::expect_right;
using test::HostCase;
using test::problem_of;
using test::Rung;
using test::rung_name;
using test::rungs_of;

void run(HostCase& c, const Instance& instance, int seed) {
  emulator::set_seed(seed);
  c.run_on_cpu(cpu::preparation());
  c.run_on_cpu(instance);
}

class EmulatedTwoPass : public testing::TestWithParam<Rung> {
 protected:
  static void run(HostCase& c, int seed) { gdn::run(c, GetParam().instance, seed); }
};
INSTANTIATE_TEST_SUITE_P(Rung, EmulatedTwoPass, testing::ValuesIn(rungs_of({gpu::two_pass})),
                         rung_name);

TEST_P(EmulatedTwoPass, RaggedSequencesAreRight) {
  for (int seed = 0; seed < 4; ++seed) {
    HostCase c(problem_of({1, 63, 64, 0, 65, 130, 200, 448}, 1, 2, seed % 2 == 0), {.seed = 7});
    run(c, seed);
    expect_right(c, "seed " + std::to_string(seed), 4e-3);
  }
}

TEST_P(EmulatedTwoPass, EveryGateProfileIsRight) {
  for (const Gates gates : {Gates::random_decay, Gates::mixed, Gates::zero, Gates::model,
                            Gates::strong, Gates::reset, Gates::infinite}) {
    HostCase c(problem_of({9 * 64 + 2, 65, 4 * 64}, 2, 4, true), {.gates = gates, .beta_max = 2});
    run(c, 1);
    expect_right(c, std::string(name_of(gates)), 1e-2);
  }
}

TEST_P(EmulatedTwoPass, GatesOfAnyPaceAreRight) {
  HostCase c = test::gates_of_any_pace();
  run(c, 6);
  expect_right(c, "gates of any pace", 1e-2);
}

TEST_P(EmulatedTwoPass, WhatIsForgottenBehindTheLastWriteIsRight) {
  test::expect_forgotten_writes_are_right([](HostCase& c) { run(c, 7); });
}

TEST_P(EmulatedTwoPass, LongSequencesAreRight) {
  for (const Gates gates : {Gates::random_decay, Gates::zero, Gates::strong}) {
    HostCase c(problem_of({24 * 64, 17 * 64 + 1}, 1, 1, gates == Gates::strong), {.gates = gates});
    run(c, 2);
    expect_right(c, std::string(name_of(gates)), 4e-3);
  }
}

// Heads that forget at once, soon, late and never but for one place: of each boundary something
// else is needed, and with eight segments of six chunks also M and N behind one that needs neither.
TEST_P(EmulatedTwoPass, HeadsOfDifferentGatesAreRight) {
  HostCase c(problem_of({48 * 64 + 3, 11 * 64}, 1, 4, true), {});
  const float factor[] = {20, 1, 0.1F, 0};
  for (int i = 0; i < c.problem.tokens() * 4; ++i) {
    const int chunk = i / 4 / 64, head = i % 4;
    c.raw_g[i] = head == 3 && (chunk == 20 || chunk == 21) ? -1 : factor[head] * c.raw_g[i];
  }
  run(c, 3);
  expect_right(c, "heads of different gates", 4e-3);
}

// Of auto 24 segments in groups of five, and up to four steps in outputs, of which the last two
// wait for a place. With a chunk whose gates forget a state is known in the middle of a group.
TEST_P(EmulatedTwoPass, ManyGroupsAreRight) {
  for (const int forgets : {-1, 17}) {
    HostCase c(problem_of({48 * 64}, 1, 1, true), {.gates = Gates::zero});
    if (forgets >= 0) c.raw_g[64 * forgets] = -20;
    run(c, 6);
    expect_right(c, "forgets in chunk " + std::to_string(forgets), 4e-3);
  }
}

// fp16 alone would not do between the launches.
TEST_P(EmulatedTwoPass, StatesOfAnySizeAreRight) {
  for (const float size : {1e-12F, 1e4F, 1e12F}) {
    HostCase c(problem_of({8 * 64}, 1, 1, true), {.gates = Gates::zero});
    for (BFloat16& x : c.v) x = to_bfloat16(size * to_float(x));
    for (float& x : c.initial_state) x *= 100 * size;
    run(c, 4);
    expect_right(c, "size " + std::to_string(size), 4e-3);
  }
}

// Keys so long that β‖k‖² is above 2 for many tokens, and S and M grow from chunk to chunk.
TEST_P(EmulatedTwoPass, LongKeysAreRight) {
  HostCase c(problem_of({4 * 64 + 7, 3 * 64}, 1, 2, true), {.gates = Gates::zero, .beta_max = 2});
  for (BFloat16& x : c.k) x = to_bfloat16(1.5F * to_float(x));
  run(c, 5);
  expect_right(c, "long keys", 1e-2);
}

// In transitions and outputs.
TEST_P(EmulatedTwoPass, EqualKeysAreRight) {
  for (const test::Betas betas : {test::Betas{0.9F, 1}, {1.4F, 1.5F}, {1.9F, 2}}) {
    HostCase c = test::equal_keys(betas, 0.002F);
    run(c, 6);
    expect_right(c, test::text_of(betas, 0.002F), 5e-3);
  }
}

TEST_P(EmulatedTwoPass, AnyOrderGivesTheSameBits) {
  HostCase c(problem_of({8 * 64 + 5}, 1, 1, true), {.gates = Gates::zero});
  run(c, 0);
  expect_right(c, "seed 0", 4e-3);
  test::expect_same_in_any_order(c, 8, [&](int seed) { run(c, seed); });
}

// ---- the plan

// As if each CTA by itself went to the processor that is free first.
TEST(Makespan, OfEqualCtasAtOnceIsThatOfOneAfterTheOther) {
  std::mt19937 random(1);
  for (const int count : {1, 2, 7, 132}) {
    Processors processors(count);
    std::vector<std::int64_t> free_at(count);
    for (int i = 0; i < 200; ++i) {
      const int ctas = static_cast<int>(random() % 400), time = static_cast<int>(random() % 1000);
      processors.add(ctas, time);
      for (int cta = 0; cta < ctas; ++cta) *std::ranges::min_element(free_at) += time;
      ASSERT_EQ(processors.all_free(), std::ranges::max(free_at)) << ctas << " more on " << count;
    }
  }
}

TEST(TwoPassPlan, CutsEverySequenceIntoEqualParts) {
  const Problem problem = problem_of({200 * 64, 0, 1, 7 * 64}, 1, 1, false);
  const Plan eight = plan(problem, 8, 132, 2);
  ASSERT_EQ(eight.outputs.size(), 8 + 1 + 1 + 7);
  ASSERT_EQ(eight.transitions.size(), 7 + 6);
  EXPECT_EQ(eight.longest(), 25);
  EXPECT_EQ(eight.boundaries, 7 + 6);
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(eight.outputs[7 - i].first, 25 * i);
    EXPECT_EQ(eight.outputs[7 - i].end, 25 * (i + 1));
    EXPECT_EQ(eight.outputs[7 - i].boundary, i);
  }
  EXPECT_EQ(eight.transitions.back().boundary, 7);
  EXPECT_EQ(eight.outputs.back().end, 0);  // the empty one
}

// chain_equal on 132 multiprocessors: by hand, with 16 segments of 8 chunks 4 · (1 + 2 · 14) = 116
// CTAs make transitions and 128 outputs, in one wave each; with 17 these would be two. The 15
// boundaries are groups of 4, 4, 4 and 3, of which the first one needs no M: 3 steps within each,
// and 3 from there to the last segment.
TEST(TwoPassPlan, OfAutoIsOneWaveWhereThatTakesLeast) {
  const Plan chain = plan_for(problem_of({8192}, 4, 4, false), 132, 2);
  EXPECT_EQ(chain.outputs.size(), 16);
  EXPECT_EQ(chain.steps(), 6);
  ASSERT_EQ(chain.scans.size(), 7);
  EXPECT_FALSE(chain.scans[0].of_M);
  for (int i = 0; i < 7; ++i) {
    const Boundaries& group = chain.scans[i];
    EXPECT_EQ(group.first, (i + 1) / 2 * 4);
    EXPECT_EQ(group.count, group.first == 12 ? 3 : 4);
    EXPECT_EQ(group.of_M, i > 0 && i % 2 == 0);
  }
  EXPECT_EQ(chain.outputs.front().groups_before(), 3);
  EXPECT_EQ(chain.outputs.back().groups_before(), 0);
}

// 64 heads: a second group, of 64 · 4 CTAs more, would not go side by side with the first one.
TEST(TwoPassPlan, AScanOfManyHeadsIsOneGroup) {
  const Plan wide = plan(problem_of({8192}, 16, 64, false), 8, 132, 2);
  EXPECT_EQ(wide.steps(), 6);
  EXPECT_EQ(wide.scans.size(), 1);
}

// Of two segments the first one ends with S.
TEST(TwoPassPlan, OneBoundaryNeedsNoScan) {
  const Plan two = plan(problem_of({8192}, 4, 4, false), 2, 132, 2);
  EXPECT_EQ(two.boundaries, 1);
  EXPECT_TRUE(two.scans.empty());
}

// So many heads that all processors are busy anyway.
TEST(TwoPassPlan, OfAutoCutsNothingInVain) {
  EXPECT_EQ(plan_for(problem_of({8192}, 16, 64, false), 132, 2).boundaries, 0);
}

// The same, and minutes if each cut were gone through CTA by CTA: of up to 65,536 segments with 64
// or 128 of them in outputs alone.
TEST(TwoPassPlan, OfAutoIsFoundForManyLongSequencesOfManyHeads) {
  const Problem problem = problem_of(std::vector<int>(512, 8192), 16, 64, false);
  for (const int processors : {66, 132, 264}) {
    for (const int slices : {1, 2}) {
      const Plan whole = plan_for(problem, processors, slices);
      EXPECT_EQ(whole.outputs.size(), 512);
      EXPECT_EQ(whole.boundaries, 0);
    }
  }
}

}  // namespace
}  // namespace gdn
