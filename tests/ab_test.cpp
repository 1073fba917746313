// `gdnbench ab` and `run --against` as their users meet them. Where a verdict is expected, the
// difference is so large, or the time so short, that no other load of the machine decides.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/json_schema.hpp"
#include "tests/kills.hpp"
#include "tests/tool.hpp"

namespace gdn {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using test::chunked;
using test::deadline_s;
using test::Ended;
using test::expect_refusals;
using test::expect_refused;
using test::faulty_tool;
using test::first_lines;
using test::Folder;
using test::has;
using test::joined;
using test::of_another_build;
using test::Process;
using test::read_file;
using test::read_json;
using test::run_program;
using test::tool;
using test::Words;
using test::write_text;
using test::xform;

Words ab(const Words& more) {
  return joined({"ab", "--backend", "cpu", "--case", "edge_lengths:tokens=65", "--timing", "hot",
                 "--json", "r.json"},
                more);
}

// A comparison of two pairs, which are too few for any verdict.
Words no_time(const Words& more) { return joined(ab({"--timeout", "1e-6"}), more); }

// The rows of the results, which conform to their schema.
json rows_in(const Folder& folder) {
  const JsonSchema schema(read_json(GDNBENCH_SOURCE_DIR "/docs/result-schema.json"));
  const json results = read_json(folder / "r.json");
  EXPECT_EQ(schema.faults(results), Words{});
  return results.at("results");
}

void expect_nothing_written(const Folder& folder) {
  EXPECT_FALSE(std::filesystem::exists(folder / "r.json"));
  EXPECT_FALSE(std::filesystem::exists(folder / "r.json.jsonl"));
}

TEST(Ab, HelpTeaches) {
  Folder folder;
  EXPECT_HAS(run_program(folder, tool, {"--help"}).out, "Is B faster than A?");
  const Ended help = run_program(folder, tool, {"ab", "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* part : {"--repeat", "--against PROGRAM", "the noise floor", "Exit codes"})
    EXPECT_HAS(help.out, part);
}

TEST(Ab, BadCommandLinesAreRefusedWithTheRemedy) {
  Folder folder;
  expect_refusals(
      folder,
      {
          {{"ab"}, "--a is required"},
          {{"ab", "--a", chunked, "--b", chunked}, "--case is missing"},
          {ab({"--b", chunked}), "--a is required"},
          {ab({"--a", chunked}), "--b is required"},
          {ab({"--a", "chunked", "--b", chunked}),
           "--a chunked: one instance is wanted, these are 6:\n  chunked:chunk=64:threads=all\n"},
          {ab({"--a", "chunkd", "--b", chunked}),
           "--a chunkd: the cpu backend has no such variant; did you mean \"chunked\"?"},
          {ab({"--a", chunked, "--b", "xfrom"}),
           "--b xfrom: the cpu backend has no such variant; did you mean \"xform\"?"},
          {ab({"--a", "auto", "--b", chunked}),
           "--a auto: what stands for one variant of each case"},
          {ab({"--a", chunked, "--b", chunked, "--difference", "0"}), "--difference"},
          {ab({"--a", chunked, "--b", chunked, "--min-pairs", "5"}), "--min-pairs"},
          {ab({"--a", chunked, "--b", chunked, "--repeat", "0"}), "--repeat"},
          {ab({"--a", chunked, "--b", chunked, "--timeout", "0"}), "--timeout"},
          {ab({"--a", chunked, "--b", chunked, "--seed", "-1"}),
           "--seed: \"-1\" is not a whole number"},
          {ab({"--a", chunked, "--b", chunked, "--caes", "x"}), "did you mean \"--case\"?"},
          {{"run", "--case", "short_tail_state", "--json", "r.json", "--against", tool, "--rounds",
            "2"},
           "--against takes pairs, which --rounds cannot add up"},
          {{"run", "--case", "short_tail_state", "--json", "r.json", "--difference", "2"},
           "--difference requires --against"},
      });
}

// One kernel and the same made longer: by 10 %, where half of 100 % must not be overlooked, and
// by four times its time. A busy machine may need far more than the usual time for 20 pairs.
TEST(Ab, VerdictsAndExitCodes) {
  const std::string right = "slowed:percent=0";
  const std::string longer = "slowed:percent=10";
  const std::string five_times = "slowed:percent=400";
  struct Expected {
    std::string a, b, verdict;
    int exit_code;
    double low, high;  // of B/A
  };
  const std::vector<Expected> all = {{right, longer, "same", 0, 1 / 1.5, 1.5},
                                     {five_times, right, "faster", 0, 0, 1 / 1.5},
                                     {right, five_times, "slower", 1, 1.5, 100}};
  for (const auto& [a, b, verdict, exit_code, low, high] : all) {
    Folder folder;
    const Ended ended = run_program(
        folder, faulty_tool, ab({"--a", a, "--b", b, "--difference", "100", "--timeout", "60"}));
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err << ended.out;
    EXPECT_HAS(ended.out, verdict);
    const json rows = rows_in(folder);
    ASSERT_EQ(rows.size(), 1U);
    const json& row = rows[0];
    EXPECT_EQ(row["status"], "passed");
    EXPECT_EQ(row["variant"], b);
    const json& against = row["against"];
    EXPECT_EQ(against["variant"], a);
    EXPECT_EQ(against["revision"], "");
    EXPECT_EQ(against["verdict"], verdict);
    EXPECT_EQ(against["difference_percent"], 100.0);
    EXPECT_EQ(against["repeats"], json::array());
    EXPECT_GT(against["ratio"], low);
    EXPECT_LT(against["ratio"], high);
    EXPECT_LE(against["ci95"][0], against["ratio"]);
    EXPECT_GE(against["ci95"][1], against["ratio"]);
    EXPECT_GE(against["pairs"], 20);
    EXPECT_EQ(against["pairs"], row["samples"]);
    EXPECT_EQ(against["samples_s"].size(), row["samples_s"].size());
    EXPECT_GT(against["median_s"], 0.0);
  }
}

TEST(Ab, TooFewPairsAreInconclusiveAndTheGravestRowDecides) {
  Folder folder;
  const Ended open =
      run_program(folder, faulty_tool, no_time({"--a", "chunked", "--b", "slowed:percent=400"}));
  EXPECT_EQ(open.exit_code, 3) << open.err;
  const json against = rows_in(folder)[0]["against"];
  EXPECT_EQ(against["verdict"], "inconclusive");
  EXPECT_EQ(against["pairs"], 2);
  EXPECT_TRUE(against["ci95"].is_null());
  const Ended wrong = run_program(
      folder, faulty_tool, no_time({"--a", "chunked", "--b", "slowed:percent=400,wrong,picky"}));
  EXPECT_EQ(wrong.exit_code, 2) << wrong.err;
  const json rows = rows_in(folder);
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0]["status"], "incorrect");
  EXPECT_EQ(rows[1]["against"]["verdict"], "inconclusive");
  EXPECT_EQ(rows[2]["status"], "skipped");
  EXPECT_TRUE(rows[2]["against"].is_null());
}

struct Fault {
  std::string variant, status, reason;
};
const std::vector<Fault> faults = {
    {"wrong", "incorrect", "off by"},        {"flaky", "incorrect", "second run"},
    {"tires", "incorrect", "timed runs"},    {"lazy", "incorrect", "timed runs"},
    {"throws", "failed", "no launch today"}, {"crashes", "failed", "Segmentation fault"},
    {"exits", "failed", "exit code 17"},     {"hangs", "failed", "no answer within 10 s"},
};

// A faulty B costs its own row and no other.
TEST(Ab, AFaultyBHasNoVerdict) {
  Folder folder;
  std::string all = "recurrent,chunked";
  for (const Fault& fault : faults) all += "," + fault.variant;
  const Ended ended = run_program(
      folder, faulty_tool,
      ab({"--a", "slowed:percent=0", "--b", all, "--deadline", deadline_s, "--timeout", "0.5"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  std::map<std::string, json> rows;
  for (const json& row : rows_in(folder)) rows[row["variant"]] = row;
  EXPECT_EQ(rows.size(), faults.size() + 2);
  for (const char* right : {"recurrent", "chunked"}) {
    EXPECT_EQ(rows[right]["status"], "passed") << rows[right]["reason"];
    EXPECT_TRUE(rows[right]["against"].is_object());
  }
  for (const auto& [variant, status, reason] : faults) {
    const json& row = rows[variant];
    EXPECT_EQ(row["status"], status) << variant << row["reason"];
    EXPECT_HAS(row["reason"].get<std::string>(), reason);
    EXPECT_FALSE(has(row["reason"], "A, "));
    EXPECT_TRUE(row["against"].is_null());
    EXPECT_TRUE(row["time_s"].is_null());
    EXPECT_HAS(ended.out, reason);
  }
}

TEST(Ab, AFaultyAHasNoVerdictEither) {
  for (const auto& [variant, status, reason] : faults) {
    Folder folder;
    const Ended ended = run_program(
        folder, faulty_tool,
        ab({"--a", variant, "--b", "chunked", "--deadline", deadline_s, "--timeout", "0.5"}));
    EXPECT_EQ(ended.exit_code, 2) << variant << ended.err;
    const json rows = rows_in(folder);
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0]["variant"], "chunked");
    EXPECT_EQ(rows[0]["status"], status) << variant << rows[0]["reason"];
    EXPECT_HAS(rows[0]["reason"].get<std::string>(), "A, " + variant + ": ");
    EXPECT_HAS(rows[0]["reason"].get<std::string>(), reason);
    EXPECT_TRUE(rows[0]["against"].is_null());
    EXPECT_TRUE(rows[0]["time_s"].is_null());
  }
}

TEST(Ab, EveryRepeatIsKept) {
  Folder folder;
  const Ended ended =
      run_program(folder, tool, no_time({"--a", chunked, "--b", chunked, "--repeat", "2"}));
  EXPECT_EQ(ended.exit_code, 3) << ended.err;
  EXPECT_HAS(ended.out, "2 comparisons: 2 inconclusive; the longest took ");
  const json against = rows_in(folder)[0]["against"];
  EXPECT_EQ(against["pairs"], 4);  // of both together
  ASSERT_EQ(against["repeats"].size(), 2U);
  for (const json& once : against["repeats"]) {
    EXPECT_EQ(once["pairs"], 2);
    EXPECT_EQ(once["verdict"], "inconclusive");
    EXPECT_GT(once["time_s"], 0.0);
  }
}

TEST(Ab, LosesAndDoublesNothingOver20Kills) {
  const std::size_t rows = 15 * 2;  // lengths, Bs
  test::expect_20_kills_lose_nothing(
      {"ab", "--backend", "cpu", "--case", "edge_lengths:tokens=?,edge_lengths:tokens=??", "--set",
       "query_heads=1", "--set", "value_heads=1", "--timing", "hot", "--timeout", "1e-6", "--a",
       chunked, "--b", std::string(chunked) + "," + xform, "--json", "r.json"},
      rows, 1, 3);
}

// Each row with its like in another build, which here is the same.
TEST(Against, TheSameBuildIsComparedAndNamed) {
  Folder folder;
  const Ended ended = run_program(folder, tool,
                                  {"run",
                                   "--backend",
                                   "cpu",
                                   "--case",
                                   "edge_lengths:tokens=65",
                                   "--scope",
                                   "core,forward",
                                   "--timing",
                                   "hot",
                                   "--variant",
                                   std::string(chunked) + "," + xform,
                                   "--timeout",
                                   "1e-6",
                                   "--against",
                                   tool,
                                   "--json",
                                   "r.json",
                                   "--csv",
                                   "r.csv",
                                   "--markdown",
                                   "r.md"});
  EXPECT_EQ(ended.exit_code, 3) << ended.err;
  const json results = read_json(folder / "r.json");
  const std::string revision = results["fingerprint"]["revision"];
  EXPECT_EQ(results["options"]["against"]["build"]["revision"], revision);
  const json rows = rows_in(folder);
  ASSERT_EQ(rows.size(), 4U);
  for (const json& row : rows) {
    EXPECT_EQ(row["status"], "passed") << row["reason"];
    EXPECT_EQ(row["against"]["variant"], row["variant"]);
    EXPECT_EQ(row["against"]["revision"], revision);
    EXPECT_HAS(ended.out, row["variant"].get<std::string>() + " of " + revision);
  }
}

TEST(Against, WhatTheOtherBuildLacksIsSkipped) {
  Folder folder;
  const Ended ended = run_program(
      folder, faulty_tool, no_time({"--a", "wrong", "--b", "slowed:percent=0", "--against", tool}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json row = rows_in(folder)[0];
  EXPECT_EQ(row["status"], "skipped");
  EXPECT_EQ(row["reason"], "the other build has no such instance");
}

// What A does in the other build is A's fault, and B still stands.
TEST(Against, FaultsOfTheOtherBuildAreNamed) {
  Folder folder;
  const Ended ended = run_program(folder, faulty_tool,
                                  no_time({"--a", "hangs", "--b", "chunked", "--against",
                                           faulty_tool, "--deadline", deadline_s}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  EXPECT_HAS(rows_in(folder)[0]["reason"].get<std::string>(), "A, hangs: no answer within 10 s");
}

TEST(Against, IsResumedWithTheSameBuildAlone) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool,
                        no_time({"--a", chunked, "--b", std::string(chunked) + "," + xform,
                                 "--against", tool}))
                .exit_code,
            3);
  const std::string journal = first_lines(read_file(folder / "r.json.jsonl"), 2);
  const auto resume = [&](const std::string& before) {
    write_text(folder / "r.json.jsonl", before);
    return run_program(folder, tool, {"run", "--resume", "r.json.jsonl"});
  };
  EXPECT_EQ(resume(journal).exit_code, 3);
  EXPECT_EQ(rows_in(folder).size(), 2U);
  expect_refused(resume(of_another_build(journal, journal.find("\"against\":"))),
                 "against: build: binary_hash");
}

// An executable script of /bin/sh.
std::string script(const Folder& folder, const std::string& name, const std::string& lines) {
  write_text(folder / name, "#!/bin/sh\n" + lines);
  chmod((folder / name).c_str(), 0755);
  return folder / name;
}

TEST(Against, WhatIsNoOtherBuildIsRefused) {
  Folder folder;
  write_text(folder / "notes.txt", "not a program\n");
  write_text(folder / "empty", "");
  chmod((folder / "empty").c_str(), 0755);
  const std::string said = "it does not answer as gdnbench does";
  const auto answers = [&](const std::string& name, const std::string& line) {
    return script(folder, name, "echo '" + line + "' >&3\nexec sleep 100\n");
  };
  const std::vector<std::pair<std::string, std::string>> refusals = {
      {folder / "nowhere", "nowhere: No such file or directory; give the gdnbench of another"},
      {folder.path(), "Is a directory; give the gdnbench of another build"},
      {folder / "notes.txt", "notes.txt: Permission denied; give the gdnbench of another build"},
      {folder / "empty", said},
      {"/bin/cat", said},
      {"/bin/true", said},
      {answers("babbles", "hello"), said},
      {answers("lists", "[1]"), said},
      {answers("vague", R"({"id":1,"protocol":2})"), said},
      {answers("old", R"({"id":1,"device":{},"fingerprint":{}})"),
       "that build speaks version 1 of the workers' protocol, this one 2"},
      {answers("new", R"({"id":1,"protocol":99})"),
       "that build speaks version 99 of the workers' protocol, this one 2"},
      {script(folder, "silent", "exec sleep 100\n"), "no answer within 10 s"},
  };
  for (const auto& [program, message] : refusals) {
    const Ended ended = run_program(
        folder, tool,
        no_time({"--a", chunked, "--b", chunked, "--deadline", deadline_s, "--against", program}));
    SCOPED_TRACE(program);
    expect_refused(ended, message);
    EXPECT_EQ(ended.out, "");
    expect_nothing_written(folder);
  }
}

TEST(Against, NothingIsLeftRunning) {
  Folder folder;
  const std::string silent = script(folder, "silent", "echo $$ > pid\nexec sleep 100\n");
  const Ended ended = run_program(
      folder, tool,
      no_time({"--a", chunked, "--b", chunked, "--deadline", deadline_s, "--against", silent}));
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  pid_t pid = 0;
  std::ifstream(folder / "pid") >> pid;
  ASSERT_GT(pid, 0);
  EXPECT_TRUE(kill(pid, 0) != 0 && errno == ESRCH);
}

// The process whose id the file will have; 0 where none comes.
pid_t process_in(const std::string& path) {
  pid_t pid = 0;
  for (int i = 0; i < 3000 && pid == 0; ++i) {
    if (std::ifstream file(path); !(file >> pid)) std::this_thread::sleep_for(10ms);
  }
  return pid;
}

// Whether it ends. One that nobody has waited for yet is at its end.
bool ends(pid_t pid) {
  for (int i = 0; i < 3000; ++i) {
    const std::string status = read_file("/proc/" + std::to_string(pid) + "/status");
    if (status.empty() || has(status, "State:\tZ")) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

// A script stands between the run and what it starts, and neither outlives the run, however that
// ends.
TEST(Against, NothingThatAScriptStartsIsLeftRunning) {
  for (const bool killed : {false, true}) {
    Folder folder;
    const std::string wrapper = script(folder, "wrapper", "sleep 1000 &\necho $! > pid\nwait\n");
    Process run(folder, tool,
                no_time({"--a", chunked, "--b", chunked, "--deadline", killed ? "100" : deadline_s,
                         "--against", wrapper}));
    const pid_t pid = process_in(folder / "pid");
    ASSERT_GT(pid, 0);
    if (killed) run.kill_now();
    EXPECT_EQ(run.wait().exit_code, killed ? 128 + SIGKILL : 4);
    EXPECT_TRUE(ends(pid)) << killed;
    kill(pid, SIGKILL);  // where the test has failed
  }
}

}  // namespace
}  // namespace gdn
