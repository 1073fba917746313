// Rows that grow by a round at a time, and what their intervals are good for.
#include "src/rounds.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "src/statistics.hpp"

namespace gdn {
namespace {

Row row_of(const std::vector<double>& samples) {
  Row row;
  row.time_s = summarize(samples);
  row.samples = static_cast<std::int64_t>(samples.size());
  row.samples_s = thin(samples, kept_samples);
  row.round_medians_s = {row.time_s->median};
  row.output_hash = "0123456789abcdef";
  return row;
}

// Twenty-one samples, evenly over ±1 of their median.
Row around(double median) {
  std::vector<double> samples;
  for (int i = -10; i <= 10; ++i) samples.push_back(median + i / 10.0);
  return row_of(samples);
}

Row merged(const std::vector<Row>& rounds) {
  Row row = rounds.at(0);
  for (std::size_t i = 1; i < rounds.size(); ++i) merge_round(row, rounds[i]);
  return row;
}

Row merged_around(const std::vector<double>& medians) {
  std::vector<Row> rounds;
  for (const double median : medians) rounds.push_back(around(median));
  return merged(rounds);
}

TEST(Rounds, TheMedianIsThatOfTheRoundsMedians) {
  const std::vector<double> medians = {10, 30, 11, 12, 13};
  const Row row = merged_around(medians);
  EXPECT_EQ(row.status, Status::passed);
  EXPECT_EQ(row.round_medians_s, medians);
  EXPECT_EQ(row.time_s->median, 12);
  EXPECT_EQ(row.samples, 5 * 21);
}

TEST(Rounds, FromSixOnTheIntervalIsOfTheRoundsMedians) {
  EXPECT_EQ(merged_around({10, 16, 11, 12, 13, 14}).time_s->ci95, (Interval{10, 16}));
  EXPECT_EQ(merged_around({10, 18, 11, 12, 13, 14, 15, 16, 17}).time_s->ci95, (Interval{11, 17}));
}

TEST(Rounds, BelowSixItIsTheHullOfTheirOwn) {
  const Interval low = *around(10).time_s->ci95;
  const Interval high = *around(14).time_s->ci95;
  const Interval hull = {low.first, high.second};
  EXPECT_EQ(merged_around({14, 10}).time_s->ci95, hull);
  EXPECT_EQ(merged_around({10, 11, 14, 13, 12}).time_s->ci95, hull);
}

TEST(Rounds, ARoundWithoutAnIntervalLeavesNoneBelowSix) {
  const Row few = row_of({10, 10, 10});
  EXPECT_FALSE(merged({around(10), few}).time_s->ci95);
  EXPECT_FALSE(merged({few, around(10), around(10)}).time_s->ci95);
  EXPECT_TRUE(merged({few, few, few, few, few, few}).time_s->ci95);
}

TEST(Rounds, SamplesAreKeptInEqualShares) {
  std::vector<Row> rounds;
  for (int round = 1; round <= 3; ++round)
    rounds.push_back(row_of(std::vector<double>(100 * static_cast<std::size_t>(round), round)));
  const Row row = merged(rounds);
  EXPECT_EQ(row.samples, 600);
  std::vector<double> expected;
  for (int round = 1; round <= 3; ++round) expected.insert(expected.end(), 66, round);
  EXPECT_EQ(row.samples_s, expected);

  merge_round(rounds[0], row_of(std::vector<double>(7, 2)));  // it has no more to give
  expected.assign(7, 1);
  expected.insert(expected.end(), 7, 2);
  EXPECT_EQ(rounds[0].samples_s, expected);
}

TEST(Rounds, AHundredRoundsStillHaveTheirShare) {
  std::vector<double> medians(100);
  std::iota(medians.begin(), medians.end(), 1);
  const Row row = merged_around(medians);
  EXPECT_EQ(row.samples_s.size(), kept_samples);
  EXPECT_EQ(row.time_s->median, 50.5);
}

// The share evenly covers a round: not its first samples, in which a device may still warm up.
TEST(Rounds, SharesAreEvenlyPicked) {
  std::vector<double> rising(200);
  std::iota(rising.begin(), rising.end(), 0);
  const Row row = merged({row_of(rising), row_of(rising)});
  ASSERT_EQ(row.samples_s.size(), 200U);
  for (std::size_t i = 0; i < 200; ++i) EXPECT_EQ(row.samples_s[i], 2.0 * (i % 100));
}

TEST(Rounds, QuartilesArePooledAndTheMinimumIsOfAll) {
  const Row row = merged({row_of(std::vector<double>(20, 1)), row_of(std::vector<double>(20, 3))});
  EXPECT_EQ(row.time_s->q1, 1);
  EXPECT_EQ(row.time_s->median, 2);
  EXPECT_EQ(row.time_s->q3, 3);
  Row quick = row_of(std::vector<double>(20, 1));
  quick.time_s->min = 0.5;  // of a sample that was not kept
  EXPECT_EQ(merged({quick, around(9), around(9)}).time_s->min, 0.5);
}

TEST(Rounds, FlagsUniteAndKernelsAreOfTheLatest) {
  Row first = around(10);
  first.flags = {"noisy", "timeout"};
  first.kernels = {{"old", 1}};
  first.host_s = 1;
  Row second = around(10);
  second.flags = {"noisy", "throttled"};
  second.kernels = {{"new", 2}};
  second.host_s = 2;
  const Row row = merged({first, second});
  EXPECT_EQ(row.flags, (std::vector<std::string>{"noisy", "throttled", "timeout"}));
  EXPECT_EQ(row.kernels.at(0).name, "new");
  EXPECT_EQ(row.host_s, 2);
}

TEST(Rounds, TelemetryWidens) {
  Row first = around(10);
  first.telemetry = {{"sm_clock_mhz", {{"min", 1900}, {"max", 1980}}},
                     {"power_w", {{"min", 500}, {"max", 600}}},
                     {"throttle", {"sw_thermal_slowdown", "sw_power_cap"}},
                     {"samples", 10},
                     {"cupti_span_s", 1.5},
                     {"cupti", "buffers were dropped"}};
  Row second = around(10);
  second.telemetry = {{"sm_clock_mhz", {{"min", 1800}, {"max", 1950}}},
                      {"temperature_c", {{"min", 40}, {"max", 50}}},
                      {"throttle", {"hw_slowdown", "sw_power_cap"}},
                      {"samples", 5},
                      {"cupti_span_s", 1.25}};
  const nlohmann::json expected = {
      {"sm_clock_mhz", {{"min", 1800}, {"max", 1980}}},
      {"power_w", {{"min", 500}, {"max", 600}}},
      {"temperature_c", {{"min", 40}, {"max", 50}}},
      {"throttle", {"hw_slowdown", "sw_power_cap", "sw_thermal_slowdown"}},
      {"samples", 15},
      {"cupti_span_s", 1.25},
      {"cupti", "buffers were dropped"}};
  EXPECT_EQ(merged({first, second}).telemetry, expected);
}

void expect_no_time(const Row& row) {
  EXPECT_FALSE(row.time_s);
  EXPECT_EQ(row.samples_s, std::vector<double>{});
  EXPECT_EQ(row.samples, 0);
  EXPECT_EQ(row.round_medians_s, std::vector<double>{});
}

TEST(Rounds, ARoundThatDoesNotPassTakesTheTimeAway) {
  Row failed;
  failed.status = Status::failed;
  failed.reason = "crashed: Segmentation fault (signal 11)";
  const Row row = merged({around(10), around(10), failed});
  EXPECT_EQ(row.status, Status::failed);
  EXPECT_EQ(row.reason, "round 3: crashed: Segmentation fault (signal 11)");
  expect_no_time(row);
}

TEST(Rounds, AnotherResultIsIncorrect) {
  Row other = around(10);
  other.output_hash = "fedcba9876543210";
  other.kernels = {{"core", 1}};
  const Row row = merged({around(10), around(10), other});
  EXPECT_EQ(row.status, Status::incorrect);
  EXPECT_EQ(row.reason, "round 3 gives another result bit for bit");
  EXPECT_TRUE(row.kernels.empty());
  expect_no_time(row);
}

// What the whole is for. Each process draws where it lies, 1 % wide, and its samples are narrow
// around that: intervals of single processes are narrow and apart, those over rounds meet.
TEST(Rounds, IntervalsOfTwoRunsOfOneBuildMeet) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> standard(0, 1);
  const auto process = [&] {
    const double place = 1 + 0.01 * standard(random);
    std::vector<double> samples(50);
    for (double& x : samples) x = place * (1 + 0.002 * standard(random));
    return row_of(samples);
  };
  const auto meetings = [&](int rounds) {
    const auto run = [&] {
      std::vector<Row> all;
      for (int i = 0; i < rounds; ++i) all.push_back(process());
      return *merged(all).time_s->ci95;
    };
    int met = 0;
    for (int pair = 0; pair < 200; ++pair) {
      const Interval a = run();
      const Interval b = run();
      met += a.first <= b.second && b.first <= a.second;
    }
    return met;
  };
  EXPECT_LT(meetings(1), 60);
  EXPECT_GT(meetings(8), 195);
}

}  // namespace
}  // namespace gdn
