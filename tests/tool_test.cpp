// The finished program as its users meet it: commands, exit codes, files, kills.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "src/result.hpp"
#include "src/safetensors.hpp"
#include "tests/kills.hpp"
#include "tests/tool.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::chunked;
using test::deadline_s;
using test::each_first;
using test::Ended;
using test::expect_20_kills_lose_nothing;
using test::expect_refusals;
using test::expect_refused;
using test::faulty_tool;
using test::first_lines;
using test::Folder;
using test::has;
using test::joined;
using test::keys_of;
using test::lines_of;
using test::of_another_build;
using test::read_file;
using test::read_json;
using test::run_arguments;
using test::run_program;
using test::tool;
using test::write_text;

json row_of(const json& report, const std::string& variant, const std::string& scope) {
  for (const json& row : report.at("results"))
    if (row.at("variant").get<std::string>() == variant &&
        row.at("scope").get<std::string>() == scope)
      return row;
  throw std::runtime_error("no row " + variant + " " + scope);
}

// A fault seen elsewhere: whether the cache was warm is not in the row.
TEST(Run, DoesTheWholeJob) {
  Folder folder;
  const Ended ended =
      run_program(folder, tool,
                  run_arguments({"--case", "short_tail_state", "--variant", each_first, "--json",
                                 "r.json", "--csv", "r.csv", "--markdown", "r.md"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, "short_tail_state");
  EXPECT_HAS(ended.err,  // plain when piped
             "[6/6] short_tail_state xform:chunk=64:threads=all forward cold: passed");
  const json report = read_json(folder / "r.json");
  EXPECT_EQ(report["schema"], "gdnbench/1");
  ASSERT_EQ(report["results"].size(), 6u);
  for (const json& row : report["results"]) {
    EXPECT_EQ(row["status"], "passed") << row.dump();
    EXPECT_GE(row["samples_s"].size(), 6u);
    EXPECT_GT(row["time_s"]["median"], 0.0);
    EXPECT_LE(row["error"]["output_rms"], 4e-3);
    EXPECT_EQ(row["chain_chunks"], 17);
    EXPECT_EQ(row["timer"], "clock");
    EXPECT_HAS(row["flush"].get<std::string>(), "MiB written");
  }
  EXPECT_HAS(read_file(folder / "r.csv"), "short_tail_state");
  EXPECT_HAS(read_file(folder / "r.md"), "| chunked");
  const Report journal = read_report(folder / "r.json.jsonl");
  EXPECT_EQ(journal.rows.size(), 6u);
}

TEST(Run, StandardOutputIsOnlyTheFormatAskedFor) {
  Folder folder;
  const Ended ended = run_program(
      folder, tool,
      run_arguments({"--case", "edge_lengths:tokens=65", "--variant", chunked, "--json", "-"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(json::parse(ended.out)["results"].size(), 2u);
  EXPECT_HAS(ended.err, "edge_lengths:tokens=65");
}

// A fault seen elsewhere: whether the cache was warm is not in the row.
TEST(Run, GraphIsSkippedWithTheReason) {
  Folder folder;
  const Ended ended = run_program(
      folder, tool,
      run_arguments({"--case", "edge_lengths:tokens=1", "--timing", "graph,hot,lab", "--variant",
                     "recurrent:threads=all", "--scope", "core", "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json rows = read_json(folder / "r.json")["results"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["status"], "skipped");
  EXPECT_HAS(rows[0]["reason"].get<std::string>(), "no graphs");
  EXPECT_EQ(rows[1]["status"], "passed");
  EXPECT_EQ(rows[1]["flush"], "none");
  EXPECT_EQ(rows[2]["samples"], 100);
}

TEST(Run, EveryEdgeCasePasses) {
  Folder folder;
  const Ended ended =
      run_program(folder, tool,
                  run_arguments({"--case", "edge_lengths,edge_ragged", "--variant", "*threads=all",
                                 "--timing", "hot", "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json report = read_json(folder / "r.json");
  for (const json& row : report["results"])
    EXPECT_EQ(row["status"], "passed") << row["case"] << row["variant"] << row["reason"];
}

// A fault seen elsewhere: no CUPTI records, and another timer takes its place in silence.
TEST(Usage, CuptiThatIsNotThereIsAnError) {
  Folder folder;
  const Ended ended = run_program(
      folder, tool,
      run_arguments({"--case", "edge_lengths:tokens=1", "--timer", "cupti", "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err, "--timer cupti: the CPU backend has only the clock; leave --timer out");
  EXPECT_FALSE(std::filesystem::exists(folder / "r.json"));
}

TEST(Usage, BadCommandLinesAreRefusedWithExitCode4AndTheRemedy) {
  Folder folder;
  expect_refusals(
      folder,
      {
          {{}, "subcommand"},
          {{"rum"}, "did you mean \"run\""},
          {{"run", "--caze", "x"}, "did you mean \"--case\""},
          {{"run"}, "--case"},
          {{"run", "--case", "short_tail_stat"}, "did you mean \"short_tail_state\""},
          {{"run", "--case", "nothing:*"}, "nothing:*"},
          {{"run", "--case", "missing/file.yaml"}, "missing/file.yaml"},
          {{"run", "--backend", "cpu", "--case", "short_tail_state", "--variant", "chunkd"},
           "did you mean \"chunked\""},
          {{"run", "--case", "short_tail_state", "--scope", "cor"}, "did you mean \"core\""},
          {{"run", "--case", "short_tail_state", "--timing", "colt"}, "did you mean \"cold\""},
          {{"run", "--case", "short_tail_state", "--backend", "gpu"}, "--backend"},
          {{"run", "--case", "short_tail_state", "--min-samples", "0"}, "--min-samples"},
          {{"run", "--case", "short_tail_state", "--max-noise", "-1"}, "--max-noise"},
          {{"run", "--case", "short_tail_state", "--timeout", "soon"}, "--timeout"},
          {{"run", "--case", "short_tail_state", "--rounds", "0"}, "--rounds"},
          {{"run", "--case", "short_tail_state", "--rounds", "101"}, "--rounds"},
          {{"run", "--case", "short_tail_state", "--set", "tokens"}, "FIELD=VALUE"},
          {{"run", "--case", "short_tail_state", "--set", "token=5"}, "did you mean \"tokens\""},
          {{"run", "--case", "short_tail_state", "--set", "tokens=010"}, "--set"},
          {{"run", "--case", "short_tail_state", "--json", "no/such/folder/r.json"}, "folder"},
          {{"run", "--case", "short_tail_state", "--seed", "-1"},
           "--seed -1:1:1: `seed` is \"-1\""},
          {{"run", "--inputs", "missing.safetensors"}, "missing.safetensors"},
          {{"run", "--inputs", "x", "--case", "short_tail_state"}, "--inputs takes the place"},
          {{"run", "--resume", "missing.jsonl"}, "missing.jsonl"},
          {{"run", "--case", "short_tail_state", "--device", "-1"},
           "--device: \"-1\" is not the number of a device"},
          {{"run", "--case", "short_tail_state", "--device", "99999999999"},
           "--device: \"99999999999\" is not the number of a device"},
          {{"inputs", "--case", "edge_lengths", "--output", "x"},
           "23 are selected; give one name of"},
          {{"run", "--case", "short_tail_state", "--seed", ""}, "--seed: an empty word"},
          {{"ab", "--case", "short_tail_state", "--a", "", "--b", "recurrent"},
           "--a: an empty word"},
          {{"tune", "--case", "short_tail_state", "--shard", ""}, "--shard: an empty word"},
          {{"profile", "--case", "short_tail_state", "--variant", "recurrent", "--scope", ""},
           "--scope: an empty word"},
          {{"compare", "", "a.json"}, "BASE: an empty path"},
          {{"report", ""}, "FILE: an empty path"},
          {{"compare", "a.json"}, "HEAD"},
          {{"compare", "a.json", "b.json"}, "no such file"},
          {{"list"}, "subcommand"},
      });
}

TEST(Usage, HelpTeaches) {
  Folder folder;
  const Ended help = run_program(folder, tool, {"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_HAS(help.out, "gdnbench run --case short_tail_state");
  EXPECT_FALSE(has(help.out, "worker"));
  EXPECT_HAS(run_program(folder, tool, {"run", "--help"}).out, "Exit codes");
  EXPECT_HAS(run_program(folder, tool, {"--version"}).out, "gdnbench 0.1.0 (");
  EXPECT_HAS(run_program(folder, tool, {"list", "cases"}).out, "wide_gva_state");
  EXPECT_HAS(run_program(folder, tool, {"list", "variants"}).out, "xform");
  EXPECT_HAS(run_program(folder, tool, {"list", "devices"}).out, "cpu");
  EXPECT_HAS(run_program(folder, tool, {"doctor"}).out, "CPU backend");
}

TEST(Inputs, AFileStandsForItsCase) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool,
                        {"inputs", "--case", "edge_ragged:sequences=0+64+0+7:initial_state=true",
                         "--output", "in.safetensors"})
                .exit_code,
            0);
  const Ended from_file = run_program(
      folder, tool,
      run_arguments({"--inputs", "in.safetensors", "--variant", each_first, "--json", "f.json"}));
  EXPECT_EQ(from_file.exit_code, 0) << from_file.err;
  const Ended from_case =
      run_program(folder, tool,
                  run_arguments({"--case", "edge_ragged:sequences=0+64+0+7:initial_state=true",
                                 "--variant", each_first, "--json", "c.json"}));
  EXPECT_EQ(from_case.exit_code, 0) << from_case.err;
  const json file = read_json(folder / "f.json")["results"];
  const json generated = read_json(folder / "c.json")["results"];
  ASSERT_EQ(file.size(), generated.size());
  EXPECT_EQ(file[0]["case"], "file:in");
  EXPECT_EQ(file[0]["input_hash"], generated[0]["input_hash"]);
  EXPECT_EQ(file[0]["error"]["output_rms"], generated[0]["error"]["output_rms"]);
}

TEST(Dump, HoldsOutputReferenceAndDifference) {
  Folder folder;
  const Ended ended = run_program(folder, tool,
                                  run_arguments({"--case", "edge_lengths:tokens=3", "--variant",
                                                 chunked, "--scope", "core", "--dump", "dumped"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::string text =
      read_file(folder / "dumped/edge_lengths:tokens=3." + chunked + ".core.safetensors");
  for (const char* name : {"\"output\"", "\"reference\"", "\"difference\"", "\"final_state\""})
    EXPECT_TRUE(has(text, name)) << name;
}

// "case variant" of the lines of progress, in their order, of each round.
std::map<int, std::vector<std::string>> measured_in_rounds(const std::string& err) {
  std::map<int, std::vector<std::string>> rounds;
  std::istringstream lines(err);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t round = line.find(", round ");
    const std::size_t name = line.find("] ");
    if (round == std::string::npos || name == std::string::npos) continue;
    rounds[std::stoi(line.substr(round + 8))].push_back(
        line.substr(name + 2, line.find(" core ") - name - 2));
  }
  return rounds;
}

TEST(Rounds, GoThroughThePlanInOtherOrders) {
  Folder folder;
  const Ended ended = run_program(
      folder, tool,
      run_arguments({"--case", "edge_lengths:tokens=1,edge_lengths:tokens=3,edge_lengths:tokens=7",
                     "--variant", each_first, "--scope", "core", "--rounds", "6", "--json",
                     "r.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.err,
             "[9/54, round 1] edge_lengths:tokens=7 xform:chunk=64:threads=all core cold: passed");
  EXPECT_HAS(ended.err, "[54/54, round 6] ");
  EXPECT_HAS(ended.out, "edge_lengths:tokens=1  ");
  EXPECT_LT(ended.out.find("tokens=3  "), ended.out.find("tokens=7  "));
  EXPECT_HAS(ended.out, "over 6 rounds");

  std::map<int, std::vector<std::string>> rounds = measured_in_rounds(ended.err);
  ASSERT_EQ(rounds.size(), 6U);
  std::set<std::vector<std::string>> orders;
  for (auto& [round, order] : rounds) {
    orders.insert(order);
    std::vector<std::string> cases;  // as they are laid out, each once
    for (const std::string& row : order) cases.push_back(row.substr(0, row.find(' ')));
    cases.erase(std::unique(cases.begin(), cases.end()), cases.end());
    EXPECT_EQ(cases.size(), 3U) << testing::PrintToString(order);
    std::ranges::sort(order);
    EXPECT_EQ(order, rounds[1]) << round;
  }
  EXPECT_GE(orders.size(), 5U);

  for (const Row& row : read_report(folder / "r.json").rows) {
    EXPECT_EQ(row.round_medians_s.size(), 6U);
    EXPECT_GE(row.samples, 36);  // six a round at least
    const auto [low, high] = std::ranges::minmax(row.round_medians_s);
    EXPECT_EQ(row.time_s->ci95, std::pair(low, high));
  }
}

// A round that shows another result, or a row that cannot be measured, ends the row's rounds.
TEST(Rounds, AreFreshProcessesAndOnlyOfRowsThatPass) {
  Folder folder;
  const Ended ended =
      run_program(folder, faulty_tool,
                  run_arguments({"--case", "edge_lengths:tokens=65", "--scope", "core", "--timing",
                                 "hot", "--variant", "moody,picky,wrong,chunked", "--rounds", "4",
                                 "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const json report = read_json(folder / "r.json");
  const json moody = row_of(report, "moody", "core");
  EXPECT_EQ(moody["status"], "incorrect");
  EXPECT_EQ(moody["reason"], "round 2 gives another result bit for bit");
  EXPECT_TRUE(moody["time_s"].is_null());
  EXPECT_HAS(row_of(report, "wrong", "core")["reason"].get<std::string>(), "off by");
  EXPECT_EQ(row_of(report, "chunked", "core")["round_medians_s"].size(), 4U);
  const std::map<std::string, std::size_t> expected = {
      {"edge_lengths:tokens=65/moody/core/hot", 2},
      {"edge_lengths:tokens=65/picky/core/hot", 1},
      {"edge_lengths:tokens=65/wrong/core/hot", 1},
      {"edge_lengths:tokens=65/chunked/core/hot", 4}};
  EXPECT_EQ(lines_of(folder / "r.json.jsonl"), expected);
}

// A fault seen elsewhere: one abort loses every result so far.
// Each fault costs its own row, with the reason, and nothing else.
TEST(Faults, EachCostsItsOwnRow) {
  Folder folder;
  const Ended ended =
      run_program(folder, faulty_tool,
                  run_arguments({"--case", "edge_lengths:tokens=65", "--scope", "core", "--timing",
                                 "hot", "--deadline", deadline_s, "--json", "r.json"},
                                "cpu", "2"));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const json report = read_json(folder / "r.json");
  const std::vector<std::tuple<std::string, std::string, std::string>> expected = {
      {"recurrent", "passed", ""},
      {"wrong", "incorrect", "off by"},
      {"nan", "incorrect", "not a finite number"},
      {"forgets_state", "incorrect", "state"},
      {"flaky", "incorrect", "second run"},
      {"tires", "incorrect", "timed runs"},
      {"lazy", "incorrect", "timed runs"},
      {"moody", "passed", ""},
      {"overruns", "incorrect", "past an end of output"},
      {"underruns", "incorrect", "past an end of g"},
      {"scribbles", "incorrect", "inputs"},
      {"throws", "failed", "no launch today"},
      {"crashes", "failed", "Segmentation fault"},
      {"exits", "failed", "exit code 17"},
      {"hangs", "failed", "no answer within 12 s"},
      {"alone", "passed", ""},
      {"knobs:threads=64:width=128", "passed", ""},
      {"knobs:threads=512:width=128", "passed", ""},
      {"slowed:percent=0", "passed", ""},
      {"slowed:percent=10", "passed", ""},
      {"slowed:percent=400", "passed", ""},
      {"picky", "skipped", "likes no problem"},
      {"greedy", "failed", "out of memory"},
      {"bounded", "passed", ""},
      {"chunked", "passed", ""},
  };
  EXPECT_EQ(report["results"].size(), expected.size());
  for (const auto& [variant, status, reason] : expected) {
    const json row = row_of(report, variant, "core");
    EXPECT_EQ(row["status"].get<std::string>(), status) << variant << ": " << row["reason"];
    EXPECT_HAS(row.value("reason", ""), reason);
    EXPECT_EQ(row["time_s"].is_null(), status != "passed") << variant;
  }
}

TEST(Bounds, AreListedAndStandInEachRow) {
  Folder folder;
  EXPECT_HAS(run_program(folder, faulty_tool, {"list", "variants"}).out, "drops at most a little");
  const Ended ended =
      run_program(folder, faulty_tool,
                  run_arguments({"--case", "edge_lengths:tokens=65", "--scope", "core", "--variant",
                                 "bounded,chunked", "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, "¹ drops at most a little");
  const json report = read_json(folder / "r.json");
  EXPECT_EQ(row_of(report, "bounded", "core")["bound"], "drops at most a little");
  EXPECT_EQ(row_of(report, "chunked", "core")["bound"], "");
}

// Of keys of length 2, 1 − β‖k‖² goes down to −7: a bound that takes them to be of length 1 says
// nothing.
TEST(Bounds, DoNotHoldForKeysOfAnotherLength) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool,
                        {"inputs", "--case", "edge_lengths:tokens=3", "--output", "in.safetensors"})
                .exit_code,
            0);
  {
    const SafeTensorsFile file(folder / "in.safetensors");
    SafeTensors content = file.content();
    std::vector<BFloat16> k(content.find("k")->data.size() / sizeof(BFloat16));
    std::memcpy(k.data(), content.find("k")->data.data(), k.size() * sizeof(BFloat16));
    for (BFloat16& x : k) x = to_bfloat16(2 * to_float(x));
    for (SafeTensor& tensor : content.tensors)
      if (tensor.name == "k") tensor.data = std::as_bytes(std::span(k));
    write_safetensors(folder / "long.safetensors", content);
  }
  const Ended ended = run_program(folder, faulty_tool,
                                  run_arguments({"--inputs", "long.safetensors", "--variant",
                                                 "bounded,chunked", "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json report = read_json(folder / "r.json");
  for (const char* scope : {"core", "forward"}) {
    EXPECT_EQ(row_of(report, "bounded", scope)["status"], "skipped");
    EXPECT_HAS(row_of(report, "bounded", scope)["reason"].get<std::string>(),
               "drops at most a little, which holds for keys of unit length");
    EXPECT_EQ(row_of(report, "chunked", scope)["status"], "passed");
  }
}

// A fault seen elsewhere: a candidate that timed out still runs during the next one.
TEST(Faults, AHangIsDeadBeforeTheNextRow) {
  Folder folder;
  const Ended ended = run_program(
      folder, faulty_tool,
      run_arguments({"--case", "edge_lengths:tokens=1", "--scope", "core", "--timing", "hot",
                     "--variant", "hangs,alone", "--deadline", deadline_s, "--json", "r.json"},
                    "cpu", "0.1"));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const json report = read_json(folder / "r.json");
  EXPECT_EQ(row_of(report, "hangs", "core")["status"], "failed");
  const json alone = row_of(report, "alone", "core");
  EXPECT_EQ(alone["status"], "passed") << alone["reason"];
}

// A fault seen elsewhere: another kernel was timed than the one that is named.
TEST(Faults, IdsAreFilters) {
  Folder folder;
  const auto rows = [&](const std::string& filter) {
    const Ended ended = run_program(folder, faulty_tool,
                                    run_arguments({"--case", "edge_lengths:tokens=1", "--scope",
                                                   "core", "--variant", filter, "--json", "-"}));
    std::vector<std::string> ids;
    const json report = json::parse(ended.out);
    for (const json& row : report["results"]) ids.push_back(row["variant"]);
    return ids;
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(rows("knobs:threads=64:width=128"), Ids{"knobs:threads=64:width=128"});
  EXPECT_EQ(rows("knobs"), (Ids{"knobs:threads=64:width=128", "knobs:threads=512:width=128"}));
  EXPECT_EQ(rows("knobs:threads=512*"), Ids{"knobs:threads=512:width=128"});
}

// A fault seen elsewhere: one abort loses every result so far.
TEST(Resume, LosesAndDoublesNothingOver20Kills) {
  const std::size_t rows = 15 * 2 * 3;  // lengths, scopes, variants
  expect_20_kills_lose_nothing(
      run_arguments({"--case", "edge_lengths:tokens=?,edge_lengths:tokens=??", "--set",
                     "query_heads=1", "--set", "value_heads=1", "--variant", each_first, "--timing",
                     "hot", "--json", "r.json"}),
      rows);
}

TEST(Resume, GoesOnWithTheRoundsThatAreMissing) {
  const std::size_t rows = 15 * 2;  // lengths, variants
  expect_20_kills_lose_nothing(
      run_arguments({"--case", "edge_lengths:tokens=?,edge_lengths:tokens=??", "--set",
                     "query_heads=1", "--set", "value_heads=1", "--timing", "hot", "--scope",
                     "core", "--variant", "*:chunk=64:threads=all", "--rounds", "4", "--json",
                     "r.json"}),
      rows, 4);
}

#ifdef GDNBENCH_WITH_CUDA

bool has_gpu() {
  Folder folder;
  return has(run_program(folder, tool, {"list", "devices"}).out, "cuda");
}

TEST(ResumeCuda, LosesAndDoublesNothingOver20Kills) {
  if (!has_gpu()) GTEST_SKIP() << "there is no CUDA device here";
  const std::size_t rows = 23 * 2 * 2;  // lengths, scopes, instances of the baseline
  expect_20_kills_lose_nothing(
      run_arguments({"--case", "edge_lengths", "--variant", "baseline", "--timing", "graph",
                     "--timer", "events", "--json", "r.json"},
                    "cuda"),
      rows);
}

// A fault seen elsewhere: no CUPTI records, and events take their place in silence.
TEST(FaultsCuda, RecordsThatNeverComeAreFlagged) {
  if (!has_gpu()) GTEST_SKIP() << "there is no CUDA device here";
  Folder folder;
  setenv("GDNBENCH_CUPTI", GDNBENCH_FAKE_CUPTI, 1);  // which records nothing
  const Ended ended =
      run_program(folder, tool,
                  run_arguments({"--case", "edge_lengths:tokens=65", "--variant",
                                 "baseline:stages=2", "--scope", "core", "--json", "r.json"},
                                "cuda"));
  unsetenv("GDNBENCH_CUPTI");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json row = read_json(folder / "r.json")["results"][0];
  EXPECT_EQ(row["status"], "passed") << row["reason"];
  EXPECT_TRUE(row["kernels"].empty());
  EXPECT_FALSE(row["telemetry"].contains("cupti_span_s"));
  EXPECT_NE(row["telemetry"].value("cupti", ""), "");
  const auto flagged = [&](const char* flag) {
    return std::ranges::find(row["flags"], flag) != row["flags"].end();
  };
  EXPECT_TRUE(flagged("cupti_failed") || flagged("events_only")) << row["flags"];
}

TEST(FaultsCuda, EachCostsItsOwnRow) {
  if (!has_gpu()) GTEST_SKIP() << "there is no CUDA device here";
  Folder folder;
  const Ended ended =
      run_program(folder, faulty_tool,
                  run_arguments({"--case", "edge_lengths:tokens=65", "--scope", "core", "--timing",
                                 "hot", "--deadline", "8", "--json", "r.json"},
                                "cuda", "2"));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const json report = read_json(folder / "r.json");
  const std::vector<std::tuple<std::string, std::string, std::string>> expected = {
      {"gpu_faults", "failed", "illegal memory access"},
      {"gpu_hangs", "failed", "no answer within 10 s"},
      {"gpu_wrong", "incorrect", "output"},
      {"baseline:stages=2", "passed", ""},
      {"baseline:stages=3", "passed", ""},
  };
  for (const auto& [variant, status, reason] : expected) {
    const json row = row_of(report, variant, "core");
    EXPECT_EQ(row["status"].get<std::string>(), status) << variant << ": " << row["reason"];
    EXPECT_HAS(row.value("reason", ""), reason);
  }
}

#endif

// A line torn by the kill is measured again.
TEST(Resume, GoesOnAfterATornLine) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool,
                        run_arguments({"--case", "edge_lengths:tokens=1", "--variant", each_first,
                                       "--json", "r.json"}))
                .exit_code,
            0);
  const std::vector<std::string> expected = keys_of(folder / "r.json");
  std::string journal = read_file(folder / "r.json.jsonl");
  std::filesystem::remove(folder / "r.json");
  const std::size_t cut = first_lines(journal, 3).size();
  write_text(folder / "r.json.jsonl", journal.substr(0, cut + 40));
  const Ended ended = run_program(folder, tool, {"run", "--resume", "r.json.jsonl"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(keys_of(folder / "r.json"), expected);
}

TEST(Resume, RefusesTheJournalOfAnotherBuildAndKeepsIt) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool,
                        run_arguments({"--case", "edge_lengths:tokens=1", "--variant", each_first,
                                       "--json", "r.json"}))
                .exit_code,
            0);
  const std::string journal = of_another_build(read_file(folder / "r.json.jsonl"));
  write_text(folder / "other.jsonl", journal);
  expect_refused(run_program(folder, tool, {"run", "--resume", "other.jsonl"}), "binary_hash");
  EXPECT_EQ(read_file(folder / "other.jsonl"), journal);
}

TEST(Resume, AnUnfinishedJournalIsNotOverwritten) {
  Folder folder;
  const std::vector<std::string> arguments = run_arguments(
      {"--case", "edge_lengths:tokens=1", "--variant", each_first, "--json", "r.json"});
  ASSERT_EQ(run_program(folder, tool, arguments).exit_code, 0);
  EXPECT_EQ(run_program(folder, tool, arguments).exit_code, 0);  // a finished one is
  std::string journal = read_file(folder / "r.json.jsonl");
  journal.erase(journal.find("{\"finished\""));
  write_text(folder / "r.json.jsonl", journal);
  const Ended ended = run_program(folder, tool, arguments);
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err, "--resume r.json.jsonl");
  EXPECT_EQ(read_file(folder / "r.json.jsonl"), journal);
}

TEST(Profile, LaunchesOneCheckedInstance) {
  Folder folder;
  const auto profile = [&](const char* program, const std::vector<std::string>& more) {
    return run_program(folder, program, joined({"profile", "--backend", "cpu"}, more));
  };
  const char* const one = "edge_lengths:tokens=65";
  const Ended ended = profile(tool, {"--case", one, "--variant", chunked, "-n", "3"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(
      ended.out,
      "edge_lengths:tokens=65 chunked:chunk=64:threads=all core: checked, then launched 3 times");

  const Ended variants = profile(tool, {"--case", one});
  EXPECT_EQ(variants.exit_code, 4);
  EXPECT_HAS(variants.err, "recurrent:threads=half, chunked:chunk=64:threads=all, ");
  const Ended cases = profile(tool, {"--case", "edge_lengths", "--variant", chunked});
  EXPECT_EQ(cases.exit_code, 4);
  EXPECT_HAS(cases.err, "edge_lengths:tokens=1, ");
  EXPECT_EQ(profile(tool, {"--variant", chunked}).exit_code, 4);
  EXPECT_EQ(profile(faulty_tool, {"--case", one, "--variant", "picky"}).exit_code, 4);
  EXPECT_EQ(profile(faulty_tool, {"--case", one, "--variant", "wrong"}).exit_code, 2);
  EXPECT_EQ(profile(faulty_tool, {"--case", one, "--variant", "tires"}).exit_code, 2);
}

// A fault seen elsewhere: compare exits with 0 on a regression.
TEST(Compare, ExitCodesOfTheCommand) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool,
                        run_arguments({"--case", "edge_lengths:tokens=64", "--variant", each_first,
                                       "--json", "base.json"}))
                .exit_code,
            0);
  // Times that no other load of the machine has part in.
  json head = read_json(folder / "base.json");
  for (json& row : head["results"]) {
    row["samples_s"] = {1.00e-3, 1.01e-3, 1.02e-3, 1.03e-3, 1.04e-3, 1.05e-3};
    row["time_s"] = {{"median", 1.025e-3},
                     {"q1", 1.0125e-3},
                     {"q3", 1.0375e-3},
                     {"min", 1.00e-3},
                     {"ci95", {1.00e-3, 1.05e-3}}};
    row["round_medians_s"] = {1.025e-3};
    row["samples"] = 6;
  }
  write_text(folder / "base.json", head.dump());
  const auto compare = [&](const std::vector<std::string>& more) {
    return run_program(folder, tool, joined({"compare", "base.json"}, more));
  };
  EXPECT_EQ(compare({"base.json"}).exit_code, 0);
  for (json& sample : head["results"][0]["samples_s"]) sample = sample.get<double>() * 10;
  for (const char* field : {"median", "q1", "q3", "min"})
    head["results"][0]["time_s"][field] = head["results"][0]["time_s"][field].get<double>() * 10;
  write_text(folder / "slow.json", head.dump());
  EXPECT_EQ(compare({"slow.json", "--markdown", "m.md"}).exit_code, 1);
#ifdef GDNBENCH_WITH_PUGIXML
  EXPECT_EQ(compare({"slow.json", "--junit", "j.xml"}).exit_code, 1);
  EXPECT_HAS(read_file(folder / "j.xml"), "<testsuite");
#else
  const Ended without = compare({"slow.json", "--junit", "j.xml"});
  EXPECT_EQ(without.exit_code, 4);
  EXPECT_HAS(without.err, "libpugixml-dev");
#endif
  EXPECT_HAS(read_file(folder / "m.md"), "slower");
  head["results"].erase(head["results"].begin());
  write_text(folder / "missing_row.json", head.dump());
  EXPECT_EQ(compare({"missing_row.json"}).exit_code, 2);
  head["fingerprint"]["device"]["name"] = "another";
  write_text(folder / "other.json", head.dump());
  EXPECT_EQ(compare({"other.json"}).exit_code, 4);
  write_text(folder / "cut.json", head.dump().substr(0, 200));
  EXPECT_EQ(compare({"cut.json"}).exit_code, 4);
  EXPECT_EQ(compare({"nowhere.json"}).exit_code, 4);
}

}  // namespace
}  // namespace gdn
