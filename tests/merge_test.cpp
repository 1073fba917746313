// Shards put together: the whole and its shards in data/merge are made by hand.
#include "src/merge.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/error.hpp"
#include "src/report/render.hpp"
#include "tests/process.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::read_file;

const std::string folder = GDNBENCH_SOURCE_DIR "/tests/data/merge/";

NamedText file(const std::string& name) { return {name, read_file(folder + name)}; }
NamedText text(const std::string& name, const std::string& text) { return {name, text}; }

std::string refusal(const std::vector<NamedText>& files, bool newer = false) {
  try {
    merged(files, newer);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A file with a member of its JSON changed.
NamedText changed(const std::string& name, const std::string& pointer, const json& value,
                  const std::string& as = "changed.json") {
  json whole = json::parse(file(name).text);
  whole[json::json_pointer(pointer)] = value;
  return text(as, whole.dump());
}

std::string whole_wisdom() {
  return gdn::json(read_wisdom(GDNBENCH_SOURCE_DIR "/tests/data/wisdom/example.json"));
}

TEST(MergeWisdom, ShardsInAnyOrderAreTheWhole) {
  const NamedText one = file("wisdom-1.json");
  const NamedText two = file("wisdom-2.json");
  EXPECT_EQ(merged({one, two}, false), whole_wisdom());
  EXPECT_EQ(merged({two, one}, false), whole_wisdom());
  EXPECT_EQ(merged({two, one, two, one}, false), whole_wisdom());  // the same twice is there once
  EXPECT_EQ(merged({text("whole", whole_wisdom())}, false), whole_wisdom());
}

TEST(MergeWisdom, WhatDiffersIsNeverDroppedInSilence) {
  const NamedText wide = file("wisdom-1.json");
  const NamedText narrow = file("wisdom-narrow.json");
  EXPECT_EQ(refusal({wide, narrow}),
            "chain_equal in the core scope, graph timing: wisdom-1.json: entries[1] and "
            "wisdom-narrow.json: entries[0] differ; merge one of the two, or let the later file "
            "count with --newer");
  const auto median = [](const std::string& text) {
    return json::parse(text)["entries"][0]["winner"]["median_s"].get<double>();
  };
  EXPECT_EQ(median(merged({wide, narrow}, true)), 0.00017);
  EXPECT_EQ(median(merged({narrow, wide}, true)), 0.000184);
  EXPECT_EQ(json::parse(merged({wide, narrow}, true))["entries"].size(), 2U);
}

TEST(MergeWisdom, OfAnotherDeviceIsRefused) {
  json other = json::parse(file("wisdom-2.json").text);
  other["device"] = other["fingerprints"][0]["device"]["name"] = "Other GPU";
  EXPECT_EQ(refusal({file("wisdom-1.json"), text("other.json", other.dump())}, true),
            "wisdom-1.json is wisdom of \"Example GPU\", other.json of \"Other GPU\"; each device "
            "has a file of its own");
}

TEST(MergeRecords, ShardsAreTheWhole) {
  const NamedText one = file("record-1.jsonl");
  const NamedText two = file("record-2.jsonl");
  EXPECT_EQ(merged({one, two}, false), file("record.jsonl").text);
  EXPECT_EQ(merged({one, two, one}, false), file("record.jsonl").text);
  EXPECT_EQ(merged({file("record.jsonl"), two}, false), file("record.jsonl").text);
}

TEST(MergeRecords, AnAnswerThatStandsTwiceIsRefused) {
  const std::string all = file("record-1.jsonl").text;
  const std::size_t begin = all.find('\n') + 1, end = all.find('\n', begin) + 1;
  const std::string twice = all.substr(0, end) + all.substr(begin);
  const std::string said = refusal({text("twice.jsonl", twice), file("record-2.jsonl")});
  EXPECT_TRUE(said.starts_with("twice.jsonl:3: ")) << said;
  EXPECT_NE(said.find("stands twice"), std::string::npos) << said;
}

// A record whose search was asked for something else.
NamedText asked(const std::string& name, const json& changes) {
  const std::string all = file(name).text;
  json header = json::parse(all.substr(0, all.find('\n')));
  header["options"].merge_patch(changes);  // null takes away
  return text(name, header.dump() + all.substr(all.find('\n')));
}

// ... for some candidates alone.
NamedText of_candidates(const std::string& name, const std::vector<std::string>& ids,
                        const std::vector<std::string>& globs) {
  return asked(name, {{"candidates", ids}, {"variant", globs}});
}

TEST(MergeRecords, TheCandidatesAreThoseOfAllInTheOrderOfTheLadder) {
  const std::string recurrent = "recurrent:threads=all", chunked = "chunked:chunk=64:threads=all",
                    xform = "xform:chunk=64:threads=all";
  const NamedText one =
      of_candidates("record-1.jsonl", {chunked, xform, "gone:stages=1"}, {"chunked", "xform"});
  const NamedText two = of_candidates("record-2.jsonl", {recurrent, chunked}, {"recurrent"});
  const auto options = [](const std::string& merged) {
    return json::parse(merged.substr(0, merged.find('\n')))["options"];
  };
  const std::string both = merged({one, two}, false);
  EXPECT_EQ(options(both)["candidates"], (json{recurrent, chunked, xform, "gone:stages=1"}));
  EXPECT_EQ(options(both)["variant"], (json{"chunked", "xform", "recurrent"}));
  EXPECT_EQ(options(both)["strategy"], "racing");
  EXPECT_EQ(options(merged({two, one}, false))["candidates"], options(both)["candidates"]);
  const std::string lines = file("record.jsonl").text;
  EXPECT_EQ(both.substr(both.find('\n')), lines.substr(lines.find('\n')));
  // Without --variant it was asked for all.
  const NamedText all = of_candidates("record-2.jsonl", {recurrent, chunked, xform}, {});
  EXPECT_EQ(options(merged({one, all}, false))["variant"], json::array());
}

TEST(MergeRecords, OfAnotherSpaceAreRefused) {
  EXPECT_EQ(
      refusal({file("record-1.jsonl"), asked("record-2.jsonl", {{"space", "/s.yaml"}})}, true),
      "record-1.jsonl and record-2.jsonl may not be merged: --space was \"\" in "
      "record-1.jsonl, \"/s.yaml\" in record-2.jsonl; tune both with one --space");
}

TEST(MergeRecords, ListsOfAHeaderThatAreNoneAreRefusedWithTheirPlace) {
  for (const char* list : {"candidates", "variant"})
    for (const auto& [value, said] : std::vector<std::pair<json, const char*>>{
             {nullptr, ": a list is missing"},
             {{1, 2}, "[0]: a string is expected, not a number"},
             {{"a", ""}, "[1]: a name is expected, not an empty string"},
             {json{{"a", "b"}}, ": a list is expected, not an object"},
             {"a", ": a list is expected, not a string"}})
      EXPECT_EQ(refusal({file("record-1.jsonl"), asked("record-2.jsonl", {{list, value}})}),
                std::string("record-2.jsonl:1: options.") + list + said);
  EXPECT_EQ(refusal({asked("record-1.jsonl", {{"space", 1}})}),
            "record-1.jsonl:1: options.space: a string is expected, not a number");
}

TEST(MergeRecords, ATornLineDoesNotCount) {
  const NamedText torn = file("record-torn.jsonl");
  const std::string whole = torn.text.substr(0, torn.text.rfind('\n') + 1);
  ASSERT_LT(whole.size(), torn.text.size());
  EXPECT_EQ(merged({torn}, false), whole);
  EXPECT_TRUE(contains(refusal({text("r.jsonl", whole.substr(0, whole.find('\n')))}),
                       "r.jsonl: its header is cut off"));
}

// All lines about a problem are of one file: its answers build on each other.
TEST(MergeRecords, AProblemThatTwoFilesHaveIsRefusedOrTakenWholeFromTheLater) {
  const NamedText torn = file("record-torn.jsonl");
  const NamedText one = file("record-1.jsonl");
  const std::string refused = refusal({torn, one});
  EXPECT_TRUE(contains(refused, "the answers about {\"case\":\"a\","));
  EXPECT_TRUE(contains(refused, "record-torn.jsonl:2 and record-1.jsonl:2 differ"));
  EXPECT_EQ(merged({torn, file("record-2.jsonl"), one}, true), file("record.jsonl").text);
}

TEST(MergeRecords, BadLinesAreRefusedWithTheirPlace) {
  const std::string header =
      file("record-1.jsonl").text.substr(0, file("record-1.jsonl").text.find('\n') + 1);
  const auto said = [&](const std::string& line) {
    return refusal({text("r.jsonl", header + line + "\n")});
  };
  EXPECT_EQ(said("{}"), "r.jsonl:2: problem: an object is missing");
  EXPECT_EQ(said("[]"), "r.jsonl:2: an object is expected, not a list");
  EXPECT_TRUE(contains(said("nonsense"), "r.jsonl:2:2: not JSON"));
  EXPECT_TRUE(contains(refusal({text("r.jsonl", "{\"schema\": \"gdnbench-record/2\"}\n")}),
                       "r.jsonl:1: schema: \"gdnbench-record/2\" is not \"gdnbench-record/1\""));
  EXPECT_EQ(refusal({text("r.jsonl", "{\"schema\": \"gdnbench-record/1\"}\n")}),
            "r.jsonl:1: fingerprint: an object is missing");
}

TEST(MergeRecords, OfAnotherBuildOrDeviceAreRefused) {
  NamedText other = file("record-2.jsonl");
  const std::size_t kernels = other.text.find("aaaa");
  other.text.replace(kernels, 4, "bbbb");
  EXPECT_EQ(
      refusal({file("record-1.jsonl"), other}, true),
      "record-1.jsonl and record-2.jsonl may not be merged; measure both with one build on one "
      "device:\n"
      "  the hash of the kernels' sources differs: \"aaaa\" in record-1.jsonl, \"bbbb\" in "
      "record-2.jsonl");
}

TEST(MergeResults, ShardsAreTheWhole) {
  const NamedText one = file("results-1.json");
  const NamedText two = file("results-2.json");
  const std::string whole = gdn::json(parse_report(file("results.json").text, "results.json"));
  EXPECT_EQ(merged({one, two}, false), whole);
  EXPECT_EQ(merged({one, two, one}, false), whole);
  EXPECT_EQ(merged({file("results.json"), two}, false), whole);
  // Also from the journal of a run that is not at its end.
  const Report report = parse_report(one.text, "one");
  std::string journal = journal_header(report);
  for (const Row& row : report.rows) journal += journal_line(row);
  EXPECT_EQ(merged({text("one.jsonl", journal), two}, false), whole);
}

TEST(MergeResults, RowsThatDifferAreRefusedOrTakenFromTheLater) {
  const NamedText again = changed("results-2.json", "/results/1/samples_s", {0.375, 0.5});
  EXPECT_EQ(refusal({file("results.json"), again}),
            "b/fused:stages=3/core/graph: results.json: results[3] and changed.json: results[1] "
            "differ; merge one of the two, or let the later file count with --newer");
  const json newer = json::parse(merged({file("results.json"), again}, true));
  ASSERT_EQ(newer["results"].size(), 4U);
  EXPECT_EQ(newer["results"][3]["samples_s"], (json{0.375, 0.5}));
}

TEST(MergeResults, WhatTheFilesDoNotAgreeOnIsNotClaimed) {
  json other = json::parse(file("results-2.json").text);
  other["options"]["rounds"] = 6;
  other["options"]["more"] = "m";
  other["fingerprint"]["uuid"] = "GPU-2";
  json first = json::parse(file("results-1.json").text);
  first["fingerprint"]["uuid"] = "GPU-1";
  const json both = json::parse(merged(
      {text("1.json", first.dump()), text("2.json", other.dump()), text("3.json", first.dump())},
      false));
  EXPECT_FALSE(both["options"].contains("rounds"));
  EXPECT_FALSE(both["fingerprint"].contains("uuid"));
  EXPECT_EQ(both["options"]["more"], "m");
  EXPECT_EQ(both["fingerprint"]["driver"], "580.1");
}

TEST(MergeResults, OfAnotherDeviceDriverBuildOrInputsAreRefused) {
  const NamedText one = file("results-1.json");
  for (const auto& [pointer, name] : std::vector<std::pair<std::string, std::string>>{
           {"/fingerprint/device/name", "device"},
           {"/fingerprint/driver", "driver"},
           {"/fingerprint/cuda", "CUDA version"},
           {"/fingerprint/revision", "revision"},
           {"/fingerprint/kernel_checks", "list of kernel checks"}}) {
    const std::string refused = refusal({one, changed("results-2.json", pointer, "another")}, true);
    EXPECT_TRUE(contains(refused,
                         "results-1.json and changed.json may not be merged; measure both "
                         "with one build on one device:\n  the " +
                             name + " differs: "))
        << refused;
  }
  json other = json::parse(one.text);
  for (json& row : other["results"]) {
    row["input_hash"] = "c0ffee0000000003";
    row["variant"] = "wide";
  }
  other["results"].erase(1);
  EXPECT_EQ(refusal({one, text("2.json", other.dump())}, true),
            "a: its inputs are c0ffee0000000001 in results-1.json, c0ffee0000000003 in 2.json; "
            "rename one of the two cases and measure it again");
}

TEST(Merge, KindsAreToldApartAndNotMixed) {
  EXPECT_EQ(refusal({file("results-1.json"), file("wisdom-1.json")}),
            "results-1.json is results, wisdom-1.json is wisdom; merge files of one kind");
  EXPECT_EQ(refusal({file("record-1.jsonl"), file("results-1.json")}),
            "record-1.jsonl is a tuning record, results-1.json is results; merge files of one "
            "kind");
  EXPECT_TRUE(contains(refusal({text("x", "{\"schema\": \"other/1\"}")}),
                       "x: schema: \"other/1\" is none of gdnbench's"));
  EXPECT_TRUE(contains(refusal({text("x", "{\"schema\": \"gdnbench/2\"}")}), "gdnbench/1"));
  EXPECT_EQ(refusal({text("x", "{}")}), "x: schema: a string is missing");
  EXPECT_EQ(refusal({text("x", "7")}), "x: an object is expected, not a number");
  EXPECT_TRUE(contains(refusal({text("x", "")}), "x:1:1: cut off"));
  EXPECT_TRUE(contains(refusal({text("x", std::string(100'000, '['))}), "nested too deeply"));
}

}  // namespace
}  // namespace gdn
