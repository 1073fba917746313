// `gdnbench tune` as its users meet it.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>

#include "src/tuning_record.hpp"
#include "tests/kills.hpp"
#include "tests/tool.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::Clock;
using test::deadline_s;
using test::Ended;
using test::expect_refusals;
using test::expect_refused;
using test::faulty_tool;
using test::Folder;
using test::has;
using test::joined;
using test::of_another_build;
using test::read_file;
using test::read_json;
using test::run_program;
using test::tool;
using test::Words;
using test::write_text;

// A quick search: few samples and pairs, however noisy. How many fit into its time is the
// machine's.
Words tune_arguments(const Words& more, const std::string& timeout = "0.01") {
  return joined({"tune", "--backend", "cpu", "--timeout", timeout, "--max-noise", "1000",
                 "--min-samples", "6"},
                more);
}

// The candidates of a small search, as they come in the table.
const Words three = {test::recurrent, test::chunked, test::xform};

// Two small problems of one head, for three candidates.
Words small(const Words& more, const std::string& timeout = "0.01") {
  Words all = tune_arguments(
      {"--case", "edge_lengths:tokens=3,edge_lengths:tokens=7", "--set", "query_heads=1", "--set",
       "value_heads=1", "--scope", "core", "--timing", "hot", "--variant", test::each_first},
      timeout);
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(Tune, DoesTheWholeJob) {
  Folder folder;
  const std::string for_6_samples = "10";  // however busy the machine
  const Ended ended = run_program(
      folder, tool,
      small({"--record", "r.jsonl", "--json", "o.json", "--t4", "t4.json"}, for_6_samples));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, "edge_lengths:tokens=7:query_heads=1:value_heads=1  core, hot");
  EXPECT_HAS(ended.out, "winner");
  EXPECT_HAS(ended.out, "racing: 3 of 3 candidates evaluated, 3 fully");
  EXPECT_HAS(ended.out, "next: gdnbench run --case edge_lengths:tokens=3");
  EXPECT_HAS(ended.err,
             std::string("[2/2] edge_lengths:tokens=7:query_heads=1:value_heads=1 core hot ") +
                 test::chunked + ": ");
  EXPECT_HAS(ended.err, "; best so far ");

  const json outcome = read_json(folder / "o.json");
  EXPECT_EQ(outcome["schema"], "gdnbench-tune/1");
  EXPECT_EQ(outcome["options"]["candidates"], three);
  ASSERT_EQ(outcome["problems"].size(), 2U);
  for (const json& problem : outcome["problems"]) {
    EXPECT_EQ(problem["evaluated"], 3);
    EXPECT_EQ(problem["ended_by"], "");
    EXPECT_EQ(problem["tied"].size() + problem["slower"].size(), 2U);
    EXPECT_GT(problem["time_s"]["median"], 0.0);
  }
  const TuningRecord record = read_record(folder / "r.jsonl");
  ASSERT_EQ(record.problems.size(), 2U);
  for (const RecordedProblem& problem : record.problems) {
    EXPECT_TRUE(problem.finished);
    EXPECT_EQ(problem.evaluations().size(), 3U);
  }

  // The results schema of T4, as TuningSchema and Kernel Tuner have it: required members, types.
  const json t4 = read_json(folder / "t4.json");
  EXPECT_EQ(t4["schema_version"], "1.0.0");
  EXPECT_TRUE(t4["metadata"].is_object());
  ASSERT_EQ(t4["results"].size(), 6U);
  for (const json& result : t4["results"]) {
    EXPECT_TRUE(result["timestamp"].is_string());
    EXPECT_EQ(result["configuration"]["scope"], "core");
    EXPECT_EQ(result["objectives"], Words{"time"});
    EXPECT_EQ(result["invalidity"], "correct");
    EXPECT_EQ(result["correctness"], 1);
    EXPECT_GE(result["times"]["runtimes"].size(), 6U);
    for (const char* time : {"compilation_time", "framework", "search_algorithm", "validation"})
      EXPECT_TRUE(result["times"][time].is_number()) << time;
    EXPECT_EQ(result["measurements"][0]["name"], "time");
    EXPECT_EQ(result["measurements"][0]["unit"], "s");
    EXPECT_GT(result["measurements"][0]["value"], 0.0);
  }
}

// However a case was selected, the line that comes next selects it again, and finds its winner in
// the file where that went into one.
TEST(Tune, TheNextStepThatItPrintsRuns) {
  const std::vector<Words> selections = {
      {"--case", "edge_lengths:tokens=3"},
      {"--case", "edge_lengths:tokens=?", "--set", "tokens=5"},  // an axis
      {"--case", "edge_lengths:tokens=3", "--set", "query_heads=1", "--set", "value_heads=1"},
      {"--case", "edge_lengths:tokens=1,./mine.yaml", "--set", "gates=zero", "--shard", "2/3"}};
  for (const Words& selection : selections)
    for (const Words& output : {Words{}, Words{"--output", "my wisdom.json"}}) {
      Folder folder;
      write_text(folder / "mine.yaml",
                 "name: mine\nquery_heads: 1\nvalue_heads: 1\ninitial_state: false\n"
                 "gates: model\naxes: {tokens: [3, 7]}\n");
      Words words =
          tune_arguments({"--scope", "core", "--timing", "hot", "--variant", test::each_first});
      words.insert(words.end(), selection.begin(), selection.end());
      words.insert(words.end(), output.begin(), output.end());
      const Ended ended = run_program(folder, tool, words);
      ASSERT_EQ(ended.exit_code, 0) << ended.err;
      const std::string mark = "next: gdnbench ";
      const std::size_t at = ended.out.find(mark);
      ASSERT_NE(at, std::string::npos) << ended.out;
      std::string line = ended.out.substr(at + mark.size());
      line.resize(line.find('\n'));
      const Ended next = test::run_shell(folder, "$T " + line + " --timeout 0.01");
      EXPECT_EQ(next.exit_code, 0) << line << next.err;
      if (!output.empty()) {
        EXPECT_HAS(next.out, "tuned: for this very problem");
      }
    }
}

TEST(Tune, ACaseWhoseFileIsGoneHasNoNextCommand) {
  Folder folder;
  write_text(folder / "mine.yaml",
             "name: mine\nquery_heads: 1\nvalue_heads: 1\ninitial_state: false\n"
             "gates: model\ntokens: 7\n");
  ASSERT_EQ(run_program(folder, tool,
                        tune_arguments({"--case", "./mine.yaml", "--set", "tokens=5", "--scope",
                                        "core", "--timing", "hot", "--variant", test::chunked,
                                        "--record", "r.jsonl"}))
                .exit_code,
            0);
  const Words replay = {"tune", "--replay", "r.jsonl"};
  EXPECT_HAS(run_program(folder, tool, replay).out, "next: gdnbench run --case ");
  std::filesystem::rename(folder / "mine.yaml", folder / "gone");
  const Ended ended = run_program(folder, tool, replay);
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_FALSE(has(ended.out, "gdnbench run")) << ended.out;
  EXPECT_HAS(ended.out, "the file of case mine:tokens=5 is missing");
}

// Of several headers a merge keeps the first: its cases need not be those of all problems.
TEST(Tune, ACaseThatTheHeaderDoesNotNameIsFoundInTheFolder) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool, small({"--record", "r.jsonl", "--shard", "1/2"})).exit_code,
            0);
  std::string record = read_file(folder / "r.jsonl");
  const std::string both = R"("case":["edge_lengths:tokens=3","edge_lengths:tokens=7"])";
  const std::size_t at = record.find(both);
  ASSERT_NE(at, std::string::npos) << record;
  write_text(folder / "r.jsonl", record.replace(at, both.size(), R"("case":["./gone.yaml"])"));
  EXPECT_HAS(run_program(folder, tool, {"tune", "--replay", "r.jsonl"}).out,
             "next: gdnbench run --case edge_lengths:tokens=3 --set query_heads=1");
}

TEST(Tune, ANarrowerSearchLeavesTheWiderOnesWinner) {
  Folder folder;
  const auto tune = [&](const Words& more) {
    const Ended ended = run_program(folder, tool, joined(small({"--output", "w.json"}), more));
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    return ended;
  };
  tune({});
  const std::string wide = read_file(folder / "w.json");
  const Ended narrow = tune({"--strategy", "random", "--max-evals", "1"});
  EXPECT_HAS(narrow.err,
             "warning: w.json: the entry of edge_lengths:tokens=7:query_heads=1:value_heads=1 core "
             "hot stays: its search evaluated 3 candidates, this one 1");
  EXPECT_EQ(read_file(folder / "w.json"), wide);
  EXPECT_FALSE(has(tune({"--seed", "9"}).err, "warning"));  // one as wide takes its place
  EXPECT_EQ(read_json(folder / "w.json")["entries"][0]["search"]["seed"], 9);
}

TEST(Tune, HelpAndDryRunTeach) {
  Folder folder;
  EXPECT_HAS(run_program(folder, tool, {"--help"}).out, "gdnbench tune --case short_tail_state");
  EXPECT_HAS(run_program(folder, tool, {"tune", "--help"}).out, "Exit codes");
  const Ended ended =
      run_program(folder, tool, small({"--dry-run", "--strategy", "random", "--max-evals", "2"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.out, "2 problems:\n  edge_lengths:tokens=3");
  EXPECT_HAS(ended.out, "3 candidates each:\n  recurrent:threads=all\n  " + three[1] + "\n  " +
                            three[2] + "\n");
  EXPECT_HAS(ended.out, "random      2 evaluations a problem, 2 of them full; about 4 s  (chosen)");
  EXPECT_HAS(ended.out, "exhaustive  2 evaluations");
  EXPECT_EQ(ended.err, "");
}

TEST(Tune, HasOneMovingLineOnATerminal) {
  Folder folder;
  const Ended ended =
      run_program(folder, "/usr/bin/env", joined({"TERM=xterm", test::on_terminal}, small({})));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_HAS(ended.err, "\r\033[K[1/2] edge_lengths:tokens=3");
  EXPECT_FALSE(has(ended.err, "\n"));
}

TEST(Tune, BadCommandLinesAreRefusedWithTheRemedy) {
  Folder folder;
  write_text(folder / "bad.yaml", "target: cpu\nvariants:\n  chunkd: {}\n");
  write_text(folder / "cuda.yaml", "target: cuda\nvariants: {}\n");
  write_text(folder / "there.jsonl", "{}\n");
  expect_refusals(
      folder,
      {
          {{"tune"}, "--case is missing"},
          {{"tune", "--case", "short_tail_state", "--strategy", "raceing"},
           "did you mean \"racing\"?"},
          {{"tune", "--case", "short_tail_state", "--shard", "3/2"}, "I/N is wanted"},
          {{"tune", "--case", "short_tail_state", "--shard", "1"}, "I/N is wanted"},
          {{"tune", "--case", "short_tail_state", "--shard", "1/-2"}, "I/N is wanted"},
          {{"tune", "--case", "short_tail_state", "--shard", "-1/2"}, "I/N is wanted"},
          {{"tune", "--case", "short_tail_state", "--seed", "-1"}, "--seed: \"-1\" is not a whole"},
          {{"tune", "--case", "short_tail_state", "--seed", "18446744073709551616"}, "--seed: "},
          {{"tune", "--case", "short_tail_state", "--max-evals", "-1"}, "--max-evals"},
          {{"tune", "--case", "short_tail_state", "--max-evals", "0"}, "--max-evals"},
          {{"tune", "--case", "short_tail_state", "--time-limit", "soon"}, "--time-limit"},
          {small({"--shard", "3/3"}), "there are 2 problems; give fewer shards"},
          {small({"--variant", "chunkd"}), "did you mean \"chunked\"?"},
          {small({"--space", "bad.yaml"}),
           "bad.yaml:3:3: the ladder has no cpu variant \"chunkd\""},
          {small({"--space", "missing.yaml"}), "missing.yaml: no such file"},
          {small({"--space", "cuda.yaml"}), "give another --space or --backend"},
          {small({"--device", "0,1"}), "number 0; leave --device out"},
          {small({"--device", "0,x"}), "--device"},
          {small({"--device", "0,-1"}), "--device"},
          {small({"--record", "there.jsonl"}), "go on with --resume there.jsonl"},
          {small({"--json", "no/such/folder.json"}), "create it first"},
          {small({"--json", "a.json", "--t4", "a.json"}), "are the same file"},
          {{"tune", "--resume", "there.jsonl"}, "there.jsonl:1: schema"},
          {{"tune", "--resume", "missing.jsonl"}, "missing.jsonl"},
          {{"tune", "--resume", "r.jsonl", "--seed", "2"}, "leave --seed out"},
          {{"tune", "--resume", "r.jsonl", "--device", "0,0"}, "leave --device out"},
          {{"tune", "--replay", "r.jsonl", "--case", "x"}, "leave --case out"},
          {{"tune", "--replay", "missing.jsonl"}, "no such file"},
      });
  EXPECT_EQ(read_file(folder / "there.jsonl"), "{}\n");
}

// On what an H200 really answered, for 16 problems of 54 candidates each. Each has to be set up
// before anything is known of it, which is up to a third of what an exhaustive search costs, so
// what racing can save is of the rest: less where many are about as fast, and most of it in all.
TEST(Tune, OnAnH200sRecordRacingFindsTheBestForLittle) {
  Folder folder;
  const std::string record = GDNBENCH_SOURCE_DIR "/reports/h200/tune-record.jsonl";
  std::map<json, double> set_up_s;
  for (const RecordedProblem& problem : read_record(record).problems)
    for (const auto& [candidate, evaluation] : problem.evaluations())
      set_up_s[problem.problem] += evaluation.setup_s;
  for (const char* seed : {"1", "2", "3", "4", "5"}) {
    const Ended ended = run_program(
        folder, tool,
        {"tune", "--replay", record, "--strategy", "racing", "--seed", seed, "--json", "o.json"});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    const json problems = read_json(folder / "o.json")["problems"];
    EXPECT_EQ(problems.size(), 16U);
    double spent_s = 0, exhaustive_s = 0;
    for (const json& problem : problems) {
      EXPECT_EQ(problem["candidates"], 54);
      EXPECT_LE(problem["replay"]["regret"], 0.01) << problem["problem"] << problem["winner"];
      const double before_s = set_up_s.at(problem["problem"]);
      const double spent = problem["spent_s"].get<double>() - before_s;
      const double exhaustive = problem["replay"]["exhaustive_s"].get<double>() - before_s;
      EXPECT_LE(spent, 0.4 * exhaustive) << problem["problem"];
      spent_s += spent, exhaustive_s += exhaustive;
    }
    EXPECT_LE(spent_s, 0.15 * exhaustive_s);
  }
}

// A candidate that hangs, dies or lies costs one evaluation, and the search goes on.
TEST(Tune, FaultyCandidatesAreListedAndNeverWin) {
  Folder folder;
  write_text(folder / "faulty.yaml",
             "target: cpu\nvariants: {recurrent: {}, wrong: {}, lazy: {}, crashes: {}, hangs: {}, "
             "picky: {}, chunked: {}}\n");
  const Ended ended =
      run_program(folder, faulty_tool,
                  tune_arguments({"--case", "edge_lengths:tokens=65", "--scope", "core", "--timing",
                                  "hot", "--space", "faulty.yaml", "--deadline", deadline_s,
                                  "--record", "r.jsonl", "--json", "o.json", "--t4", "t4.json"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const json found = read_json(folder / "o.json")["problems"][0];
  EXPECT_TRUE(found["winner"] == "chunked" || found["winner"] == "recurrent") << found["winner"];
  EXPECT_EQ(found["tied"].size() + found["slower"].size(), 1U);
  std::map<std::string, std::pair<std::string, std::string>> out;
  for (const json& loser : found["out"])
    out[loser["candidate"]] = {loser["status"], loser["reason"]};
  EXPECT_EQ(out.size(), 5U);
  EXPECT_EQ(out["wrong"].first, "incorrect");
  EXPECT_EQ(out["lazy"].first, "incorrect");
  EXPECT_EQ(out["crashes"].first, "failed");
  EXPECT_HAS(out["crashes"].second, "Segmentation fault");
  EXPECT_EQ(out["hangs"].first, "failed");
  EXPECT_HAS(out["hangs"].second, "no answer within 10 s");
  EXPECT_EQ(out["picky"].first, "skipped");
  EXPECT_HAS(ended.out, "hangs");
  const TuningRecord record = read_record(folder / "r.jsonl");
  for (const auto& [candidate, why] : out)
    EXPECT_EQ(std::ranges::count(record.problems[0].answers, candidate, &Answer::candidate), 1);
  std::map<std::string, std::string> invalid;
  const json t4 = read_json(folder / "t4.json");
  for (const json& result : t4["results"])
    invalid[result["configuration"]["variant"]] = result["invalidity"];
  EXPECT_EQ(invalid["wrong"], "correctness");
  EXPECT_EQ(invalid["hangs"], "runtime");
  EXPECT_EQ(invalid["picky"], "constraints");
  EXPECT_EQ(invalid["chunked"], "correct");
}

TEST(Tune, ReplayNeedsNoDeviceAndSaysWhatIsMissing) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool, small({"--record", "r.jsonl", "--strategy", "exhaustive"}))
                .exit_code,
            0);
  const Ended racing =
      run_program(folder, tool, {"tune", "--replay", "r.jsonl", "--json", "o.json"});
  EXPECT_EQ(racing.exit_code, 0) << racing.err;
  EXPECT_HAS(racing.out, "an exhaustive search of this record takes ");
  EXPECT_HAS(racing.out, "regret ");
  EXPECT_EQ(racing.err, "");
  const json found = read_json(folder / "o.json");
  EXPECT_EQ(found["problems"].size(), 2U);
  EXPECT_GE(found["problems"][0]["replay"]["regret"], 0.0);
  EXPECT_EQ(found["problems"][0]["replay"]["missing"], json::array());

  // Without what was said of xform and in pairs.
  std::istringstream whole(read_file(folder / "r.jsonl"));
  std::string partial;
  for (std::string line; std::getline(whole, line);)
    if (!has(line, "\"candidate\":\"xform:") && !has(line, "\"a_s\"")) partial += line + "\n";
  const std::string now = read_record(folder / "r.jsonl").measured_at;
  partial.replace(partial.find(now), now.size(), "2025-11-29T20:40:58Z");
  write_text(folder / "partial.jsonl", partial);
  for (const char* strategy : {"racing", "exhaustive", "random", "annealing"}) {
    const Ended ended =
        run_program(folder, tool, {"tune", "--replay", "partial.jsonl", "--strategy", strategy});
    EXPECT_EQ(ended.exit_code, 0) << ended.err;
    EXPECT_HAS(ended.out, std::string("missing from the record: ") + test::xform);
    EXPECT_HAS(ended.out, "2 of 2 candidates evaluated");
  }
  run_program(folder, tool, {"tune", "--replay", "partial.jsonl", "--output", "w.json"});
  const json wisdom = read_json(folder / "w.json");
  ASSERT_EQ(wisdom["entries"].size(), 2U);
  for (const json& entry : wisdom["entries"]) {
    EXPECT_EQ(entry["search"]["candidates"], 3);
    EXPECT_EQ(entry["search"]["evaluated"], 2);
    EXPECT_EQ(entry["search"]["limited"], true);
    EXPECT_EQ(entry["tuned_at"], "2025-11-29T20:40:58Z");
  }
  const Ended one =
      run_program(folder, tool, {"tune", "--replay", "r.jsonl", "--variant", test::chunked});
  EXPECT_HAS(one.out, "1 of 1 candidates evaluated");
  const Ended limited = run_program(
      folder, tool, {"tune", "--replay", "r.jsonl", "--strategy", "random", "--max-evals", "1"});
  EXPECT_HAS(limited.out, "1 of 3 candidates evaluated");
  EXPECT_HAS(limited.out, "ended by --max-evals");
  write_text(folder / "begun.jsonl", test::first_lines(read_file(folder / "r.jsonl"), 1));
  test::expect_refused(run_program(folder, tool, {"tune", "--replay", "begun.jsonl"}),
                       "--replay begun.jsonl: it has no answer yet");
  std::string header = test::first_lines(read_file(folder / "r.jsonl"), 2);
  header.replace(header.find("\"deadline_s\""), 12, "\"deadline\"");
  write_text(folder / "edited.jsonl", header);
  test::expect_refused(run_program(folder, tool, {"tune", "--replay", "edited.jsonl"}),
                       "gdnbench: edited.jsonl:1: what it was asked for cannot be read: "
                       "`options.deadline_s` is missing");
}

TEST(Tune, AHeaderWithAWrongTypeIsRefusedByTheFieldsName) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool, small({"--record", "r.jsonl"})).exit_code, 0);
  const std::string whole = read_file(folder / "r.jsonl");
  const std::size_t end = whole.find('\n');
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, json>>{{"set", "gates"},
                                                 {"set", {{"gates"}}},
                                                 {"case", 3},
                                                 {"timeout_s", "1"},
                                                 {"shard", {1}},
                                                 {"devices", "0"},
                                                 {"scope", {1}},
                                                 {"against", {{"variant", 1}}}}) {
    json header = json::parse(whole.substr(0, end));
    header["options"][name] = value;
    write_text(folder / "edited.jsonl", header.dump() + whole.substr(end));
    const Ended ended = run_program(folder, tool, {"tune", "--resume", "edited.jsonl"});
    test::expect_refused(ended, "edited.jsonl:1: ");
    EXPECT_HAS(ended.err, "`options." + name);
    EXPECT_FALSE(test::has(ended.err, "json.exception")) << ended.err;
  }
}

// What a merge makes of several headers names its candidates in an order of its own.
TEST(Tune, TheOrderOfARecordsCandidatesDoesNotMatter) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool, small({"--record", "r.jsonl"})).exit_code, 0);
  const std::string whole = read_file(folder / "r.jsonl");
  const std::size_t end = whole.find('\n');
  const auto with_candidates = [&](const json& candidates) {
    json header = json::parse(whole.substr(0, end));
    header["options"]["candidates"] = candidates;
    write_text(folder / "r.jsonl", header.dump() + whole.substr(end));
  };
  with_candidates(Words(three.rbegin(), three.rend()));
  const Ended resumed = run_program(folder, tool, {"tune", "--resume", "r.jsonl"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  with_candidates({1, 2});
  for (const char* option : {"--replay", "--resume"})
    expect_refused(run_program(folder, tool, {"tune", option, "r.jsonl"}),
                   "r.jsonl:1: options.candidates[0]: a string is expected, not a number");
}

// As a throttled device would have written them: flags of a candidate that won or is tied.
TEST(Tune, FlagsOfSamplesStandInTheWisdom) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool, small({"--record", "r.jsonl"})).exit_code, 0);
  std::istringstream whole(read_file(folder / "r.jsonl"));
  std::string flagged;
  for (std::string line; std::getline(whole, line); flagged += line + "\n")
    if (has(line, "\"candidate\"") && has(line, "edge_lengths:tokens=7:"))
      line.insert(1, "\"flags\":[\"throttled\"],");
  write_text(folder / "r.jsonl", flagged);
  const Ended ended =
      run_program(folder, tool, {"tune", "--replay", "r.jsonl", "--output", "w.json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json entries = read_json(folder / "w.json")["entries"];
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_FALSE(entries[0].contains("flags"));
  EXPECT_EQ(entries[1]["flags"], Words{"throttled"});
}

json problems_of(const std::string& path) { return read_json(path)["problems"]; }

// The lines of two shards under one header are a record of the whole.
TEST(Tune, ShardsTogetherAreTheWhole) {
  Folder folder;
  json in_shards = json::array();
  std::string merged;
  for (const std::string shard : {"1", "2"}) {
    ASSERT_EQ(
        run_program(folder, tool, small({"--shard", shard + "/2", "--record", shard + ".jsonl"}))
            .exit_code,
        0);
    ASSERT_EQ(
        run_program(folder, tool, {"tune", "--replay", shard + ".jsonl", "--json", shard + ".json"})
            .exit_code,
        0);
    ASSERT_EQ(problems_of(folder / (shard + ".json")).size(), 1U);
    in_shards.push_back(problems_of(folder / (shard + ".json"))[0]);
    const std::string record = read_file(folder / (shard + ".jsonl"));
    merged += merged.empty() ? record : record.substr(record.find('\n') + 1);
  }
  write_text(folder / "merged.jsonl", merged);
  ASSERT_EQ(
      run_program(folder, tool, {"tune", "--replay", "merged.jsonl", "--json", "m.json"}).exit_code,
      0);
  EXPECT_EQ(problems_of(folder / "m.json"), in_shards);
  const Ended whole = run_program(folder, tool, small({"--dry-run"}));
  for (const json& problem : in_shards)
    EXPECT_HAS(whole.out, problem["problem"]["case"].get<std::string>());
}

TEST(Tune, MergedShardsOfOtherCandidatesLoseNone) {
  Folder folder;
  const auto tune = [&](const char* shard, const std::string& variants, const char* record) {
    const Ended ended =
        run_program(folder, tool,
                    tune_arguments({"--case", "edge_lengths:tokens=3,edge_lengths:tokens=7",
                                    "--scope", "core", "--timing", "hot", "--shard", shard,
                                    "--variant", variants, "--record", record}));
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
  };
  tune("1/2", three[2], "1.jsonl");
  tune("2/2", three[0] + "," + three[1], "2.jsonl");
  ASSERT_EQ(
      run_program(folder, tool, {"merge", "1.jsonl", "2.jsonl", "--output", "m.jsonl"}).exit_code,
      0);
  const Ended ended =
      run_program(folder, tool, {"tune", "--replay", "m.jsonl", "--json", "o.json"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json outcome = read_json(folder / "o.json");
  EXPECT_EQ(outcome["options"]["candidates"], three);
  EXPECT_EQ(outcome["problems"][0]["winner"], three[2]);
  EXPECT_EQ(outcome["problems"][0]["replay"]["missing"], (Words{three[0], three[1]}));
  EXPECT_EQ(outcome["problems"][1]["evaluated"], 2);
  EXPECT_EQ(outcome["problems"][1]["replay"]["missing"], Words{three[2]});
  const Ended resumed = run_program(folder, tool, {"tune", "--resume", "m.jsonl"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
}

// kill -9 at 20 moments: up to 20 ms after the record has grown. What stands in it stays, nothing
// comes twice, and the search that is whole in the end is the one that the record replays.
void expect_20_kills_lose_nothing(const Words& more) {
  constexpr int wanted_kills = 20;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1000);
  std::mt19937 random(20);
  std::optional<Folder> folder(std::in_place);
  int kills = 0;
  while (true) {
    const std::string path = *folder / "r.jsonl";
    const std::string before = read_file(path);
    const std::string lines = before.substr(0, before.rfind('\n') + 1);
    if (lines.empty()) std::filesystem::remove(path);
    const std::chrono::milliseconds pause(random() % 20);
    const Words arguments = lines.empty()
                                ? joined(small({"--record", "r.jsonl", "--json", "o.json"}), more)
                                : Words{"tune", "--resume", "r.jsonl", "--json", "o.json"};
    std::optional<Clock::time_point> grown;
    const auto moment = [&] {
      std::error_code absent;
      const std::uintmax_t size = std::filesystem::file_size(path, absent);
      if (!grown && !absent && size > before.size()) grown = Clock::now();
      return kills < wanted_kills && grown && Clock::now() >= *grown + pause;
    };
    const Ended ended = test::run_until(moment, deadline, *folder, arguments);
    if (testing::Test::HasFailure()) return;
    ASSERT_TRUE(read_file(path).starts_with(lines)) << "after " << kills << " kills";
    if (ended.exit_code == 128 + SIGKILL) {
      ++kills;
      continue;
    }
    ASSERT_EQ(ended.exit_code, 0) << ended.err;
    const TuningRecord record = read_record(path);  // refuses what is doubled or missing
    ASSERT_EQ(record.problems.size(), 2U);
    for (const RecordedProblem& problem : record.problems) {
      EXPECT_TRUE(problem.finished);
      EXPECT_EQ(problem.evaluations().size(), 3U);
    }
    const std::string whole = read_file(path);
    const json found = problems_of(*folder / "o.json");
    const Ended again =
        run_program(*folder, tool, {"tune", "--resume", "r.jsonl", "--json", "p.json"});
    EXPECT_EQ(again.exit_code, 0) << again.err;
    EXPECT_EQ(problems_of(*folder / "p.json"), found);
    EXPECT_EQ(read_file(path), whole);
    if (kills == wanted_kills) break;
    folder.emplace();
  }
  EXPECT_EQ(kills, wanted_kills);
}

TEST(Tune, LosesAndDoublesNothingOver20Kills) { expect_20_kills_lose_nothing({}); }

TEST(TuneOnDevices, LosesAndDoublesNothingOver20Kills) {
  expect_20_kills_lose_nothing({"--device", "0,0"});
}

// Four problems.
Words several(const Words& more) {
  return joined(
      tune_arguments({"--case", "edge_lengths:tokens=?", "--set", "query_heads=1", "--set",
                      "value_heads=1", "--scope", "core", "--timing", "hot", "--device", "0,0,0"}),
      more);
}

Words names_of(const json& problems) {
  Words names;
  for (const json& problem : problems) names.push_back(problem["problem"]["case"]);
  return names;
}

Words four_names() {
  Words names;
  for (const char* tokens : {"1", "2", "3", "7"})
    names.push_back(std::string("edge_lengths:tokens=") + tokens + ":query_heads=1:value_heads=1");
  return names;
}

// More workers than one: every problem is one's, and the results have the order of the problems.
TEST(TuneOnDevices, EachProblemIsSearchedOnce) {
  Folder folder;
  const Ended ended = run_program(folder, tool,
                                  several({"--variant", test::each_first, "--record", "r.jsonl",
                                           "--json", "o.json", "--output", "w.json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const json found = problems_of(folder / "o.json");
  EXPECT_EQ(names_of(found), four_names());
  std::size_t at = 0;
  for (const std::string& name : four_names()) {
    EXPECT_EQ(ended.out.find(name + "  core, hot", at), ended.out.find(name + "  core, hot"));
    at = ended.out.find(name + "  core, hot");
    EXPECT_NE(at, std::string::npos) << name;
  }
  const TuningRecord record = read_record(folder / "r.jsonl");  // refuses what is doubled
  ASSERT_EQ(record.problems.size(), 4U);
  for (const RecordedProblem& problem : record.problems) {
    EXPECT_TRUE(problem.finished);
    EXPECT_EQ(problem.evaluations().size(), 3U);
  }
  EXPECT_EQ(read_json(folder / "w.json")["entries"].size(), 4U);
  const Ended again =
      run_program(folder, tool, {"tune", "--resume", "r.jsonl", "--json", "p.json"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(problems_of(folder / "p.json"), found);
}

TEST(TuneOnDevices, AWorkerThatDiesIsReplacedInItsPlace) {
  Folder folder;
  write_text(folder / "faulty.yaml",
             "target: cpu\nvariants: {recurrent: {}, crashes: {}, exits: {}, chunked: {}}\n");
  const Ended ended =
      run_program(folder, faulty_tool, several({"--space", "faulty.yaml", "--json", "o.json"}));
  EXPECT_EQ(ended.exit_code, 2) << ended.err;
  const json found = problems_of(folder / "o.json");
  EXPECT_EQ(names_of(found), four_names());
  for (const json& problem : found) {
    EXPECT_EQ(problem["out"].size(), 2U) << problem;
    EXPECT_TRUE(problem["winner"] == "chunked" || problem["winner"] == "recurrent") << problem;
  }
}

// The trouble of one ends all, and what was on disk before goes on once it is mended.
TEST(TuneOnDevices, ARecordThatCannotGrowEndsAll) {
  Folder folder;
  const auto arguments = [](const std::string& record) {
    return several({"--variant", test::each_first, "--record", record, "--json", "o.json"});
  };
  ASSERT_EQ(run_program(folder, tool, arguments("whole.jsonl")).exit_code, 0);
  std::filesystem::remove(folder / "o.json");
  // Room for the first line and some answers, in blocks of 512 bytes: the lines of 12 candidates
  // take more, however few samples there are time for.
  const std::size_t blocks = read_file(folder / "whole.jsonl").find('\n') / 512 + 3;
  std::string line = "ulimit -f " + std::to_string(blocks) + "; exec $T";
  for (const std::string& word : arguments("r.jsonl")) line += " '" + word + "'";
  const Ended ended = test::run_shell(folder, line);
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  EXPECT_HAS(ended.err, "gdnbench: r.jsonl: ");
  EXPECT_FALSE(std::filesystem::exists(folder / "o.json"));
  const Ended mended =
      run_program(folder, tool, {"tune", "--resume", "r.jsonl", "--json", "o.json"});
  EXPECT_EQ(mended.exit_code, 0) << mended.err;
  EXPECT_EQ(names_of(problems_of(folder / "o.json")), four_names());
}

TEST(Tune, ResumeRefusesAnotherBuild) {
  Folder folder;
  ASSERT_EQ(run_program(folder, tool, small({"--record", "r.jsonl"})).exit_code, 0);
  const std::string record = of_another_build(read_file(folder / "r.jsonl"));
  write_text(folder / "r.jsonl", record);
  expect_refused(run_program(folder, tool, {"tune", "--resume", "r.jsonl"}), "binary_hash");
  EXPECT_EQ(read_file(folder / "r.jsonl"), record);
}

}  // namespace
}  // namespace gdn
