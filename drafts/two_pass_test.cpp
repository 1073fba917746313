// The draft of rung 10 on the emulator, against the fp64 recurrence.
#include <gtest/gtest.h>

#include <cmath>

#include "drafts/drafts.hpp"
#include "drafts/two_pass_plan.hpp"
#include "kernels/cpu/cpu.hpp"
#include "kernels/cuda/rungs.hpp"
#include "tests/emulator/emulator.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;

struct Case {
  std::string id;
  Instance instance;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.id; }

std::vector<Case> all() {
  std::vector<Case> cases;
  const Variant variant = gpu::two_pass();
  for (const Instance& instance : variant.instances)
    cases.push_back({variant_id(variant, instance), instance});
  return cases;
}

std::string test_name(const testing::TestParamInfo<Case>& info) {
  std::string name;
  for (const char c : info.param.id)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

void run(HostCase& c, const Instance& instance, int seed) {
  emulator::set_seed(seed);
  c.run_on_cpu(cpu::preparation());
  c.run_on_cpu(instance);
}

void expect_right(HostCase& c, const std::string& what, double limit) {
  const Finding finding = c.finding();
  EXPECT_EQ(finding.reason, "") << what;
  EXPECT_LE(finding.error.output_rms, limit) << what;
  EXPECT_LE(finding.error.state_rms, limit) << what;
  printf("%s: output %.2e state %.2e\n", what.c_str(), finding.error.output_rms,
         finding.error.state_rms);
}

class EmulatedTwoPass : public testing::TestWithParam<Case> {
 protected:
  static void run(HostCase& c, int seed) { gdn::run(c, GetParam().instance, seed); }
};
INSTANTIATE_TEST_SUITE_P(Drafts, EmulatedTwoPass, testing::ValuesIn(all()), test_name);

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

TEST_P(EmulatedTwoPass, LongSequencesAreRight) {
  for (const Gates gates : {Gates::random_decay, Gates::zero, Gates::strong}) {
    HostCase c(problem_of({24 * 64, 17 * 64 + 1}, 1, 1, gates == Gates::strong), {.gates = gates});
    run(c, 2);
    expect_right(c, std::string(name_of(gates)), 4e-3);
  }
}

// Heads that forget at once, soon, late and never: of each boundary something else is needed.
TEST_P(EmulatedTwoPass, HeadsOfDifferentGatesAreRight) {
  HostCase c(problem_of({20 * 64 + 3, 11 * 64}, 1, 4, true), {});
  const float factor[] = {20, 1, 0.1F, 0};
  for (int i = 0; i < c.problem.tokens() * 4; ++i) {
    c.raw_g[i] *= factor[i % 4];
    // A long memory between two that forget, and the reverse.
    if (i % 4 == 3 && i / 4 > 8 * 64 && i / 4 < 10 * 64) c.raw_g[i] = -1;
    if (i % 4 == 1 && i / 4 > 6 * 64 && i / 4 < 15 * 64) c.raw_g[i] = 0;
  }
  run(c, 3);
  expect_right(c, "mixed heads", 4e-3);
}

TEST_P(EmulatedTwoPass, AnyOrderGivesTheSameBits) {
  HostCase c(problem_of({8 * 64 + 5}, 1, 1, true), {.gates = Gates::zero});
  run(c, 0);
  expect_right(c, "seed 0", 4e-3);
  const HostCase first = c;
  for (int seed = 1; seed < 30; ++seed) {
    c.output.assign(c.output.size(), {0xFFFF});
    c.final_state.assign(c.final_state.size(), NAN);
    run(c, seed);
    for (std::size_t i = 0; i < c.output.size(); ++i)
      ASSERT_EQ(c.output[i].bits, first.output[i].bits) << "seed " << seed << ", element " << i;
    for (std::size_t i = 0; i + HostCase::padding < c.final_state.size(); ++i)
      ASSERT_EQ(c.final_state[i], first.final_state[i]) << "seed " << seed << ", element " << i;
  }
}

}  // namespace
}  // namespace gdn
