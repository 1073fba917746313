// BASE against HEAD on the hand-made files of data/compare: four rows of twenty samples each.
#include "src/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "src/error.hpp"

namespace gdn {
namespace {

std::string data(const std::string& file) {
  return GDNBENCH_SOURCE_DIR "/tests/data/compare/" + file;
}

Comparison compare_files(const std::string& base, const std::string& head,
                         const CompareOptions& options = {}) {
  return compare(read_report(data(base)), read_report(data(head)), options);
}

std::string refusal(const std::string& base, const std::string& head,
                    const CompareOptions& options = {}) {
  try {
    compare_files(base, head, options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

int count(const Comparison& comparison, Verdict verdict) {
  return static_cast<int>(
      std::count_if(comparison.rows.begin(), comparison.rows.end(),
                    [&](const ComparedRow& row) { return row.verdict == verdict; }));
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two rows with these samples, to be compared by themselves.
Row timed_row(const std::vector<double>& samples) {
  Row row;
  row.case_name = "c";
  row.variant = "v";
  row.time_s = summarize(samples);
  row.samples_s = samples;
  return row;
}

Report report_of(std::vector<Row> rows) {
  Report report;
  report.rows = std::move(rows);
  return report;
}

ComparedRow compare_samples(const std::vector<double>& base, const std::vector<double>& head) {
  return compare(report_of({timed_row(base)}), report_of({timed_row(head)}), {}).rows.at(0);
}

std::vector<double> around(double median, double spread) {
  std::vector<double> samples;
  for (int i = -10; i <= 10; ++i) samples.push_back(median * (1 + spread * i / 10));
  return samples;
}

class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(testing::TempDir() + "thresholds_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + ".yaml") {
    std::ofstream(path_) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(Compare, AFileWithItselfIsTheSame) {
  for (const char* file : {"base.json", "few_samples.json", "finished.jsonl"}) {
    const Comparison comparison = compare_files(file, file);
    EXPECT_EQ(comparison.exit, Exit::fine) << file;
    EXPECT_EQ(count(comparison, Verdict::same), 4) << file;
    EXPECT_EQ(comparison.geomean, 1);
    EXPECT_EQ(comparison.timed_rows, 4);
    EXPECT_EQ(comparison.warnings, std::vector<std::string>{});
  }
}

TEST(Compare, AnIncorrectFileWithItselfIsStillIncorrect) {
  EXPECT_EQ(compare_files("incorrect.json", "incorrect.json").exit, Exit::incorrect);
}

TEST(Compare, TheSameBuildAgainIsTheSame) {
  const Comparison comparison = compare_files("base.json", "again.json");
  EXPECT_EQ(comparison.exit, Exit::fine);
  EXPECT_EQ(count(comparison, Verdict::same), 4);
  EXPECT_NEAR(comparison.geomean, 1, 1e-3);
  EXPECT_DOUBLE_EQ(comparison.confidence, 1 - 0.05 / 4);
}

// A fault seen elsewhere: compare exits with 0 on a regression.
TEST(Compare, ThreePerCentSlowerIsARegression) {
  const Comparison comparison = compare_files("base.json", "slower.json");
  EXPECT_EQ(comparison.exit, Exit::regression);
  EXPECT_EQ(count(comparison, Verdict::slower), 1);
  EXPECT_EQ(count(comparison, Verdict::same), 3);
  const ComparedRow& slower = comparison.rows.at(3);
  EXPECT_EQ(slower.case_name, "chain_equal");
  EXPECT_EQ(slower.variant, "chunked");
  EXPECT_EQ(slower.verdict, Verdict::slower);
  EXPECT_NEAR(slower.ratio.value, 1.03, 2e-3);
  EXPECT_GT(slower.ratio.interval->first, 1.02);
  EXPECT_NEAR(comparison.geomean, std::pow(1.03, 0.25), 1e-3);
}

// A fault seen elsewhere: compare fails when all got faster.
TEST(Compare, GainsNeverFail) {
  const Comparison comparison = compare_files("base.json", "faster.json");
  EXPECT_EQ(comparison.exit, Exit::fine);
  EXPECT_EQ(count(comparison, Verdict::faster), 4);
  EXPECT_NEAR(comparison.geomean, 0.8, 1e-3);

  // A gain of uncertain size gets no verdict, and does not fail either.
  const ComparedRow row = compare_samples(around(1, 0.01), around(0.97, 0.04));
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_LT(row.ratio.interval->second, 1);
  EXPECT_EQ(exit_of(row), Exit::fine);
}

TEST(Compare, NoiseWiderThanTheThresholdIsInconclusive) {
  const Comparison comparison = compare_files("base.json", "noisy.json");
  EXPECT_EQ(comparison.exit, Exit::inconclusive);
  EXPECT_EQ(count(comparison, Verdict::inconclusive), 1);
  EXPECT_EQ(count(comparison, Verdict::same), 3);
}

TEST(Compare, AnIncorrectRowFails) {
  const Comparison comparison = compare_files("base.json", "incorrect.json");
  EXPECT_EQ(comparison.exit, Exit::incorrect);
  EXPECT_EQ(count(comparison, Verdict::incorrect), 1);
  EXPECT_EQ(comparison.rows.at(1).reason, "output rms 0.31 is above 0.01");
  EXPECT_EQ(comparison.timed_rows, 3);
  // Mended since BASE:
  const Comparison mended = compare_files("incorrect.json", "base.json");
  EXPECT_EQ(mended.exit, Exit::fine);
  EXPECT_EQ(count(mended, Verdict::added), 1);
}

TEST(Compare, AMissingRowFailsAndANewOneDoesNot) {
  const Comparison missing = compare_files("base.json", "missing_row.json");
  EXPECT_EQ(missing.exit, Exit::incorrect);
  EXPECT_EQ(missing.rows.at(3).verdict, Verdict::missing);
  EXPECT_EQ(missing.rows.at(3).reason, "not in HEAD");
  const Comparison added = compare_files("missing_row.json", "base.json");
  EXPECT_EQ(added.exit, Exit::fine);
  EXPECT_EQ(added.rows.at(3).verdict, Verdict::added);
}

TEST(Compare, SkippedRows) {
  const Row passed = timed_row(around(1, 0.01));
  Row other = passed;
  other.case_name = "d";
  Row skipped = passed;
  skipped.status = Status::skipped;
  skipped.reason = "no graphs here";
  skipped.time_s.reset();
  skipped.samples_s.clear();
  const auto verdict = [&](std::vector<Row> base, std::vector<Row> head) {
    base.push_back(other);
    head.push_back(other);
    const Comparison comparison = compare(report_of(base), report_of(head), {});
    for (const ComparedRow& row : comparison.rows) {
      if (row.case_name == "c") return std::pair(row.verdict, comparison.exit);
    }
    return std::pair(Verdict::same, Exit::usage);
  };
  EXPECT_EQ(verdict({skipped}, {skipped}), std::pair(Verdict::skipped, Exit::fine));
  EXPECT_EQ(verdict({}, {skipped}), std::pair(Verdict::skipped, Exit::fine));
  EXPECT_EQ(verdict({skipped}, {}), std::pair(Verdict::skipped, Exit::fine));
  EXPECT_EQ(verdict({skipped}, {passed}), std::pair(Verdict::added, Exit::fine));
  EXPECT_EQ(verdict({passed}, {skipped}), std::pair(Verdict::missing, Exit::incorrect));
  Row failed = skipped;
  failed.status = Status::failed;
  EXPECT_EQ(verdict({failed}, {failed}), std::pair(Verdict::failed, Exit::incorrect));
  EXPECT_EQ(verdict({}, {failed}), std::pair(Verdict::failed, Exit::incorrect));
  EXPECT_EQ(verdict({failed}, {}), std::pair(Verdict::missing, Exit::incorrect));
  EXPECT_EQ(verdict({failed}, {passed}), std::pair(Verdict::added, Exit::fine));
}

TEST(Compare, OfSeveralTheWorstIsTheExitCode) {
  const Comparison two = compare_files("base.json", "slower_and_noisy.json");
  EXPECT_EQ(count(two, Verdict::slower), 1);
  EXPECT_EQ(count(two, Verdict::inconclusive), 1);
  EXPECT_EQ(two.exit, Exit::regression);
  const Comparison three = compare_files("base.json", "all_at_once.json");
  EXPECT_EQ(count(three, Verdict::slower), 1);
  EXPECT_EQ(count(three, Verdict::inconclusive), 1);
  EXPECT_EQ(count(three, Verdict::failed), 1);
  EXPECT_EQ(three.exit, Exit::incorrect);
}

TEST(Compare, AnotherDeviceOrInputIsRefused) {
  const std::string device = refusal("base.json", "other_device.json");
  EXPECT_TRUE(
      contains(device, "the device differs: \"Example CPU\" in BASE, \"Another CPU\" in HEAD"))
      << device;
  const std::string inputs = refusal("base.json", "other_inputs.json");
  EXPECT_TRUE(contains(inputs, "chain_equal/recurrent/core/cold: the input hash differs"))
      << inputs;

  CompareOptions forced;
  forced.force = true;
  const Comparison comparison = compare_files("base.json", "other_device.json", forced);
  EXPECT_EQ(comparison.exit, Exit::fine);
  ASSERT_EQ(comparison.warnings.size(), 1U);
  EXPECT_TRUE(contains(comparison.warnings[0], "Another CPU"));
}

// A fault seen elsewhere: times with a warm and a cold cache stand side by side.
TEST(Compare, WhatElseMakesTimesIncomparable) {
  const Row row = timed_row(around(1, 0.01));
  const auto refused = [&](auto change) {
    Report base = report_of({row});
    Report head = base;
    change(head);
    try {
      compare(base, head, {});
    } catch (const UserError&) {
      return true;
    }
    return false;
  };
  EXPECT_FALSE(refused([](Report&) {}));
  EXPECT_FALSE(refused([](Report& r) { r.fingerprint["revision"] = "another"; }));
  EXPECT_TRUE(refused([](Report& r) { r.fingerprint["driver"] = "580.1"; }));
  EXPECT_TRUE(refused([](Report& r) { r.fingerprint["cuda"] = "13.0"; }));
  EXPECT_TRUE(refused([](Report& r) { r.fingerprint["device"]["target"] = "cuda"; }));
  EXPECT_TRUE(refused([](Report& r) { r.rows[0].timer = "events"; }));
  EXPECT_TRUE(refused([](Report& r) { r.rows[0].flush = "none"; }));
  EXPECT_TRUE(refused([](Report& r) { r.rows[0].input_hash = "0123456789abcdef"; }));
  EXPECT_TRUE(refused([](Report& r) { r.rows.clear(); }));
  EXPECT_TRUE(refused([](Report& r) { r.rows[0].case_name = "no row in common"; }));
}

TEST(Compare, FilesThatCannotBeReadAreRefused) {
  const std::string missing = refusal("base.json", "nowhere.json");
  EXPECT_TRUE(contains(missing, "nowhere.json: no such file")) << missing;
  const std::string truncated = refusal("base.json", "truncated.json");
  EXPECT_TRUE(contains(truncated, "truncated.json:8:310: ")) << truncated;
  EXPECT_TRUE(contains(truncated, "cut off")) << truncated;
  const std::string foreign = refusal("foreign_schema.json", "base.json");
  EXPECT_TRUE(contains(foreign, "schema: \"gdnbench/2\" is not \"gdnbench/1\"")) << foreign;
  const std::string doubled = refusal("base.json", "doubled.json");
  EXPECT_TRUE(contains(doubled, "HEAD: the row short_tail_state/recurrent/core/cold")) << doubled;
}

TEST(Compare, TheJournalOfAKilledRunLacksItsLastRow) {
  EXPECT_EQ(compare_files("base.json", "finished.jsonl").exit, Exit::fine);
  const Comparison torn = compare_files("base.json", "torn.jsonl");
  EXPECT_EQ(torn.exit, Exit::incorrect);
  EXPECT_EQ(count(torn, Verdict::missing), 1);
  EXPECT_EQ(count(torn, Verdict::same), 3);
}

TEST(Compare, FewSamplesGiveNoVerdict) {
  const Comparison comparison = compare_files("base.json", "few_samples.json");
  EXPECT_EQ(comparison.exit, Exit::inconclusive);
  EXPECT_EQ(count(comparison, Verdict::inconclusive), 4);
  EXPECT_EQ(comparison.rows[0].reason,
            "20 and 5 samples are too few for an interval at 98.75 %, which takes 8");
}

// Rounds with these medians, whose samples are within 0.01 % of them.
Row row_of_rounds(const std::vector<double>& medians) {
  std::vector<double> samples;
  for (const double median : medians)
    for (int i = -10; i <= 10; ++i) samples.push_back(median * (1 + 1e-5 * i));
  Row row = timed_row(samples);
  row.round_medians_s = medians;
  row.time_s->median = median(medians);
  return row;
}

// Eight processes over 1 %: many samples know their median well, and yet not the next run's.
const std::vector<double> scattered = {0.995, 0.996, 0.998, 0.999, 1.001, 1.002, 1.004, 1.005};
const std::vector<double> scattered_higher = {0.998, 1.001, 1.003, 1.005,
                                              1.006, 1.007, 1.008, 1.009};

ComparedRow compare_rows(const Row& base, const Row& head) {
  CompareOptions strict;
  strict.threshold_percent = 0.05;
  return compare(report_of({base}), report_of({head}), strict).rows.at(0);
}

TEST(Compare, RoundsThatScatterGiveNoRegression) {
  Row base = row_of_rounds(scattered);
  Row head = row_of_rounds(scattered_higher);
  const ComparedRow row = compare_rows(base, head);
  EXPECT_EQ(row.verdict, Verdict::inconclusive);
  EXPECT_EQ(row.reason, "the interval reaches across the threshold; take more rounds");
  EXPECT_EQ(row.base_s, 1);
  EXPECT_EQ(row.head_s, 1.0055);
  EXPECT_DOUBLE_EQ(row.ratio.value, 1.0055);

  // With too few rounds on either side it is the samples that count, as without rounds.
  head.round_medians_s.resize(5);
  EXPECT_EQ(compare_rows(base, head).verdict, Verdict::slower);
  std::swap(base.round_medians_s, head.round_medians_s);
  EXPECT_EQ(compare_rows(base, head).verdict, Verdict::slower);
}

TEST(Compare, RoundsShowARegressionBeyondTheirScatter) {
  std::vector<double> slower = scattered;
  for (double& median : slower) median *= 1.02;
  EXPECT_EQ(compare_rows(row_of_rounds(scattered), row_of_rounds(slower)).verdict, Verdict::slower);
}

TEST(Compare, TheSameSamplesOfOtherRoundsAreNotIdentical) {
  const Row base = row_of_rounds(scattered);
  Row head = base;
  for (double& median : head.round_medians_s) median *= 1.5;
  EXPECT_EQ(compare_rows(base, base).reason, "identical samples");
  EXPECT_EQ(compare_rows(base, head).verdict, Verdict::slower);
}

TEST(Compare, ManyRowsTakeMoreRounds) {
  std::vector<Row> base, head;
  for (int i = 0; i < 10; ++i) {
    base.push_back(row_of_rounds(scattered));
    head.push_back(row_of_rounds(scattered_higher));
    base.back().case_name = head.back().case_name = "case_" + std::to_string(i);
  }
  const Comparison comparison = compare(report_of(base), report_of(head), {});
  EXPECT_EQ(count(comparison, Verdict::inconclusive), 10);
  EXPECT_EQ(comparison.rows[0].reason,
            "8 and 8 rounds are too few for an interval at 99.5 %, which takes 9");
}

TEST(Compare, VerdictsAtTheThreshold) {
  const std::vector<double> one(20, 1.0);
  const auto verdict = [&](double head) {
    return compare_samples(one, std::vector<double>(20, head)).verdict;
  };
  EXPECT_EQ(verdict(1.0199), Verdict::same);
  EXPECT_EQ(verdict(1.0201), Verdict::slower);
  EXPECT_EQ(verdict(0.9805), Verdict::same);  // 1 / 1.02 = 0.98039…
  EXPECT_EQ(verdict(0.9803), Verdict::faster);
  EXPECT_EQ(compare_samples({0, 0, 0, 0, 0, 0}, one).verdict, Verdict::inconclusive);
}

// What the whole is for: of builds that did not change, next to none is called slower, however
// many rows there are.
TEST(Compare, UnchangedBuildsAreRarelyCalledSlower) {
  std::mt19937_64 generator(5);
  std::normal_distribution<double> noise(0, 0.05);
  const auto measure = [&] {
    std::vector<Row> rows;
    for (int i = 0; i < 20; ++i) {
      std::vector<double> samples(30);
      for (double& x : samples) x = std::exp(noise(generator));
      rows.push_back(timed_row(samples));
      rows.back().case_name = "case_" + std::to_string(i);
    }
    return report_of(std::move(rows));
  };
  CompareOptions strict;
  strict.threshold_percent = 0;
  int alarms = 0;
  const int runs = 100;
  for (int run = 0; run < runs; ++run) {
    alarms += compare(measure(), measure(), strict).exit == Exit::regression;
  }
  EXPECT_LE(alarms, 8);  // 2.5 expected, as an interval misses on two sides; 100 without Bonferroni
                         // would be about 40
}

TEST(Compare, ThresholdsByCase) {
  CompareOptions options;
  options.thresholds_file = data("thresholds.yaml");
  const Comparison comparison = compare_files("base.json", "slower.json", options);
  EXPECT_EQ(comparison.exit, Exit::fine);  // chain_*: 5 stands before *_equal: 1
  EXPECT_EQ(comparison.rows.at(0).threshold_percent, 2);
  EXPECT_EQ(comparison.rows.at(3).threshold_percent, 5);
  EXPECT_EQ(comparison.warnings, std::vector<std::string>{});

  const TemporaryFile other("cases: {\"*_equal\": 1, wide_*: 7}\n");
  options.thresholds_file = other.path();
  options.threshold_percent = 4;
  const Comparison second = compare_files("base.json", "slower.json", options);
  EXPECT_EQ(second.exit, Exit::regression);
  EXPECT_EQ(second.rows.at(0).threshold_percent, 4);
  ASSERT_EQ(second.warnings.size(), 1U);
  EXPECT_TRUE(contains(second.warnings[0], ":1:23: \"wide_*\" matches no case"))
      << second.warnings[0];
}

TEST(Compare, ThresholdsAreReadStrictly) {
  const auto error = [&](const std::string& yaml) {
    const TemporaryFile file(yaml);
    CompareOptions options;
    options.thresholds_file = file.path();
    const std::string what = refusal("base.json", "base.json", options);
    return what.rfind(file.path(), 0) == 0 ? what.substr(file.path().size()) : "elsewhere: " + what;
  };
  EXPECT_EQ(
      error("defualt: 3\n"),
      ":1:1: unknown key \"defualt\"; did you mean \"default\"?; the keys are default and cases");
  EXPECT_EQ(error("default: 2\ncases:\n  chain_*: 010\n").substr(0, 8), ":3:12: a");
  for (const char* wrong : {"yes", "1e1", "-1", "0x10", "\"3\"", "[1]", "", "nan", "1001", ".5",
                            "2.", "1.2.3", "2 %"}) {
    EXPECT_EQ(error(std::string("default: ") + wrong + "\n").substr(0, 3), ":1:") << wrong;
  }
  EXPECT_EQ(error("cases: 3\n").substr(0, 6), ":1:8: ");
  EXPECT_EQ(error("- 3\n").substr(0, 6), ":1:1: ");
  EXPECT_EQ(error("default: 2\ndefault: 3\n").substr(0, 6), ":2:1: ");
  CompareOptions nowhere;
  nowhere.thresholds_file = data("nowhere.yaml");
  EXPECT_TRUE(contains(refusal("base.json", "base.json", nowhere), "no such file"));
  CompareOptions negative;
  negative.threshold_percent = -1;
  EXPECT_TRUE(contains(refusal("base.json", "base.json", negative), "--threshold"));
}

}  // namespace
}  // namespace gdn
