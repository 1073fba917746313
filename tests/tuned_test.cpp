// `run --variant tuned` and `--variant auto`: the finished program, with wisdom made by hand.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "src/wisdom.hpp"
#include "tests/support.hpp"
#include "tests/tool.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::chunked;
using test::Ended;
using test::faulty_tool;
using test::Folder;
using test::joined;
using test::problem_of;
using test::read_file;
using test::read_json;
using test::recurrent;
using test::run_arguments;
using test::run_program;
using test::run_shell;
using test::tool;
using test::write_text;
using test::xform;

const char* const my_case =
    "name: mine\nsequences: [65, 7]\nquery_heads: 1\nvalue_heads: 2\ninitial_state: false\n"
    "gates: zero\n";

// What this machine and build say of themselves.
json fingerprint_here() {
  static const json here = [] {
    Folder folder;
    run_shell(folder, "$RUN --timing hot --json here.json");
    return read_json(folder / "here.json").at("fingerprint");
  }();
  return here;
}

WisdomEntry won(const std::string& variant, Scope scope = Scope::core) {
  WisdomEntry entry;
  entry.case_name = "mine";
  entry.problem = problem_of({65, 7}, 1, 2, false);
  entry.gates = Gates::zero;
  entry.scope = scope;
  entry.timing = Timing::hot;
  entry.winner = {variant, {}, 1e-3, std::nullopt};
  entry.search = {.strategy = "exhaustive", .candidates = 3, .evaluated = 3, .evaluated_fully = 3};
  entry.tuned_at = "2025-11-29T20:40:58Z";
  entry.fingerprint = fingerprint_here();
  return entry;
}

// A folder with a case and the wisdom w.json, and runs of the case in hot timing.
class Tuned : public testing::Test {
 protected:
  Tuned() { write_text(folder_ / "mine.yaml", my_case); }

  void wisdom(const std::vector<WisdomEntry>& entries) const {
    add_to_wisdom_file(folder_ / "w.json", entries);
  }

  Ended run(const std::vector<std::string>& more, const char* program = tool) const {
    return run_program(folder_, program,
                       run_arguments(joined(
                           {"--case", "mine.yaml", "--scope", "core", "--json", "r.json"}, more)));
  }

  json rows() const { return read_json(folder_ / "r.json").at("results"); }

  Folder folder_;
};

TEST_F(Tuned, IsTheWinnerAndTheRowSaysOfWhat) {
  wisdom({won(xform), won(chunked, Scope::forward)});
  const Ended ended = run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot", "--scope",
                           "core,forward", "--strict", "--csv", "r.csv", "--markdown", "r.md"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(test::has(ended.err, "warning")) << ended.err;
  ASSERT_EQ(rows().size(), 2U);
  EXPECT_EQ(rows()[0]["variant"], xform);
  EXPECT_EQ(rows()[0]["status"], "passed");
  EXPECT_EQ(rows()[1]["variant"], chunked);
  EXPECT_EQ(rows()[0]["tuned"],
            (json{{"case", "mine"}, {"timing", "hot"}, {"distance", 0.0}, {"exact", true}}));
  for (const std::string& shown :
       {ended.out, read_file(folder_ / "r.csv"), read_file(folder_ / "r.md")})
    EXPECT_HAS(shown, "tuned: for this very problem, as mine");
}

TEST_F(Tuned, OfAnotherProblemTheNearestIsTaken) {
  WisdomEntry far = won(recurrent);
  far.case_name = "far";
  far.problem = problem_of({8192}, 1, 2, false);
  wisdom({won(xform), far});
  // 4 times the value heads for as many query heads: chains, work and group, 2 each; the same
  // gates.
  const Ended ended = run(
      {"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot", "--set", "value_heads=8"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(rows()[0]["variant"], xform);
  EXPECT_EQ(rows()[0]["tuned"],
            (json{{"case", "mine"}, {"timing", "hot"}, {"distance", 6.0}, {"exact", false}}));
  EXPECT_HAS(ended.out, "¹ tuned: as for mine in hot timing, distance 6.0");
}

TEST_F(Tuned, MixesWithGlobsAndMarksTheRowThatIsThereAnyway) {
  wisdom({won(xform)});
  const std::vector<std::string> more = {"--wisdom", "w.json", "--timing", "hot", "--variant"};
  const auto variants = [&](const std::string& globs) {
    std::vector<std::string> all = more;
    all.push_back(globs);
    const Ended ended = run(all);
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    std::string seen;
    for (const json& row : rows())
      seen += row["variant"].get<std::string>() + (row["tuned"].is_null() ? " " : "* ");
    return seen;
  };
  const std::string winner = std::string(xform) + "* ";
  EXPECT_EQ(variants(std::string("tuned,") + chunked), std::string(chunked) + " " + winner);
  EXPECT_EQ(variants(std::string(xform) + ",tuned," + recurrent),
            std::string(recurrent) + " " + winner);
  EXPECT_EQ(variants("tuned"), winner);
}

TEST_F(Tuned, WhatThisBuildLacksIsWarnedOfAndTheNextTiedTaken) {
  WisdomEntry entry = won("unheard_of:threads=7");
  entry.tied = {{"baseline:stages=2", {}, 1.001, std::nullopt}, {chunked, {}, 1.002, std::nullopt}};
  wisdom({entry});
  Ended ended = run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.err,
             "warning: w.json: this build has no unheard_of:threads=7 for the cpu backend");
  EXPECT_HAS(ended.err, "this build has no baseline:stages=2");
  EXPECT_EQ(rows()[0]["variant"], chunked);

  entry.tied.pop_back();
  wisdom({entry});
  std::filesystem::remove(folder_ / "r.json");
  ended = run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot"});
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err,
             "w.json: this build has none of the best for mine (unheard_of:threads=7, "
             "baseline:stages=2); `gdnbench tune` makes it anew");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "r.json"));
}

TEST_F(Tuned, AWinnerThatTheProblemDoesNotSuitIsSkippedWithTheReason) {
  wisdom({won("picky")});
  const Ended ended =
      run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot"}, faulty_tool);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(rows()[0]["status"], "skipped");
  EXPECT_EQ(rows()[0]["reason"], "it likes no problem at all");
  EXPECT_EQ(rows()[0]["tuned"]["case"], "mine");
}

TEST_F(Tuned, StaleWisdomIsAWarningAndUnderStrictAnError) {
  WisdomEntry entry = won(xform);
  entry.fingerprint["kernels"] = "of another day";
  entry.fingerprint["driver"] = "1.0";
  wisdom({entry});
  Ended ended = run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.err,
             "warning: w.json: stale: the driver differs: \"1.0\" when it was tuned, (not given) "
             "now; `gdnbench tune` makes it anew\n");
  EXPECT_HAS(ended.err, "warning: w.json: stale: the hash of the kernels' sources differs: ");
  std::filesystem::remove(folder_ / "r.json");
  ended = run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot", "--strict"});
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err, "w.json: the wisdom on mine is stale: the hash");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "r.json"));
}

TEST_F(Tuned, AFlaggedMeasurementIsWarnedOf) {
  WisdomEntry entry = won(xform);
  entry.flags = {"throttled"};
  wisdom({entry});
  const Ended ended =
      run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "hot", "--strict"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.err,
             "warning: w.json: mine was measured with the flag throttled: the device lowered its "
             "clocks while it was measured; `gdnbench tune` makes it anew\n");
}

TEST_F(Tuned, AnotherTimingOrScopeIsSaid) {
  wisdom({won(xform)});
  Ended ended = run({"--variant", "tuned", "--wisdom", "w.json", "--timing", "lab"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.err, "nothing was tuned in the core scope in lab timing: winners in hot timing");
  EXPECT_HAS(ended.out, "tuned: as for mine in hot timing, distance 0");
  ended = run({"--variant", "tuned", "--wisdom", "w.json", "--scope", "forward"});
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err,
             "w.json: nothing was tuned in the forward scope; `gdnbench tune --scope "
             "forward` does it, --variant auto does without");
}

TEST_F(Tuned, TheGatesOfOwnInputsAreNotKnown) {
  wisdom({won(xform)});
  run_shell(folder_, "$T inputs --case mine.yaml --output i.safetensors");
  const Ended ended =
      run_program(folder_, tool,
                  run_arguments({"--inputs", "i.safetensors", "--scope", "core", "--timing", "hot",
                                 "--variant", "tuned", "--wisdom", "w.json", "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(rows()[0]["tuned"]["distance"], 0.0);
  EXPECT_EQ(rows()[0]["tuned"]["exact"], false);
}

TEST_F(Tuned, TheDevicesFileIsFoundInTheTuningFolder) {
  wisdom({won(xform)});
  const std::string file =
      device_slug(fingerprint_here()["device"]["name"].get<std::string>()) + ".json";
  const std::string run =
      "GDNBENCH_TUNING=. $T run --backend cpu --timeout 2 --max-noise 1000 --min-samples 6 --case "
      "mine.yaml --scope core --timing hot --variant tuned ";
  Ended ended = run_shell(folder_, run);
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err, file +
                            ": no such file; give a wisdom file; `gdnbench tune --case '*' "
                            "--output FILE` makes one, `run --variant auto` does without");
  ended = run_shell(folder_, "mv w.json " + file + "; " + run);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, xform);
  ended = run_shell(folder_, "GDNBENCH_TUNING=none " + run.substr(run.find("$T")));
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err, "GDNBENCH_TUNING=none: no such folder");
}

TEST_F(Tuned, ItsOptionsAreForItAlone) {
  for (const std::vector<std::string>& options :
       {std::vector<std::string>{"--strict"}, {"--wisdom", "w.json"}}) {
    const Ended ended = run(options);
    EXPECT_EQ(ended.exit_code, 4);
    EXPECT_HAS(ended.err, "--wisdom and --strict are for --variant tuned");
  }
  wisdom({won(xform)});
  const Ended ended = run({"--variant", "tuned", "--wisdom", "w.json", "--csv", "w.json"});
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err, "would overwrite --wisdom");
}

TEST_F(Tuned, IsResumedAsItWasMeant) {
  wisdom({won(xform)});
  ASSERT_EQ(
      run({"--variant", std::string("tuned,") + chunked, "--wisdom", "w.json", "--timing", "hot"})
          .exit_code,
      0);
  const std::string journal = test::first_lines(read_file(folder_ / "r.json.jsonl"), 2);
  const auto resume = [&] {
    write_text(folder_ / "r.json.jsonl", journal);
    return run_program(folder_, tool, {"run", "--resume", "r.json.jsonl"});
  };
  Ended ended = resume();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_EQ(rows().size(), 2U);
  EXPECT_EQ(rows()[1]["variant"], xform);
  EXPECT_EQ(rows()[1]["tuned"]["exact"], true);

  wisdom({won(recurrent)});  // tuned anew in between
  ended = resume();
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_HAS(ended.err, "it belongs to another run: options: tuned: mine/");
}

// `--variant auto` needs no wisdom. Of the CPU's variants chunked is predicted to be the fastest.
class Auto : public Tuned {};

TEST_F(Auto, NeedsNoWisdomAndTheRowSaysWhy) {
  const Ended ended = run({"--variant", std::string("auto,") + recurrent, "--scope", "core,forward",
                           "--csv", "r.csv", "--markdown", "r.md"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_EQ(rows().size(), 4U);
  EXPECT_TRUE(rows()[0]["auto"].is_null());
  const json row = rows()[1];
  EXPECT_EQ(row["variant"], chunked);
  EXPECT_EQ(row["status"], "passed");
  EXPECT_EQ(row["tuned"], json());
  EXPECT_HAS(row["auto"]["reason"].get<std::string>(), "4 chains ");  // 2 sequences, 2 heads
  EXPECT_GT(row["auto"]["predicted_s"], 0.0);
  EXPECT_GT(rows()[3]["auto"]["predicted_s"], row["auto"]["predicted_s"]);  // and the preparation
  for (const std::string& shown :
       {ended.out, read_file(folder_ / "r.csv"), read_file(folder_ / "r.md")}) {
    EXPECT_HAS(shown, "auto: 4 chains ");
    EXPECT_HAS(shown, " by the model");
  }
}

TEST_F(Auto, MarksTheRowThatIsThereAnywayAndTheTunedOne) {
  wisdom({won(chunked)});
  const Ended ended = run(
      {"--variant", std::string("auto,tuned,") + chunked, "--wisdom", "w.json", "--timing", "hot"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  ASSERT_EQ(rows().size(), 1U);
  EXPECT_EQ(rows()[0]["tuned"]["exact"], true);
  EXPECT_FALSE(rows()[0]["auto"].is_null());
}

TEST_F(Auto, TakesAUsersOwnInputs) {
  run_shell(folder_, "$T inputs --case mine.yaml --output i.safetensors");
  const Ended ended =
      run_program(folder_, tool,
                  run_arguments({"--inputs", "i.safetensors", "--scope", "core", "--variant",
                                 "auto", "--exact", "--json", "r.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(rows()[0]["variant"], chunked);
}

TEST_F(Auto, IsBOfAPairAndWhatIsProfiled) {
  Ended ended = run_shell(folder_, std::string("$T ab --backend cpu --case mine.yaml --timeout 1 "
                                               "--a ") +
                                       recurrent + " --b auto --json ab.json");
  EXPECT_HAS(ended.out, "auto: 4 chains ");
  EXPECT_EQ(json::parse(read_file(folder_ / "ab.json"))["results"][0]["variant"], chunked);
  ended = run_shell(folder_, "$T profile --backend cpu --case mine.yaml --variant auto");
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, "auto: 4 chains ");
  EXPECT_HAS(ended.out, std::string("mine ") + chunked + " core: checked");
}

TEST_F(Auto, ItsOptionIsForItAlone) {
  for (const std::string command : {"run --variant xform --exact", "ab --a xform --b xform --exact",
                                    "profile --variant xform --exact"}) {
    const Ended refused = run_shell(folder_, "$T " + command + " --case mine.yaml --backend cpu");
    EXPECT_EQ(refused.exit_code, 4);
    EXPECT_HAS(refused.err, "--exact is for --");
  }
}

TEST_F(Auto, ExactIsRememberedOnResume) {
  ASSERT_EQ(run({"--variant", "auto", "--exact"}).exit_code, 0);
  const std::string journal = read_file(folder_ / "r.json.jsonl");
  write_text(folder_ / "r.json.jsonl", journal.substr(0, journal.find('\n') + 1));
  const Ended ended = run_program(folder_, tool, {"run", "--resume", "r.json.jsonl"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json report = json::parse(read_file(folder_ / "r.json"));
  EXPECT_EQ(report["options"]["exact"], true);
  EXPECT_FALSE(report["results"][0]["auto"].is_null());
}

}  // namespace
}  // namespace gdn
