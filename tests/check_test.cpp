// The checks themselves: each wrong result must be found, named and placed.
#include "src/check.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "kernels/cpu/cpu.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;

struct Checked {
  HostCase c;
  Checked() : c(problem_of({70, 0, 33}, 1, 2, true), {}) {
    c.run_forward(cpu::chunked().instances.front(), Target::cpu);
  }
};

TEST(Check, PassesWhatIsRight) {
  Checked right;
  const Finding finding = right.c.finding(Recipe{});
  EXPECT_EQ(finding.reason, "");
  EXPECT_TRUE(finding.error.lab_passed);
  EXPECT_GT(finding.error.output_rms, 5e-4);  // bf16 outputs are never exact
  EXPECT_LT(finding.error.output_rms, 4e-3);
}

TEST(Check, NamesTheWorstPlace) {
  Checked wrong;
  // Sequence 2, token 10 of it, head 1, dimension 17.
  wrong.c.output[((70 + 10) * 2 + 1) * 128 + 17] = to_bfloat16(50);
  const Finding finding = wrong.c.finding();
  EXPECT_NE(finding.reason, "");
  EXPECT_NE(finding.error.worst.find("output: sequence 2, head 1, token 10, dimension 17: 50 "),
            std::string::npos)
      << finding.error.worst;
  EXPECT_FALSE(finding.error.lab_passed);
}

TEST(Check, NamesTheWorstPlaceOfTheState) {
  Checked wrong;
  wrong.c.final_state[((2 * 2 + 1) * 128 + 3) * 128 + 100] += 40;
  const Finding finding = wrong.c.finding();
  EXPECT_NE(finding.error.worst.find("state: sequence 2, head 1, key 3, dimension 100"),
            std::string::npos)
      << finding.error.worst;
  EXPECT_NE(finding.reason, "");
}

TEST(Check, OneNaNIsEnough) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Checked wrong;
    wrong.c.output[5 * 2 * 128 + 9] = to_bfloat16(bad);
    const Finding finding = wrong.c.finding();
    EXPECT_NE(finding.reason.find("not a finite number"), std::string::npos) << finding.reason;
    EXPECT_NE(finding.reason.find("token 5, dimension 9"), std::string::npos) << finding.reason;
    EXPECT_TRUE(std::isnan(finding.error.output_rms));
  }
  Checked wrong;
  wrong.c.final_state[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(wrong.c.finding().reason, "");
}

// A kernel that forgot one head, or one short sequence, must not drown in the others.
TEST(Check, IsPerSequenceAndHead) {
  Checked wrong;
  for (int t = 70; t < 103; ++t)
    for (int d = 0; d < 128; ++d) {
      BFloat16& x = wrong.c.output[(t * 2 + 1) * 128 + d];
      x = to_bfloat16(1.02F * to_float(x));
    }
  const Finding finding = wrong.c.finding();
  EXPECT_NEAR(finding.error.output_rms, 0.02, 0.003);
  EXPECT_NE(finding.reason.find("sequence 2, head 1"), std::string::npos) << finding.reason;
}

// One token in thousands that is wholly wrong drowns in the head's rms, and must not pass.
TEST(Check, OneWrongTokenIsFound) {
  HostCase c(problem_of({20000}, 1, 1, false), {.gates = Gates::zero});
  c.run_forward(cpu::chunked().instances.front(), Target::cpu);
  EXPECT_EQ(c.finding().reason, "");
  for (int d = 0; d < 128; ++d) c.output[19999 * 128 + d] = BFloat16{0};
  const Finding finding = c.finding();
  EXPECT_LE(finding.error.output_rms, health_limit);
  EXPECT_NE(finding.reason.find("output of token 19999 off by"), std::string::npos)
      << finding.reason;
}

// beta = 0 and decay for so long that fp32 has nothing left of the state: 0 is right.
TEST(Check, AnUnderflowIsNoError) {
  HostCase c(problem_of({70}, 1, 1, true), {});
  for (int t = 0; t < 70; ++t) {
    c.beta[t] = 0;
    c.raw_g[t] = -3;
  }
  c.run_forward(cpu::chunked().instances.front(), Target::cpu);
  EXPECT_EQ(c.finding().reason, "");
}

TEST(Check, AZeroReferenceMustBeMatchedAbsolutely) {
  Problem problem = problem_of({2}, 1, 1, false);
  std::vector<BFloat16> output(256, BFloat16{0});
  std::vector<float> state(128 * 128, 0.0F);
  const std::vector<double> zeros(128 * 128, 0.0);
  const auto reason = [&] {
    return check(problem, std::nullopt, {output.data(), state.data()}, {zeros.data(), zeros.data()})
        .reason;
  };
  EXPECT_EQ(reason(), "");
  output[7] = to_bfloat16(0.9e-6F);
  EXPECT_EQ(reason(), "");
  output[7] = to_bfloat16(2e-6F);
  EXPECT_NE(reason(), "");
}

// The lab's tolerance decides on inputs such as the lab's, and is only reported on others.
TEST(Check, TheLabDecidesOnlyOnInputsLikeItsOwn) {
  Checked wrong;
  BFloat16& x = wrong.c.output[40 * 2 * 128];
  x = to_bfloat16(to_float(x) + 0.02F);
  EXPECT_NE(wrong.c.finding(Recipe{}).reason.find("lab"), std::string::npos);
  EXPECT_EQ(wrong.c.finding(Recipe{.gates = Gates::model}).reason, "");
  EXPECT_FALSE(wrong.c.finding(Recipe{.gates = Gates::model}).error.lab_passed);
  EXPECT_EQ(wrong.c.finding(Recipe{.beta_max = 2}).reason, "");
  EXPECT_EQ(wrong.c.finding(std::nullopt).reason, "");
}

TEST(Check, SaysWhenTheReferenceOverflows) {
  Problem problem = problem_of({1}, 1, 1, false);
  const std::vector<BFloat16> output(128, BFloat16{0});
  const std::vector<float> state(128 * 128, 0.0F);
  std::vector<double> truth(128 * 128, 0.0);
  truth[3] = std::numeric_limits<double>::infinity();
  const Finding finding =
      check(problem, std::nullopt, {output.data(), state.data()}, {truth.data(), truth.data()});
  EXPECT_NE(finding.reason.find("reference itself overflows"), std::string::npos);
}

}  // namespace
}  // namespace gdn
