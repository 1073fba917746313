// The CUDA kernels on the emulator (kernels/README.md), in many orders, against the fp64 recurrence
// and against each other.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cuda/rungs.hpp"
#include "kernels/prepare/preparation.hpp"
#include "tests/emulator/emulator.hpp"
#include "tests/emulator/rung.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;
using test::Rung;
using test::rung_name;
using test::rungs_of;

// Cuts into more segments are other numbers for the same kernel: rung 9's are those of 2 and 4.
bool is_tried(const Instance& instance) {
  return std::ranges::none_of(instance.knobs, [](const Knob& knob) {
    return knob == Knob{"segments", "8"} || knob == Knob{"segments", "16"};
  });
}

class OnEmulator : public testing::TestWithParam<Rung> {
 protected:
  static void run(HostCase& c, int seed) {
    emulator::set_seed(seed);
    GetParam().run(c, cpu::preparation());
  }
  // Within the health gate; `ordinary` inputs within what a sound bf16 kernel reaches.
  static void expect_right(HostCase& c, const std::string& what, bool ordinary = true) {
    const Finding finding = c.finding();
    EXPECT_EQ(finding.reason, "") << what;
    if (!ordinary) return;
    EXPECT_LE(finding.error.output_rms, 4e-3) << what;
    EXPECT_LE(finding.error.state_rms, 4e-3) << what;
  }
  static void expect_ragged_is_right(int seeds) {
    for (int seed = 0; seed < seeds; ++seed) {
      HostCase c(problem_of({1, 63, 64, 0, 65, 130, 200}, 1, 2, seed % 2 == 0), {.seed = 7});
      run(c, seed);
      expect_right(c, "seed " + std::to_string(seed));
    }
  }
  // Whatever the order of its events, a kernel's result has the same bits.
  static void expect_same_in_any_order(int seeds) {
    HostCase c(problem_of({4 * 64 + 5}, 1, 1, true), {});
    run(c, 0);
    expect_right(c, "seed 0");
    test::expect_same_in_any_order(c, seeds, [&](int seed) { run(c, seed); });
  }
};

// Rungs 8 and 9, thoroughly.
class EmulatedChain : public OnEmulator {};
INSTANTIATE_TEST_SUITE_P(Ladder, EmulatedChain,
                         testing::ValuesIn(rungs_of({gpu::register_state, gpu::segmented},
                                                    is_tried)),
                         rung_name);

TEST_P(EmulatedChain, RaggedSequencesAreRight) { expect_ragged_is_right(4); }
TEST_P(EmulatedChain, AnyOrderGivesTheSameBits) { expect_same_in_any_order(40); }

TEST_P(EmulatedChain, EveryLengthUpToTwoChunksAndABitIsRight) {
  std::vector<int> lengths(130);
  std::iota(lengths.begin(), lengths.end(), 1);
  HostCase c(problem_of(lengths, 1, 1, true), {.seed = 3});
  run(c, 4);
  expect_right(c, "lengths 1 to 130");
}

TEST_P(EmulatedChain, EveryGateProfileIsRight) {
  for (const Gates gates : {Gates::random_decay, Gates::mixed, Gates::zero, Gates::model,
                            Gates::strong, Gates::reset, Gates::infinite}) {
    HostCase c(problem_of({130, 65}, 2, 4, true), {.gates = gates, .beta_max = 2});
    run(c, 1);
    expect_right(c, std::string(name_of(gates)), false);
  }
}

// Where rung 9 has segments, and under gates that let them begin near and far.
TEST_P(EmulatedChain, LongSequencesAreRight) {
  for (const Gates gates : {Gates::random_decay, Gates::zero, Gates::strong}) {
    HostCase c(problem_of({12 * 64, 9 * 64 + 1}, 1, 1, gates == Gates::strong), {.gates = gates});
    run(c, 2);
    expect_right(c, std::string(name_of(gates)), false);
  }
}

TEST_P(EmulatedChain, GatesOfAnyPaceAreRight) {
  HostCase c = test::gates_of_any_pace();
  run(c, 6);
  expect_right(c, "gates of any pace");
}

TEST_P(EmulatedChain, GatesNearAPowerOf2AreRight) {
  HostCase c = test::gates_near_a_power_of_2();
  run(c, 8);
  expect_right(c, "gates of 2^-100");
}

TEST_P(EmulatedChain, WhatIsForgottenBehindTheLastWriteIsRight) {
  test::expect_forgotten_writes_are_right([](HostCase& c) { run(c, 7); });
}

// Keys that are all equal, and β up to 2: V̂ is large there, and cancels in the sums that make O and
// S. Which chunks are split in halves goes by β and by length. Not so in the X form.
class EmulatedSplit : public OnEmulator {
 protected:
  static void run(HostCase& c, int seed) {
    emulator::set_seed(seed);
    GetParam().run(c, portable_preparation());
  }
};
INSTANTIATE_TEST_SUITE_P(Ladder, EmulatedSplit,
                         testing::ValuesIn(rungs_of({gpu::register_state, gpu::segmented},
                                                    [](const Instance& instance) {
                                                      return is_tried(instance) &&
                                                             std::ranges::find(instance.knobs,
                                                                               Knob{"form", "x"}) ==
                                                                 instance.knobs.end();
                                                    })),
                         rung_name);

TEST_P(EmulatedSplit, EqualKeysAreRight) {
  test::expect_equal_keys_are_right([](HostCase& c, int seed) { run(c, seed); });
}

// Load finds out for 32 chunks at once: here it is those of the next 32.
TEST_P(EmulatedSplit, EqualKeysLateInASequenceAreRight) {
  HostCase c = test::equal_keys(problem_of({40 * 64}, 1, 1, false), {1.9F, 2}, 0,
                                [](int chunk) { return chunk >= 33; });
  run(c, 1);
  test::expect_right(c, "equal keys from chunk 33 on", 5e-3);
}

// Without low halves of A, of which nothing is known then, all goes in one.
TEST_P(EmulatedSplit, WithoutLowHalvesOfAOrdinaryKeysAreRight) {
  if (GetParam().folded) return;  // where they say which chunks are gentle
  HostCase c(problem_of({200, 64, 0, 1}, 1, 2, true), {});
  c.A_low.clear();
  run(c, 1);
  test::expect_right(c, "no low halves", 5e-3);
}

TEST_P(EmulatedSplit, AnyOrderGivesTheSameBits) {
  HostCase c = test::equal_keys({0.9F, 1}, 0.002F);
  run(c, 0);
  test::expect_same_in_any_order(c, 20, [&](int seed) { run(c, seed); });
}

// The rungs before.
class EmulatedRung : public OnEmulator {};
INSTANTIATE_TEST_SUITE_P(Ladder, EmulatedRung,
                         testing::ValuesIn(rungs_of({gpu::baseline, gpu::residual, gpu::fused,
                                                     gpu::wide, gpu::warp_specialized,
                                                     gpu::split_barrier})),
                         rung_name);

TEST_P(EmulatedRung, RaggedSequencesAreRight) { expect_ragged_is_right(1); }
TEST_P(EmulatedRung, AnyOrderGivesTheSameBits) { expect_same_in_any_order(6); }

}  // namespace
}  // namespace gdn
