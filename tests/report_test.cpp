// What a run leaves behind: written, checked against its schema, read back, and refused when
// hostile; and the tables as people see them.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>

#ifdef GDNBENCH_WITH_PUGIXML
#include <pugixml.hpp>
#endif

#include "src/error.hpp"
#include "src/report/render.hpp"
#include "src/report/text.hpp"
#include "src/result.hpp"
#include "tests/json_schema.hpp"

namespace gdn {
namespace {

using Json = nlohmann::json;

Row timed_row() {
  Row row;
  row.case_name = "short_tail_state";
  row.variant = "wide:stages=3:threads=512";
  row.knobs = {{"stages", "3"}, {"threads", "512"}};
  row.bound = "drops at most e^-12 of the state";
  row.backend = "cuda";
  row.scope = Scope::forward;
  row.timing = Timing::lab;
  row.timer = "events";
  row.flush = "none";
  row.time_s = TimeSummary{
      .median = 0.1 + 0.2, .q1 = 0.25, .q3 = 1.0 / 3, .min = 5e-324, .ci95 = {{0.29, 0.31}}};
  row.samples_s = {0.1 + 0.2, 1e-9, 1.7976931348623157e308, 123456789.12345679};
  row.samples = 4321;
  row.round_medians_s = {0.1 + 0.2, 0.25, 1.0 / 3};
  row.host_s = 3.3e-6;
  row.error = ErrorSummary{2.1e-3, 1.9e-3, "output: sequence 0, head 3", true};
  row.kernels = {{"prefix_sum", 1e-6}, {"core<512, 3>", 0.29}};
  row.resources = {{"registers", 168}};
  row.telemetry = {{"sm_clock_hz", 1.98e9}};
  row.chain_chunks = 17;
  row.workspace_bytes = 18446744073709551615U;
  row.flop = 1.35e9;
  row.bytes = 8.6e6;
  row.input_hash = "0123456789abcdef";
  row.output_hash = "fedcba9876543210";
  row.flags = {"noisy", "throttled"};
  row.tuned = TunedAs{"chain_equal", Timing::graph, 0.8125, false};
  row.chosen = ChosenAs{"8 CTAs leave 124 of 132 idle", 21.5e-6};
  return row;
}

Row untimed_row(Status status, const std::string& reason) {
  Row row;
  row.case_name = "short_tail_state";
  row.variant = "recurrent:" + std::string(name_of(status));
  row.backend = "cpu";
  row.status = status;
  row.reason = reason;
  return row;
}

Report sample_report() {
  Report report;
  report.fingerprint = {{"device", {{"name", "Example"}, {"target", "cpu"}}}};
  report.options = {{"seed", 0}};
  report.rows = {timed_row(), untimed_row(Status::skipped, "no graphs on a CPU"),
                 untimed_row(Status::failed, "illegal memory access")};
  Row incorrect = untimed_row(Status::incorrect, "output is NaN");
  const double nan = std::numeric_limits<double>::quiet_NaN();
  incorrect.error = ErrorSummary{nan, std::numeric_limits<double>::infinity(), "head 0", false};
  report.rows.push_back(incorrect);
  return report;
}

class File {
 public:
  explicit File(const std::string& text, const std::string& name = "head.json")
      : path_(testing::TempDir() + "gdnbench_" +
              testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + name) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// What is said of a file with this text, less the file's name; "" when it reads it.
std::string refusal(const std::string& text) {
  try {
    parse_report(text, "head.json");
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("head.json:", 0), 0U) << what;
    return what.substr(std::min(what.size(), std::string("head.json:").size()));
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

JsonSchema schema() {
  std::ifstream file(GDNBENCH_SOURCE_DIR "/docs/result-schema.json");
  return JsonSchema(Json::parse(file));
}

using Faults = std::vector<std::string>;

TEST(Json, WhatIsWrittenConformsToTheSchema) {
  EXPECT_EQ(schema().faults(Json::parse(json(sample_report()))), Faults{});
  EXPECT_EQ(schema().faults(to_json(sample_report())), Faults{});
  EXPECT_EQ(schema().faults(Json::parse(json(Report{}))), Faults{});
  for (const Row& row : sample_report().rows) {
    EXPECT_EQ(schema().faults(Json::parse(journal_line(row)), "row"), Faults{});
  }
  // A bare row, as it is before anything is known, conforms but for its names.
  Row bare;
  bare.case_name = bare.variant = "x";
  EXPECT_EQ(schema().faults(to_json(bare), "row"), Faults{});
}

TEST(Json, TheSchemaKnowsEveryFieldAndItsType) {
  const Json row = to_json(timed_row());
  for (const auto& [name, value] : row.items()) {
    Json without = row;
    without.erase(name);
    EXPECT_NE(schema().faults(without, "row"), Faults{}) << name;
    Json wrong = row;
    wrong[name] = true;
    EXPECT_NE(schema().faults(wrong, "row"), Faults{}) << name;
  }
  Json more = row;
  more["speed"] = 1;
  EXPECT_NE(schema().faults(more, "row"), Faults{});
  Json negative = row;
  negative["time_s"]["median"] = -1;
  EXPECT_NE(schema().faults(negative, "row"), Faults{});
  Json hash = row;
  hash["input_hash"] = "0123456789ABCDEF";
  EXPECT_NE(schema().faults(hash, "row"), Faults{});
  Json one_end = row;
  one_end["time_s"]["ci95"] = Json::array({1});
  EXPECT_NE(schema().faults(one_end, "row"), Faults{});
}

TEST(Json, AReportReadsBackAsItWasWritten) {
  const std::string text = json(sample_report());
  const File file(text);
  const Report report = read_report(file.path());
  EXPECT_EQ(json(report), text);

  const Row expected = timed_row();
  const Row& row = report.rows.at(0);
  EXPECT_EQ(row_key(row), "short_tail_state/wide:stages=3:threads=512/forward/lab");
  EXPECT_EQ(row.knobs, expected.knobs);
  EXPECT_EQ(row.bound, expected.bound);
  EXPECT_EQ(row.samples_s, expected.samples_s);  // to the last bit
  EXPECT_EQ(row.time_s->median, expected.time_s->median);
  EXPECT_EQ(row.time_s->min, expected.time_s->min);
  EXPECT_EQ(row.time_s->ci95, expected.time_s->ci95);
  EXPECT_EQ(row.samples, 4321);
  EXPECT_EQ(row.round_medians_s, expected.round_medians_s);
  EXPECT_EQ(row.workspace_bytes, expected.workspace_bytes);
  EXPECT_EQ(row.error->worst, expected.error->worst);
  EXPECT_EQ(row.kernels.at(1).name, "core<512, 3>");
  EXPECT_EQ(row.flags, expected.flags);
  EXPECT_EQ(row.tuned->case_name, "chain_equal");
  EXPECT_EQ(row.tuned->timing, Timing::graph);
  EXPECT_EQ(row.tuned->distance, 0.8125);
  EXPECT_FALSE(row.tuned->exact);
  EXPECT_EQ(row.chosen->reason, "8 CTAs leave 124 of 132 idle");
  EXPECT_EQ(row.chosen->predicted_s, 21.5e-6);
  EXPECT_EQ(report.fingerprint, sample_report().fingerprint);
  EXPECT_EQ(report.options, sample_report().options);
}

TEST(Json, RandomNumbersReadBackToTheLastBit) {
  std::mt19937_64 generator(1);
  Row row = timed_row();
  row.samples_s.clear();
  while (row.samples_s.size() < 200) {
    const double x = std::abs(std::bit_cast<double>(generator()));
    if (std::isfinite(x)) row.samples_s.push_back(x);
  }
  EXPECT_EQ(row_from_json(Json::parse(journal_line(row))).samples_s, row.samples_s);
}

TEST(Json, WhatIsNotFiniteIsNullAndReadsBackAsNaN) {
  const Json error = to_json(sample_report().rows.at(3))["error"];
  EXPECT_TRUE(error["output_rms"].is_null());
  EXPECT_TRUE(error["state_rms"].is_null());
  const Row row = row_from_json(to_json(sample_report().rows.at(3)));
  EXPECT_TRUE(std::isnan(row.error->output_rms));
  EXPECT_TRUE(std::isnan(row.error->state_rms));
}

TEST(Json, BytesThatAreNotUtf8AreReplaced) {
  Row row = untimed_row(Status::failed, "driver says \xff\xfe");
  EXPECT_EQ(row_from_json(Json::parse(journal_line(row))).reason, "driver says \uFFFD\uFFFD");
}

TEST(Json, AHandWrittenRowNeedsLittle) {
  const Row row = row_from_json(Json::parse(R"({"case": "c", "variant": "v", "scope": "core",
      "timing": "cold", "status": "skipped", "knobs": {"threads": 512}, "a_later_field": 1})"));
  EXPECT_EQ(row.knobs.at(0), (Knob{"threads", "512"}));
  EXPECT_EQ(row.status, Status::skipped);
  EXPECT_FALSE(row.time_s);
  EXPECT_EQ(row.resources, Json::object());
}

TEST(Json, AFileFromBeforeThereWereRoundsIsOfOne) {
  Json row = to_json(timed_row());
  row.erase("round_medians_s");
  EXPECT_EQ(row_from_json(row).round_medians_s, std::vector<double>{timed_row().time_s->median});
  Json untimed = to_json(untimed_row(Status::skipped, "no graphs on a CPU"));
  untimed.erase("round_medians_s");
  EXPECT_EQ(row_from_json(untimed).round_medians_s, std::vector<double>{});
}

TEST(Json, RefusalsNameTheField) {
  const auto changed = [](const std::string& pointer, const Json& value) {
    Json report = to_json(sample_report());
    report[Json::json_pointer(pointer)] = value;
    return refusal(report.dump());
  };
  const auto without = [](const std::string& pointer) {
    Json report = to_json(sample_report());
    const Json::json_pointer whole(pointer);
    report[whole.parent_pointer()].erase(whole.back());
    return refusal(report.dump());
  };
  EXPECT_EQ(without("/results/0/time_s/median"), " results[0].time_s.median: a number is missing");
  EXPECT_EQ(changed("/results/0/time_s/q1", nullptr), " results[0].time_s.q1: a number is missing");
  EXPECT_EQ(changed("/results/0/time_s/q1", "1"),
            " results[0].time_s.q1: a number is expected, not a string");
  EXPECT_EQ(changed("/results/0/time_s/min", -1),
            " results[0].time_s.min: a number of at least 0 is expected, not -1");
  EXPECT_EQ(changed("/results/0/time_s/ci95", Json::array({2, 1})),
            " results[0].time_s.ci95: [low, high] is expected");
  EXPECT_EQ(changed("/results/0/samples_s/2", true),
            " results[0].samples_s[2]: a number is expected, not a boolean");
  EXPECT_EQ(without("/results/0/samples_s"), " results[0].samples_s: a list of numbers is missing");
  EXPECT_EQ(changed("/results/1/scope", "cor"),
            " results[1].scope: \"cor\" is none of core, forward");
  EXPECT_EQ(without("/results/1/case"), " results[1].case: a string is missing");
  EXPECT_EQ(
      changed("/results/0/samples", -3),
      " results[0].samples: a whole number from 0 to 9223372036854775807 is expected, not -3");
  EXPECT_EQ(changed("/results/0/chain_chunks", 1.5),
            " results[0].chain_chunks: a whole number is expected, not a number");
  EXPECT_EQ(changed("/results/0/kernels/1/time_s", Json::object()),
            " results[0].kernels[1].time_s: a number is expected, not an object");
  EXPECT_EQ(changed("/results/0/knobs/threads", Json::array()),
            " results[0].knobs.threads: a string is expected, not a list");
  EXPECT_EQ(changed("/results/0", 7), " results[0]: an object is expected, not a number");
  EXPECT_EQ(changed("/results", 7), " results: a list is expected, not a number");
  EXPECT_EQ(without("/results"), " results: a list is missing");
  EXPECT_EQ(without("/schema"), " schema: a string is missing");
  EXPECT_TRUE(contains(changed("/schema", "gdnbench/0"), "\"gdnbench/0\" is not \"gdnbench/1\""));
  EXPECT_EQ(changed("/fingerprint", 1), " fingerprint: an object is expected, not a number");
  EXPECT_EQ(refusal("[]"), " an object is expected, not a list");
}

TEST(Json, HostileFilesAreRefused) {
  EXPECT_TRUE(contains(refusal(""), "empty"));
  EXPECT_TRUE(contains(refusal("hello"), "1:1: not JSON")) << refusal("hello");
  EXPECT_TRUE(contains(refusal("{\n \"schema\": \"\xff\"}"), "2:13: not JSON"));
  EXPECT_TRUE(contains(refusal(std::string(1'000'000, '[')), "nested too deeply"));
  std::string deep = "{\"schema\":\"gdnbench/1\",\"fingerprint\":";
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  EXPECT_TRUE(contains(refusal(deep), "nested too deeply"));
  EXPECT_TRUE(contains(refusal(deep + "\n"), "nested too deeply"));
  EXPECT_TRUE(contains(refusal("{\"schema\": \"gdnbench/1\", \"schema\": \"gdnbench/1\"}"),
                       "the key \"schema\" stands twice"));
  EXPECT_TRUE(contains(refusal("{\"schema\": 1e999}"), "number overflow"));
  EXPECT_TRUE(contains(refusal(std::string("{\0}", 3)), "1:2: not JSON"));
  EXPECT_THROW(read_report(testing::TempDir()), UserError);
  EXPECT_THROW(read_report(testing::TempDir() + "no such file"), UserError);
}

// Every prefix, and bytes changed at random: an error or a report, never a crash.
TEST(Json, DamagedFilesNeverCrash) {
  const std::string text = json(sample_report());
  const auto read = [](const std::string& damaged) {
    try {
      parse_report(damaged, "damaged.json");
    } catch (const UserError&) {
      return false;
    }
    return true;
  };
  // The closing brace is cut off in all of these.
  for (std::size_t length = 0; length + 2 < text.size(); length += 3) {
    EXPECT_FALSE(read(text.substr(0, length))) << length;
  }
  std::mt19937 generator(11);
  for (int i = 0; i < 5000; ++i) {
    std::string damaged = text;
    for (int change = 0; change < 3; ++change) {
      damaged[generator() % damaged.size()] = static_cast<char>(generator());
    }
    read(damaged);
  }
}

TEST(Journal, GrowsByTheLineAndReadsBack) {
  const Report report = sample_report();
  std::string text = journal_header(report);
  for (const Row& row : report.rows) text += journal_line(row);

  const File open(text, "open.txt");  // told by its content, not by its name
  EXPECT_EQ(json(read_report(open.path())), json(report));
  EXPECT_FALSE(read_journal(open.path()).finished);
  EXPECT_EQ(read_journal(open.path()).whole_bytes, text.size());

  const File finished(text + journal_end, "finished.jsonl");
  EXPECT_EQ(json(read_report(finished.path())), json(report));
  EXPECT_TRUE(read_journal(finished.path()).finished);

  // Going on after the end makes it unfinished again.
  const File more(text + journal_end + journal_line(report.rows[0]), "more.jsonl");
  EXPECT_FALSE(read_journal(more.path()).finished);

  const File header(journal_header(report), "header.jsonl");
  EXPECT_EQ(read_report(header.path()).rows.size(), 0U);

  const File compact(to_json(report).dump() + "\n",
                     "compact.json");  // a report on one line is no journal
  EXPECT_EQ(json(read_report(compact.path())), json(report));
  EXPECT_THROW(read_journal(compact.path()), UserError);
}

// A row that is measured in several rounds stands there once a round.
TEST(Journal, OfTheLinesOfARowTheLastCounts) {
  Report report = sample_report();
  std::string text = journal_header(report);
  for (const Row& row : report.rows) text += journal_line(row);
  report.rows[2].status = Status::passed;
  report.rows[0].round_medians_s.push_back(0.5);
  text += journal_line(report.rows[2]) + journal_line(report.rows[0]);
  EXPECT_EQ(json(parse_report(text, "rounds.jsonl")), json(report));
}

// A kill may cut the last line anywhere: the rows before it are there, and `whole_bytes` is where
// to go on.
TEST(Journal, ATornLastLineIsDropped) {
  const Report report = sample_report();
  const std::string start = journal_header(report) + journal_line(report.rows[0]);
  const std::string last = journal_line(report.rows[1]);
  const File file("", "torn.jsonl");
  for (std::size_t length = 0; length + 1 < last.size(); length += 20) {
    std::ofstream(file.path(), std::ios::binary) << start + last.substr(0, length);
    const Journal journal = read_journal(file.path());
    ASSERT_EQ(journal.report.rows.size(), 1U) << length;
    ASSERT_EQ(journal.whole_bytes, start.size());
    ASSERT_EQ(read_report(file.path()).rows.size(), 1U);
  }
  // To be read alone, a line is whole without its newline; to go on from, it is not.
  std::ofstream(file.path(), std::ios::binary) << start + last.substr(0, last.size() - 1);
  EXPECT_EQ(read_report(file.path()).rows.size(), 2U);
  EXPECT_EQ(read_journal(file.path()).report.rows.size(), 1U);
}

TEST(Journal, DamageElsewhereIsRefused) {
  const Report report = sample_report();
  const std::string row = journal_line(report.rows[0]);
  const std::string torn = refusal(journal_header(report) + row.substr(0, 100) + "\n" + row);
  EXPECT_TRUE(contains(torn, "2:101: cut off")) << torn;
  Json wrong = to_json(report.rows[0]);
  wrong["time_s"].erase("median");
  EXPECT_EQ(refusal(journal_header(report) + row + wrong.dump() + "\n"),
            "3: time_s.median: a number is missing");
  EXPECT_TRUE(contains(refusal(journal_header(report).substr(0, 40)), "cut off"));
  EXPECT_EQ(refusal("{\"finished\":true}\n"), "1: schema: a string is missing");
}

TEST(Text, FourSignificantDigitsInTheFittingUnit) {
  EXPECT_EQ(format_time(1.2341e-3), "1.234 ms");
  EXPECT_EQ(format_time(56.7e-6), "56.70 µs");
  EXPECT_EQ(format_time(999.94e-6), "999.9 µs");
  EXPECT_EQ(format_time(999.96e-6), "1.000 ms");
  EXPECT_EQ(format_time(0.99996), "1.000 s");
  EXPECT_EQ(format_time(12345), "12345 s");
  EXPECT_EQ(format_time(1.5e-9), "1.500 ns");
  EXPECT_EQ(format_time(0), "0 s");
  EXPECT_EQ(format_time(std::numeric_limits<double>::quiet_NaN()), "—");
  EXPECT_EQ(significant(9.996, 3), "10.0");
  EXPECT_EQ(significant(0.0512, 3), "0.0512");
  EXPECT_EQ(significant(770.4, 3), "770");
  EXPECT_EQ(percent(0.00417), "0.42 %");
}

TEST(Text, WidthCountsCharacters) {
  EXPECT_EQ(width("µs × —"), 6U);
  EXPECT_EQ(width(""), 0U);
}

TEST(Text, ForeignTextIsMadeHarmless) {
  EXPECT_EQ(printable("a\033[31mb\nc\x7f"), "a [31mb c ");
  EXPECT_EQ(printable("\u009b31m µ"), " 31m µ");
  EXPECT_EQ(printable("\xc3"), "\uFFFD");
  EXPECT_EQ(printable("\xed\xa0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(printable("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
}

// Two variants in two scopes, one noisy, one wrong, one skipped.
Report table_report() {
  Report report;
  const auto add = [&](const char* variant, Scope scope, double median) -> Row& {
    Row row;
    row.case_name = "short_tail_state";
    row.variant = variant;
    row.scope = scope;
    row.backend = "cpu";
    row.timer = "clock";
    row.input_hash = "0123456789abcdef";
    row.chain_chunks = 17;
    row.flop = 1.35e9;
    row.bytes = 8.6e6;
    if (median > 0) {
      row.time_s = TimeSummary{.median = median,
                               .q1 = median,
                               .q3 = median,
                               .min = median,
                               .ci95 = {{0.99 * median, 1.004 * median}}};
      row.error = ErrorSummary{2.13e-3, 1.9e-3, "", true};
    }
    report.rows.push_back(row);
    return report.rows.back();
  };
  add("recurrent", Scope::core, 4e-3);
  add("recurrent", Scope::forward, 5e-3).flags = {"noisy"};
  Row& few = add("chunked", Scope::core, 1.17e-3);
  few.flags = {"few_samples", "noisy"};
  few.time_s->ci95.reset();
  Row& wrong = add("chunked", Scope::forward, 0);
  wrong.status = Status::incorrect;
  wrong.reason = "output rms 0.31 | above 0.01";
  wrong.error = ErrorSummary{0.31, std::numeric_limits<double>::quiet_NaN(), "", false};
  Row& skipped = add("xform", Scope::core, 0);
  skipped.timing = Timing::graph;
  skipped.status = Status::skipped;
  skipped.reason = "no graphs on a CPU";
  Row& lab = add("xform", Scope::core, 0.5e-3);
  lab.error->lab_passed = false;
  lab.flags = {"strange"};
  Row& other = add("xform", Scope::core, 41.66e-6);
  other.case_name = "chain_equal";
  other.input_hash = "fedcba9876543210";
  return report;
}

TEST(Console, ATableACase) {
  EXPECT_EQ(console(table_report(), false),
            R"(short_tail_state  17 chunks in a chain, 1.35 GFLOP; inputs 0123456789abcdef
  core, cold
  variant      median       ±   gain   step  TFLOP/s  GB/s  µs/chunk  error out / state  verdict
  recurrent  4.000 ms  ±1.0 %  1.00×      —    0.338  2.15       235  2.1e-03 / 1.9e-03  passed
  chunked    1.170 ms       —  3.42×  3.42×     1.15  7.35      68.8  2.1e-03 / 1.9e-03  passed ¹ ²
  xform      500.0 µs  ±1.0 %  8.00×  2.34×     2.70  17.2      29.4  2.1e-03 / 1.9e-03  passed, outside the lab's bound ³
  core, graph
  variant      median       ±   gain   step  TFLOP/s  GB/s  µs/chunk  error out / state  verdict
  xform             —       —      —      —        —     —         —                  —  skipped: no graphs on a CPU
  forward, cold
  variant      median       ±   gain   step  TFLOP/s  GB/s  µs/chunk  error out / state  verdict
  recurrent  5.000 ms  ±1.0 %  1.00×      —    0.270  1.72       294  2.1e-03 / 1.9e-03  passed ²
  chunked           —       —      —      —        —     —         —      3.1e-01 / NaN  incorrect: output rms 0.31 | above 0.01
  ¹ few_samples: fewer than 6 samples: no interval, and no verdict in a comparison
  ² noisy: the 95 % interval of the median is wider than --max-noise, or absent
  ³ strange

chain_equal  17 chunks in a chain, 1.35 GFLOP; inputs fedcba9876543210
  core, cold
  variant    median       ±   gain  step  TFLOP/s  GB/s  µs/chunk  error out / state  verdict
  xform    41.66 µs  ±1.0 %  1.00×     —     32.4   206      2.45  2.1e-03 / 1.9e-03  passed
)");
  EXPECT_EQ(console(Report{}, false), "");
}

TEST(Console, TheRunsOwnWordsForAShape) {
  Report report = table_report();
  report.options["shapes"]["chain_equal"] = "1 × 8192 tokens";
  EXPECT_TRUE(
      contains(console(report, false), "chain_equal  1 × 8192 tokens; inputs fedcba9876543210\n"));
}

TEST(Console, RoundsAreNoted) {
  Report report = table_report();
  for (Row& row : report.rows)
    if (row.time_s) row.round_medians_s.assign(8, row.time_s->median);
  EXPECT_TRUE(contains(console(report, false),
                       "  ³ strange\n  median and ± are over 8 rounds, each in a fresh process\n"));
  report.rows[0].round_medians_s.resize(7);  // an unfinished run
  EXPECT_TRUE(contains(console(report, false), "over 7 to 8 rounds"));
  EXPECT_TRUE(contains(markdown(report), "\n- median and ± are over 8 rounds"));
}

TEST(Console, ColoursOnlyWhenAsked) {
  EXPECT_FALSE(contains(console(table_report(), false), "\033"));
  const std::string coloured = console(table_report(), true);
  EXPECT_TRUE(contains(coloured, "\033[32mpassed\033[0m"));
  EXPECT_TRUE(contains(coloured, "\033[31mincorrect: output rms 0.31 | above 0.01\033[0m"));
  EXPECT_TRUE(contains(coloured, "\033[33mskipped: no graphs on a CPU\033[0m"));
}

// A fault seen elsewhere: whether the cache was warm is not in the row.
TEST(Csv, OneRecordARow) {
  Report report = table_report();
  report.rows.erase(report.rows.begin(), report.rows.begin() + 2);
  report.rows.resize(2);
  report.rows[0].knobs = {{"stages", "3"}, {"threads", "512"}};
  report.rows[0].round_medians_s = {0.00117, 0.00117};
  report.rows[0].flush = "64 MiB written before each sample";
  report.rows[0].chosen = ChosenAs{"it fills the device", 21.5e-6};
  report.rows[1].tuned = TunedAs{"chain_equal", Timing::graph, 0.8125, false};
  EXPECT_EQ(
      csv(report),
      "case,variant,knobs,backend,scope,timing,timer,flush,status,reason,median_s,q1_s,q3_s,"
      "min_s,ci95_low_s,ci95_high_s,samples,rounds,host_s,tflop_per_s,gb_per_s,output_rms,state_"
      "rms,"
      "lab_passed,worst,chain_chunks,workspace_bytes,flop,bytes,input_hash,flags,tuned,auto\r\n"
      "short_tail_state,chunked,stages=3;threads=512,cpu,core,cold,clock,"
      "64 MiB written before each sample,passed,,0.00117,"
      "0.00117,0.00117,0.00117,,,0,2,0,1.1538461538461537,7.35042735042735,0.00213,0.0019,true,"
      ",17,0,1350000000,8600000,0123456789abcdef,few_samples;noisy,,auto: it fills the device; "
      "21.50 µs by the model\r\n"
      "short_tail_state,chunked,,cpu,forward,cold,clock,,incorrect,output rms 0.31 | above "
      "0.01,,,,,,,,,,,,0.31,,false,,17,0,1350000000,8600000,0123456789abcdef,,"
      "\"tuned: as for chain_equal in graph timing, distance 0.81\",\r\n");
}

TEST(Csv, QuotesAndDisarmsText) {
  const auto reason = [](const std::string& text) {
    Report report;
    report.rows = {untimed_row(Status::failed, text)};
    const std::string record = csv(report);
    const std::size_t from = record.find(",failed,") + 8;
    return record.substr(from, record.find(",,,,,,", from) - from);
  };
  EXPECT_EQ(reason("a, \"b\""), "\"a, \"\"b\"\"\"");
  EXPECT_EQ(reason("two\r\nlines"), "two  lines");
  EXPECT_EQ(reason("=1+1"), "'=1+1");
  EXPECT_EQ(reason("@cmd"), "'@cmd");
  EXPECT_EQ(reason("-2,3"), "\"'-2,3\"");
}

TEST(Markdown, ATableACase) {
  const std::string text = markdown(table_report());
  EXPECT_EQ(text.substr(0, text.find("**core, graph**")),
            R"(### short_tail_state

17 chunks in a chain, 1.35 GFLOP; inputs 0123456789abcdef

**core, cold**

| variant | median | ± | gain | step | TFLOP/s | GB/s | µs/chunk | error out / state | verdict |
|---|---:|---:|---:|---:|---:|---:|---:|---:|---|
| recurrent | 4.000 ms | ±1.0 % | 1.00× | — | 0.338 | 2.15 | 235 | 2.1e-03 / 1.9e-03 | passed |
| chunked | 1.170 ms | — | 3.42× | 3.42× | 1.15 | 7.35 | 68.8 | 2.1e-03 / 1.9e-03 | passed ¹ ² |
| xform | 500.0 µs | ±1.0 % | 8.00× | 2.34× | 2.70 | 17.2 | 29.4 | 2.1e-03 / 1.9e-03 | passed, outside the lab's bound ³ |

)");
  EXPECT_TRUE(contains(text, "| incorrect: output rms 0.31 \\| above 0.01 |"));
  EXPECT_TRUE(contains(text, "\n- ³ strange\n"));
}

TEST(Markdown, ForeignTextShowsAsItself) {
  Report report;
  report.rows = {untimed_row(Status::failed, "core<512>: a|b `c` [d](e) \\ *f* &amp;\n| next")};
  EXPECT_TRUE(contains(
      markdown(report),
      "failed: core&lt;512>: a\\|b \\`c\\` \\[d\\](e) \\\\ \\*f\\* &amp;amp; \\| next |\n"));
}

// One row of every verdict that has a time to show, and one without.
Comparison comparison() {
  Comparison comparison;
  const auto add = [&](const char* variant, double base, double head, Verdict verdict,
                       const char* reason) -> ComparedRow& {
    ComparedRow row;
    row.case_name = "chain_equal";
    row.variant = variant;
    row.base_s = base;
    row.head_s = head;
    row.ratio.value = head / base;
    row.threshold_percent = 2.5;
    row.verdict = verdict;
    row.reason = reason;
    comparison.rows.push_back(row);
    return comparison.rows.back();
  };
  add("recurrent", 4e-3, 4e-3, Verdict::same, "identical samples");
  add("chunked", 1e-3, 1.05e-3, Verdict::slower, "").ratio.interval = {{1.04, 1.06}};
  add("xform", 1e-3, 1e-3, Verdict::inconclusive, "noise").ratio.interval = {{0.9, 1.1}};
  add("wide", 1e-3, 0, Verdict::failed, "a <hang> \x01 & more");
  add("late", 0, 0, Verdict::skipped, "no graphs");
  comparison.geomean = 1.0164;
  comparison.timed_rows = 3;
  comparison.confidence = 0.975;
  comparison.warnings = {"the driver differs"};
  comparison.exit = Exit::incorrect;
  return comparison;
}

TEST(Console, AComparison) {
  EXPECT_EQ(
      console(comparison(), false),
      R"(  case         variant    scope  timing      BASE      HEAD  HEAD/BASE        interval  threshold  verdict
  chain_equal  recurrent  core   cold    4.000 ms  4.000 ms     1.000×               —      2.5 %  same: identical samples
  chain_equal  chunked    core   cold    1.000 ms  1.050 ms     1.050×   1.040 … 1.060      2.5 %  slower
  chain_equal  xform      core   cold    1.000 ms  1.000 ms     1.000×  0.9000 … 1.100      2.5 %  inconclusive: noise
  chain_equal  wide       core   cold    1.000 ms         —          —               —          —  failed: a <hang>   & more
  chain_equal  late       core   cold           —         —          —               —          —  skipped: no graphs
  the intervals hold for all rows together at 95 % (each by itself at 97.5 %); 1 of 2 contain 1: no difference
  warning: the driver differs

1 failed, 1 slower, 1 inconclusive, 1 same, 1 skipped; geometric mean of HEAD/BASE 1.016× over 3 timed rows
)");
}

TEST(Console, AgreementIsCounted) {
  Comparison whole = comparison();
  whole.rows[0].ratio.interval = {{0.8, 0.9}};
  whole.rows[3].ratio.interval = {{0.9, 1.0}};
  EXPECT_TRUE(contains(console(whole, false), "; 2 of 4 contain 1: no difference\n"));
}

TEST(Markdown, AComparisonShowsFirstWhatWantsAttention) {
  const std::string text = markdown(comparison());
  EXPECT_EQ(text.rfind("### gdnbench: ❌ incorrect, failed or missing\n\n1 failed, 1 slower", 0), 0U)
      << text;
  const std::size_t fold = text.find("<details>");
  ASSERT_NE(fold, std::string::npos);
  EXPECT_TRUE(contains(text.substr(0, fold), "| slower |"));
  EXPECT_FALSE(contains(text.substr(0, fold), "identical samples"));
  EXPECT_TRUE(contains(text.substr(fold), "identical samples"));
  Comparison fine;
  EXPECT_TRUE(contains(markdown(fine), "✅ no regression"));
}

#ifdef GDNBENCH_WITH_PUGIXML

TEST(Junit, ReadsBack) {
  pugi::xml_document document;
  const std::string text = junit(comparison());
  ASSERT_TRUE(document.load_string(text.c_str()));
  const auto suite = document.child("testsuites").child("testsuite");
  EXPECT_EQ(suite.attribute("tests").as_int(), 5);
  EXPECT_EQ(suite.attribute("failures").as_int(), 2);
  EXPECT_EQ(suite.attribute("errors").as_int(), 1);
  EXPECT_EQ(suite.attribute("skipped").as_int(), 1);
  std::vector<std::string> outcomes;
  for (const auto test : suite.children("testcase")) {
    EXPECT_STREQ(test.attribute("classname").value(), "chain_equal");
    outcomes.emplace_back(test.first_child().name());
  }
  EXPECT_EQ(outcomes,
            (std::vector<std::string>{"system-out", "failure", "error", "failure", "skipped"}));
  const auto failed = suite.find_child_by_attribute("testcase", "name", "wide core cold");
  EXPECT_STREQ(failed.child("failure").attribute("message").value(), "failed: a <hang>   & more");
  EXPECT_STREQ(failed.child("failure").attribute("type").value(), "failed");
  EXPECT_TRUE(contains(suite.child("system-out").text().get(), "warning: the driver differs"));
}

#else

TEST(Junit, SaysWhatIsMissing) { EXPECT_THROW(junit(comparison()), UserError); }

#endif

// Two rungs on two cases, by hand: every ratio below can be told from these medians.
Report knob_report() {
  Report report;
  report.fingerprint["device"]["name"] = "Test";
  report.fingerprint["revision"] = "abc";
  const auto add = [&](const char* case_name, const char* rung, std::vector<Knob> knobs,
                       double median) {
    Row row;
    row.case_name = case_name;
    row.variant = rung;
    for (const Knob& knob : knobs) row.variant += ":" + knob.name + "=" + knob.value;
    row.knobs = std::move(knobs);
    row.scope = Scope::core;
    row.timing = Timing::graph;
    row.time_s = {.median = median, .q1 = median, .q3 = median, .min = median, .ci95 = {}};
    report.rows.push_back(std::move(row));
  };
  for (const auto& [name, unit] : {std::pair{"one", 1e-6}, {"two", 2e-6}}) {
    add(name, "joint", {{"beta", "in_a"}, {"width", "64"}}, 8 * unit);
    add(name, "joint", {{"beta", "on_r"}, {"width", "64"}}, 6 * unit);
    add(name, "joint", {{"beta", "in_a"}, {"width", "32"}}, 4 * unit);
    add(name, "joint", {{"beta", "on_r"}, {"width", "32"}}, 12 * unit);
    add(name, "split", {{"width", "64"}}, 3 * unit);
    add(name, "split", {{"width", "32"}}, 1 * unit);
  }
  return report;
}

TEST(Knobs, RatiosOfWhatDiffersInNothingElse) {
  EXPECT_EQ(knobs(knob_report(), {}, Scope::core, Timing::graph).substr(0, 50),
            "# What the knobs are worth\n\nTest, core scope, grap");
  const std::string page = knobs(knob_report(), {}, Scope::core, Timing::graph);
  // beta: 6/8 and 12/4, whose geometric mean is 1.5. width: 4/8 and 12/6, together 1.
  EXPECT_TRUE(contains(page, R"(## `joint`: beta

| beta | one | two | all |
|---|---:|---:|---:|
| in_a | 1.000 | 1.000 | 1.000 |
| on_r | 1.500 | 1.500 | 1.500 |
)")) << page;
  EXPECT_TRUE(contains(page, "| 32 | 1.000 | 1.000 | 1.000 |\n\n## `split` over `joint`"));
  // The fastest: 1/4. With width 64 the other's fastest is 6, with 32 it is 4.
  EXPECT_TRUE(contains(page,
                       "| fastest instances | 0.250 | 0.250 | 0.250 |\n"
                       "| width=64 | 0.500 | 0.500 | 0.500 |\n"
                       "| width=32 | 0.250 | 0.250 | 0.250 |\n"))
      << page;
  EXPECT_EQ(knobs(knob_report(), {}, Scope::forward, Timing::graph), "");
}

TEST(Knobs, SettingsOfTheTimerAreInLabTiming) {
  Report spin = knob_report();
  for (Row row : knob_report().rows) {
    row.timing = Timing::lab;
    spin.rows.push_back(row);
  }
  spin.options["schedule"] = "spin";
  Report blocking = spin;
  blocking.options["schedule"] = "blocking";
  for (Row& row : blocking.rows) row.time_s->median *= 1.25;
  const std::string page = knobs(spin, {blocking}, Scope::core, Timing::graph);
  EXPECT_TRUE(contains(page,
                       "| schedule spin, batch 1 | 1.000 | 1.000 | 1.000 |\n"
                       "| schedule blocking, batch 1 | 1.250 | 1.250 | 1.250 |\n"))
      << page;
}

// A file beside another must differ from it, in a setting and in lab timing; else every ratio is 1.
TEST(Knobs, RefusesTheSameSettingTwiceAndRowsThatDoNotMeet) {
  Report report = knob_report();
  EXPECT_THROW(knobs(report, {report}, Scope::core, Timing::graph), UserError);
  Report other = report;
  other.options["schedule"] = "blocking";  // but no row of it is in lab timing
  EXPECT_THROW(knobs(report, {other}, Scope::core, Timing::graph), UserError);
}

TEST(Knobs, AKnobOfSomeInstancesHasATableToo) {
  Report report = knob_report();
  for (const double median : {5e-6, 10e-6}) {
    Row row = report.rows.back();
    row.case_name = "one";
    row.knobs = {{"width", "64"}, {"stages", median < 6e-6 ? "2" : "3"}};
    row.variant = "split:width=64:stages=" + row.knobs[1].value;
    row.time_s->median = median;
    report.rows.push_back(row);
  }
  EXPECT_TRUE(contains(knobs(report, {}, Scope::core, Timing::graph), "## `split`: stages"));
}

// What is no text in a fingerprint is not there; what is one cannot break a table.
TEST(Ladder, AndKnobsTakeAnyFingerprint) {
  for (const auto& device :
       {nlohmann::json("H200"), nlohmann::json(), nlohmann::json(1), nlohmann::json{{"name", 3}}}) {
    Report report = knob_report();
    report.fingerprint["device"] = device;
    report.fingerprint["revision"] = 7;
    EXPECT_TRUE(contains(ladder(report, Scope::core, Timing::graph), "unknown device"));
    EXPECT_TRUE(contains(knobs(report, {}, Scope::core, Timing::graph), "unknown device"));
  }
  Report report = knob_report();
  report.rows[0].case_name = "a\nb";
  EXPECT_FALSE(contains(ladder(report, Scope::core, Timing::graph), "a\nb"));
}

TEST(Ladder, LeavesOutWhatIsSkippedEverywhere) {
  Report report = knob_report();
  Row row = report.rows.front();
  row.variant = "too_wide";
  row.status = Status::skipped;
  row.time_s.reset();
  report.rows.push_back(row);
  EXPECT_FALSE(contains(ladder(report, Scope::core, Timing::graph), "too_wide"));
  report.rows.back().status = Status::failed;
  EXPECT_TRUE(contains(ladder(report, Scope::core, Timing::graph), "too_wide"));
}

TEST(Console, ATimeBelowTheNormalNumbers) { EXPECT_EQ(format_time(5e-324), "0.000000000000 ns"); }

}  // namespace
}  // namespace gdn
