// What a fingerprint is held against another for.
#include "src/fingerprint.hpp"

#include <gtest/gtest.h>

namespace gdn {
namespace {

using nlohmann::json;
using Words = std::vector<std::string>;

const json gpu = {
    {"device", {{"name", "Example GPU"}, {"processors", 132}, {"ecc", true}}},
    {"uuid", "GPU-1"},
    {"mig", false},
    {"power_limit_w", 700.0},
    {"max_sm_clock_mhz", 1980},
};

Words differences(const json& other) {
  return differing(facts_of_twins, gpu, "of device 0", other, "of device 1");
}

TEST(Twins, AreTwoDevicesThatDifferInIdentityAlone) {
  json other = gpu;
  other["uuid"] = "GPU-2";
  EXPECT_EQ(differences(other), Words{});
}

TEST(Twins, AreNoneWhereOneIsSetOtherwise) {
  json other = gpu;
  other["power_limit_w"] = 500.0;
  other["mig"] = true;
  other["device"]["ecc"] = false;
  other.erase("max_sm_clock_mhz");
  EXPECT_EQ(differences(other),
            (Words{"the ECC mode differs: true of device 0, false of device 1",
                   "the MIG mode differs: false of device 0, true of device 1",
                   "the power limit differs: 700.0 of device 0, 500.0 of device 1",
                   "the largest SM clock differs: 1980 of device 0, (not given) of device 1"}));
}

}  // namespace
}  // namespace gdn
