// `gdnbench wisdom show`, `wisdom export` and `merge`: the finished program on hand-made files.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/wisdom.hpp"
#include "tests/tool.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::Ended;
using test::Folder;
using test::read_file;
using test::run_program;
using test::run_shell;
using test::tool;
using test::write_text;

const std::string example_path = GDNBENCH_SOURCE_DIR "/tests/data/wisdom/example.json";

TEST(WisdomShow, SaysWhatWonWhereAndHowSureThatIs) {
  Folder folder;
  const Ended ended = run_program(folder, tool, {"wisdom", "show", example_path});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, "Example GPU  3 problems");
  EXPECT_HAS(ended.out, "1 seq, 8192 tokens, 4/4 heads, random_decay");
  EXPECT_HAS(ended.out, "3 seq, 4160 tokens (longest 4096), 2/8 heads, state, zero");
  EXPECT_HAS(ended.out, "split_barrier:stages=3:value_width=32  184.0 µs  ±0.54 %     1  ");
  EXPECT_HAS(ended.out, "racing, 24 of 24 tried, 4 fully");
  EXPECT_HAS(ended.out, "random, 3 of 24 tried, 3 fully, ended by a limit");
  EXPECT_HAS(ended.out, "2025-11-30  stale ¹");
  EXPECT_HAS(ended.out, "¹ the device differs: \"Example GPU\" when it was tuned, ");
  EXPECT_HAS(ended.out, "the hash of the kernels' sources differs: \"bbbb\" when it was tuned, ");
}

TEST(WisdomShow, WhatWasTunedWithThisBuildHereHolds) {
  Folder folder;
  run_shell(folder,  // on the device that `wisdom show` speaks of
            "$T run --case edge_lengths:tokens=65 --scope core --timing hot --timeout 0.01 "
            "--json here.json");
  Wisdom wisdom = read_wisdom(example_path);
  wisdom.entries.resize(1);
  wisdom.entries[0].fingerprint = json::parse(read_file(folder / "here.json")).at("fingerprint");
  const std::string device = wisdom.entries[0].fingerprint["device"]["name"];
  wisdom.device = device;
  write_text(folder / (device_slug(device) + ".json"), gdn::json(wisdom));
  const Ended ended = run_shell(folder, "GDNBENCH_TUNING=. $T wisdom show");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, device + "  1 problem\n");
  EXPECT_HAS(ended.out, "2025-11-29  holds\n");
}

TEST(WisdomShow, SaysWhatWasFlagged) {
  Folder folder;
  Wisdom wisdom = read_wisdom(example_path);
  wisdom.entries.resize(1);
  wisdom.entries[0].flags = {"throttled"};
  write_text(folder / "w.json", gdn::json(wisdom));
  const std::string shown = run_program(folder, tool, {"wisdom", "show", "w.json"}).out;
  EXPECT_HAS(shown, ": the device lowered its clocks while it was measured");
}

TEST(WisdomExport, IsTheFileItselfAsJson) {
  Folder folder;
  const Ended ended = run_program(folder, tool, {"wisdom", "export", example_path});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  json whole = json::parse(read_file(example_path));
  whole["entries"][1]["slower"] = json::array();  // which may be left out
  EXPECT_EQ(json::parse(ended.out), whole);
}

TEST(WisdomExport, IsATableForSpreadsheets) {
  Folder folder;
  const Ended ended = run_program(
      folder, tool, {"wisdom", "export", example_path, "--format", "csv", "--output", "w.csv"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(
      read_file(folder / "w.csv"),
      "tuned_as,sequences,query_heads,value_heads,initial_state,gates,beta_max,scope,timing,"
      "variant,"
      "median_s,ci95_low_s,ci95_high_s,tied,strategy,seed,candidates,evaluated,evaluated_fully,"
      "limited,seconds,tuned_at,kernels,driver\r\n"
      "chain_equal,8192,4,4,false,random_decay,1,core,graph,split_barrier:stages=3:value_width=32,"
      "0.000184,0.000183,0.000185,split_barrier:stages=2:value_width=32,racing,1,24,24,4,false,"
      "61.5,2025-11-29T20:40:58Z,aaaa,580.1\r\n"
      "chain_equal,8192,4,4,false,random_decay,1,forward,graph,fused:stages=3,0.0004,,,,random,"
      "18446744073709551615,24,3,3,true,9,2025-11-30T01:02:03Z,bbbb,580.1\r\n"
      "ragged:two,4096;0;64,2,8,true,zero,1,core,graph,fused:stages=2,0.00012,0.00011,0.00013,,"
      "exhaustive,0,24,24,24,false,130,2025-11-29T21:00:00Z,aaaa,580.1\r\n");
}

// What a compiler says of a file of the folder; "" where it is content.
std::string complaints(const Folder& folder, const std::string& options) {
  const Ended ended =
      run_shell(folder, GDNBENCH_CXX " -std=c++17 -Wall -Wextra -Werror " + options);
  return ended.exit_code == 0 ? "" : ended.err;
}

TEST(WisdomExport, IsAHeaderThatStandsAlone) {
  Folder folder;
  run_program(folder, tool,
              {"wisdom", "export", example_path, "--format", "cpp", "--output", "best.hpp"});
  write_text(folder / "alone.cpp", "#include \"best.hpp\"\n");
  EXPECT_EQ(complaints(folder, "-fsyntax-only alone.cpp"), "");

  // No entry at all, and names that mean something to a compiler.
  Wisdom wisdom{.device = "a \"b\" \\", .entries = {}};
  write_text(folder / "w.json", gdn::json(wisdom));
  run_shell(folder, "$T wisdom export w.json --format cpp -o best.hpp");
  EXPECT_EQ(complaints(folder, "-fsyntax-only alone.cpp"), "");
  wisdom.entries = {read_wisdom(example_path).entries[0]};
  wisdom.entries[0].fingerprint["device"]["name"] = wisdom.device;
  wisdom.entries[0].case_name = "?\?/ \" \\ \n */ µ %d {}";
  write_text(folder / "w.json", gdn::json(wisdom));
  run_shell(folder, "$T wisdom export w.json --format cpp -o best.hpp");
  EXPECT_EQ(complaints(folder, "-fsyntax-only alone.cpp"), "");
}

// The distances are those that distance's own test has, worked out on paper.
TEST(WisdomExport, TheHeaderLooksUpByTheSameDistance) {
  Folder folder;
  run_program(folder, tool,
              {"wisdom", "export", example_path, "--format", "cpp", "--output", "best.hpp"});
  write_text(folder / "use.cpp", R"(
#include "best.hpp"
namespace w = gdnbench_wisdom;
static_assert(w::entries.size() == 3 && w::device == "Example GPU");
static_assert(w::entries[2].shape.sequences == 2 && w::entries[2].shape.longest == 4096);
int main() {
  const w::Shape& chain = w::entries[0].shape;
  if (w::distance(chain, {1, 8192, 8192, 4, 4, false, ""}) != 0) return 1;
  if (w::distance(chain, {2, 4096, 8192, 4, 8, true, "mixed"}) != 6.25) return 2;
  if (w::find({1, 16384, 16384, 4, 4, false, ""}, "core", "graph") != &w::entries[0]) return 3;
  if (w::find({1, 2000, 2000, 2, 8, true, ""}, "core", "graph") != &w::entries[2]) return 4;
  if (w::find({1, 2000, 2000, 2, 8, true, ""}, "forward", "graph") != &w::entries[1]) return 5;
  if (w::find(chain, "core", "cold") != nullptr) return 6;
  return w::entries[0].variant == "split_barrier:stages=3:value_width=32" ? 0 : 7;
}
)");
  ASSERT_EQ(complaints(folder, "use.cpp -o use"), "");
  EXPECT_EQ(run_program(folder, folder / "use", {}).exit_code, 0);
}

// Two entries that differ in nothing but beta_max.
TEST(WisdomExport, TellsBetasApart) {
  Folder folder;
  Wisdom wisdom = read_wisdom(example_path);
  wisdom.entries.resize(1);
  WisdomEntry wide = wisdom.entries[0];
  wide.beta_max = 2;
  wide.winner.variant = "of_wide_beta";
  add(wisdom, wide);
  write_text(folder / "w.json", gdn::json(wisdom));
  EXPECT_HAS(run_shell(folder, "$T wisdom show w.json").out, "random_decay, beta to 2");
  EXPECT_HAS(run_shell(folder, "$T wisdom export w.json --format csv").out,
             "false,random_decay,2,core,graph,of_wide_beta,");
  run_shell(folder, "$T wisdom export w.json --format cpp -o best.hpp");
  write_text(folder / "use.cpp", R"(
#include "best.hpp"
namespace w = gdnbench_wisdom;
int main() {
  const auto winner = [](int beta_max) {
    return w::find({1, 8192, 8192, 4, 4, false, "random_decay", beta_max}, "core", "graph")->variant;
  };
  return winner(2) == "of_wide_beta" && winner(1) != "of_wide_beta" ? 0 : 1;
}
)");
  ASSERT_EQ(complaints(folder, "use.cpp -o use"), "");
  EXPECT_EQ(run_program(folder, folder / "use", {}).exit_code, 0);
}

TEST(WisdomCommand, BadInputIsRefusedAndNothingIsWritten) {
  Folder folder;
  write_text(folder / "r.json", R"({"schema": "gdnbench/1", "fingerprint": {}, "results": []})");
  const std::vector<std::pair<std::string, std::string>> refused = {
      {"wisdom show none.json", "none.json: no such file; give a wisdom file"},
      {"wisdom show r.json", "r.json: schema: \"gdnbench/1\" is not \"gdnbench-wisdom/1\""},
      {"wisdom export r.json --output o", "is not \"gdnbench-wisdom/1\""},
      {"wisdom export " + example_path + " --format toml --output o", "toml not in"},
      {"wisdom export r.json --output r.json", "would overwrite FILE"},
      {"wisdom", "subcommand is required"},
  };
  for (const auto& [command, said] : refused) {
    const Ended ended = run_shell(folder, "$T " + command);
    EXPECT_EQ(ended.exit_code, 4) << command;
    EXPECT_HAS(ended.err, said);
    EXPECT_FALSE(std::filesystem::exists(folder / "o")) << command;
  }
}

TEST(MergeCommand, WritesTheWholeOrNothing) {
  Folder folder;
  const std::string shards = GDNBENCH_SOURCE_DIR "/tests/data/merge/";
  Ended ended = run_program(
      folder, tool,
      {"merge", "--output", "w.json", shards + "wisdom-1.json", shards + "wisdom-2.json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(read_file(folder / "w.json"), gdn::json(read_wisdom(example_path)));
  ended = run_program(
      folder, tool, {"merge", "--newer", "--output", "-", "w.json", shards + "wisdom-narrow.json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(json::parse(ended.out)["entries"][0]["winner"]["median_s"], 0.00017);

  const std::vector<std::pair<std::string, std::string>> refused = {
      {"merge --output o w.json " + shards + "wisdom-narrow.json", "differ; merge one of the two"},
      {"merge --output o w.json " + shards + "results.json", "merge files of one kind"},
      {"merge --output o w.json none.json", "none.json: no such file"},
      {"merge --output w.json w.json", "would overwrite FILES"},
      {"merge --output o", "FILES is required"},
      {"merge w.json", "--output is required"},
  };
  for (const auto& [command, said] : refused) {
    ended = run_shell(folder, "$T " + command);
    EXPECT_EQ(ended.exit_code, 4) << command;
    EXPECT_HAS(ended.err, said);
    EXPECT_FALSE(std::filesystem::exists(folder / "o")) << command;
  }
}

}  // namespace
}  // namespace gdn
