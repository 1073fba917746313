#include "src/telemetry.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tests/fake_nvml.hpp"

namespace gdn {
namespace {

constexpr const char* bus_id = "0000:3B:00.0";

class FakeDriver : public ::testing::Test {
 protected:
  FakeDriver() {
    setenv("GDNBENCH_NVML", GDNBENCH_FAKE_NVML, 1);
    void* const library = dlopen(GDNBENCH_FAKE_NVML, RTLD_NOW);
    if (library != nullptr) fake = static_cast<test::FakeNvml*>(dlsym(library, "fake_nvml"));
  }
  ~FakeDriver() override {
    unsetenv("GDNBENCH_NVML");
    fake->init_result = 0;
    fake->sm_clock = 1980;
    fake->reasons = 0;
    fake->knows_power = true;
    EXPECT_EQ(fake->open, 0);  // every initialisation was shut down
  }
  test::FakeNvml* fake = nullptr;
};

TelemetrySample sample_of(double clock, std::uint64_t reasons) {
  return {.sm_clock_mhz = clock, .throttle_reasons = reasons};
}

TEST(Throttling, NamesOfReasons) {
  EXPECT_TRUE(throttle_names(0).empty());
  EXPECT_EQ(throttle_names(0x1 | 0x4), (std::vector<std::string>{"gpu_idle", "sw_power_cap"}));
  EXPECT_EQ(throttle_names(0x1FF).size(), 9u);
  EXPECT_EQ(throttle_names(0x400), std::vector<std::string>{"unknown_0x400"});
}

TEST(Throttling, SettingsAndIdlenessAreNone) {
  for (const std::uint64_t harmless : {0x0, 0x1, 0x2, 0x10, 0x100, 0x400})
    EXPECT_FALSE(is_throttling(harmless)) << harmless;
  for (const std::uint64_t real : {0x4, 0x8, 0x20, 0x40, 0x80})
    EXPECT_TRUE(is_throttling(real | 0x3)) << real;
}

TEST(Telemetry, SummaryLeavesIdleSamplesOut) {
  const std::vector<TelemetrySample> samples = {sample_of(345, 0x1), sample_of(1755, 0x4),
                                                sample_of(1980, 0), sample_of(1200, 0x1)};
  const TelemetrySummary summary = summarize(samples);
  EXPECT_EQ(summary.json["sm_clock_mhz"], (nlohmann::json{{"min", 1755.0}, {"max", 1980.0}}));
  EXPECT_EQ(summary.json["throttle"], nlohmann::json{"sw_power_cap"});
  EXPECT_EQ(summary.json["samples"], 2);
  EXPECT_FALSE(summary.json.contains("power_w"));
  EXPECT_TRUE(summary.throttled);
}

TEST(Telemetry, SummaryOfAnIdleDeviceIsItsOwn) {
  const std::vector<TelemetrySample> samples = {sample_of(345, 0x1)};
  const TelemetrySummary summary = summarize(samples);
  EXPECT_EQ(summary.json["sm_clock_mhz"]["max"], 345.0);
  EXPECT_EQ(summary.json["throttle"], nlohmann::json{"gpu_idle"});
  EXPECT_FALSE(summary.throttled);
  EXPECT_TRUE(summarize({}).json.empty());
}

TEST(Telemetry, WithoutNvmlIsEmptyAndSaysWhy) {
  setenv("GDNBENCH_NVML", "/nowhere/libnvidia-ml.so.1", 1);
  Telemetry telemetry(bus_id);
  EXPECT_NE(telemetry.obstacle().find("/nowhere/libnvidia-ml.so.1"), std::string::npos);
  EXPECT_NE(nvml_devices().obstacle, "");
  unsetenv("GDNBENCH_NVML");
  telemetry.start();
  EXPECT_TRUE(telemetry.stop().json.empty());
  EXPECT_TRUE(telemetry.facts().empty());
  EXPECT_TRUE(telemetry.other_processes().empty());
  EXPECT_FALSE(telemetry.sample().sm_clock_mhz);
}

TEST(Telemetry, ALibraryThatIsNotNvmlIsNamed) {
  setenv("GDNBENCH_NVML", "libm.so.6", 1);
  const Telemetry telemetry(bus_id);
  unsetenv("GDNBENCH_NVML");
  EXPECT_NE(telemetry.obstacle().find("libm.so.6 has no function nvmlInit_v2"), std::string::npos)
      << telemetry.obstacle();
}

TEST_F(FakeDriver, NotLoaded) {
  fake->init_result = 9;
  const Telemetry telemetry(bus_id);
  EXPECT_NE(telemetry.obstacle().find("Driver Not Loaded; load the driver"), std::string::npos)
      << telemetry.obstacle();
}

TEST_F(FakeDriver, DoesNotKnowTheDevice) {
  const Telemetry telemetry("0000:99:00.0");
  EXPECT_NE(telemetry.obstacle().find("0000:99:00.0: Not Found"), std::string::npos);
}

TEST_F(FakeDriver, FactsAreThoseItTells) {
  const Telemetry telemetry(bus_id);
  ASSERT_EQ(telemetry.obstacle(), "");
  EXPECT_EQ(telemetry.facts(), (nlohmann::json{{"driver", "580.1"},
                                               {"name", "NVIDIA Fake"},
                                               {"uuid", "GPU-1234"},
                                               {"ecc", true},
                                               {"mig", false},
                                               {"persistence", true},
                                               {"power_limit_w", 700.0},
                                               {"max_sm_clock_mhz", 1980},
                                               {"max_memory_clock_mhz", 3201}}));
}

TEST_F(FakeDriver, ProcessesButNotThisOne) {
  const std::vector<ComputeProcess> others = Telemetry(bus_id).other_processes();
  ASSERT_EQ(others.size(), 1u);
  EXPECT_EQ(others[0].pid, 1);
}

TEST_F(FakeDriver, ListsItsDevices) {
  const NvmlDevices devices = nvml_devices();
  EXPECT_EQ(devices.obstacle, "");
  EXPECT_EQ(devices.bus_ids, std::vector<std::string>{"00000000:3B:00.0"});
}

TEST_F(FakeDriver, SamplesWhileItIsStarted) {
  Telemetry telemetry(bus_id);
  telemetry.start();
  fake->sm_clock = 1500;
  fake->reasons = 0x40;
  const int before = fake->samples;
  for (int waited = 0; fake->samples < before + 3 && waited < 1000; ++waited)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  fake->reasons = 0;
  const TelemetrySummary summary = telemetry.stop();
  EXPECT_GE(summary.json["samples"], 4);
  EXPECT_EQ(summary.json["sm_clock_mhz"], (nlohmann::json{{"min", 1500.0}, {"max", 1980.0}}));
  EXPECT_EQ(summary.json["power_w"]["max"], 345.6);
  EXPECT_EQ(summary.json["throttle"], nlohmann::json{"hw_thermal_slowdown"});
  EXPECT_TRUE(summary.throttled);
  const int after = fake->samples;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(fake->samples, after);
}

TEST_F(FakeDriver, AShortMeasurementIsSampledBeforeAndAfter) {
  fake->knows_power = false;
  Telemetry telemetry(bus_id);
  for (int round = 0; round < 2; ++round) {
    telemetry.start();
    const TelemetrySummary summary = telemetry.stop();
    EXPECT_GE(summary.json["samples"], 2);
    EXPECT_FALSE(summary.json.contains("power_w"));
    EXPECT_FALSE(summary.throttled);
  }
}

TEST_F(FakeDriver, MayEndWhileItSamples) {
  Telemetry telemetry(bus_id);
  telemetry.start();
}

}  // namespace
}  // namespace gdn
