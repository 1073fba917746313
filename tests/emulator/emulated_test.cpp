// The CUDA kernels on the emulator, against the fp64 recurrence.
#include <gtest/gtest.h>

#include "kernels/cpu/cpu.hpp"
#include "kernels/cuda/rungs.hpp"
#include "tests/emulator/emulator.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;

struct Rung {
  std::string id;
  Instance instance;
};

void PrintTo(const Rung& rung, std::ostream* out) { *out << rung.id; }

std::vector<Rung> rungs() {
  std::vector<Rung> all;
  for (const Variant& variant : {gpu::register_state(), gpu::segmented()})
    for (const Instance& instance : variant.instances)
      if (instance.obstacle.empty()) all.push_back({variant_id(variant, instance), instance});
  return all;
}

std::string test_name(const testing::TestParamInfo<Rung>& info) {
  std::string name;
  for (const char c : info.param.id)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

class Kernels : public testing::TestWithParam<Rung> {
 protected:
  void expect_right(HostCase& c, const std::string& what, bool ordinary = true) const {
    c.run_on_cpu(cpu::preparation());
    c.run_on_cpu(GetParam().instance);
    const Finding finding = c.finding();
    EXPECT_EQ(finding.reason, "") << what;
    if (!ordinary) return;
    EXPECT_LE(finding.error.output_rms, 6e-3) << what;
    EXPECT_LE(finding.error.state_rms, 6e-3) << what;
  }
};

INSTANTIATE_TEST_SUITE_P(Ladder, Kernels, testing::ValuesIn(rungs()), test_name);

TEST_P(Kernels, Ragged) {
  for (int seed = 0; seed < 4; ++seed) {
    emulator::set_seed(seed);
    HostCase c(problem_of({1, 63, 64, 0, 65, 130, 200}, 1, 2, seed % 2 == 0), {});
    expect_right(c, "seed " + std::to_string(seed));
  }
}

}  // namespace
}  // namespace gdn
