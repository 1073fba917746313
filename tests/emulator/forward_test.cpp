// Rung 11, the whole forward, on the emulator, against the fp64 recurrence. It is given neither g
// nor A.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cuda/rungs.hpp"
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

class EmulatedForward : public testing::TestWithParam<Rung> {
 protected:
  static void run(HostCase& c, int seed) {
    emulator::set_seed(seed);
    c.run_on_cpu(GetParam().instance);
  }
};
INSTANTIATE_TEST_SUITE_P(Rung, EmulatedForward, testing::ValuesIn(rungs_of({gpu::forward})),
                         rung_name);

TEST_P(EmulatedForward, RaggedSequencesAreRight) {
  for (int seed = 0; seed < 4; ++seed) {
    HostCase c(problem_of({1, 63, 64, 0, 65, 130, 200}, 1, 2, seed % 2 == 0), {.seed = 7});
    run(c, seed);
    expect_right(c, "seed " + std::to_string(seed), 4e-3);
  }
}

TEST_P(EmulatedForward, EveryGateProfileIsRight) {
  for (const Gates gates : {Gates::random_decay, Gates::mixed, Gates::zero, Gates::model,
                            Gates::strong, Gates::reset, Gates::infinite}) {
    HostCase c(problem_of({130, 65}, 2, 4, true), {.gates = gates, .beta_max = 2});
    run(c, 1);
    expect_right(c, std::string(name_of(gates)), 1e-2);
  }
}

TEST_P(EmulatedForward, GatesOfAnyPaceAreRight) {
  HostCase c = test::gates_of_any_pace();
  run(c, 6);
  expect_right(c, "gates of any pace", 1e-2);
}

TEST_P(EmulatedForward, WhatIsForgottenBehindTheLastWriteIsRight) {
  test::expect_forgotten_writes_are_right([](HostCase& c) { run(c, 7); });
}

TEST_P(EmulatedForward, LongSequencesAreRight) {
  for (const Gates gates : {Gates::random_decay, Gates::zero, Gates::strong}) {
    HostCase c(problem_of({12 * 64, 9 * 64 + 1}, 1, 1, gates == Gates::strong), {.gates = gates});
    run(c, 2);
    expect_right(c, std::string(name_of(gates)), 1e-2);
  }
}

TEST_P(EmulatedForward, AnyOrderGivesTheSameBits) {
  HostCase c(problem_of({4 * 64 + 5}, 1, 1, true), {});
  run(c, 0);
  expect_right(c, "seed 0", 4e-3);
  test::expect_same_in_any_order(c, 12, [&](int seed) { run(c, seed); });
}

// Make finds out which chunks are ill-conditioned, and makes their low halves.
TEST_P(EmulatedForward, EqualKeysAreRight) {
  test::expect_equal_keys_are_right([](HostCase& c, int seed) { run(c, seed); });
}

TEST_P(EmulatedForward, EqualKeysInAnyOrderGiveTheSameBits) {
  HostCase c = test::equal_keys({0.9F, 1}, 0.002F);
  run(c, 0);
  test::expect_same_in_any_order(c, 12, [&](int seed) { run(c, seed); });
}

}  // namespace
}  // namespace gdn
