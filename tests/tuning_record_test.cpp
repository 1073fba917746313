// Records of searches: what is written, read back, gone on with and replayed.
#include "src/tuning_record.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <functional>

#include "src/appended_file.hpp"
#include "src/error.hpp"
#include "src/statistics.hpp"
#include "src/wisdom.hpp"
#include "tests/process.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::Folder;
using test::read_file;
using test::write_text;

const json fingerprint = {{"device", "a test's"}};
const json options = {{"seed", 1}, {"candidates", {"fast", "slow"}}, {"variant", json::array()}};

json options_with(const std::string& key, const json& value) {
  json changed = options;
  changed[key] = value;
  return changed;
}

const json problem = {{"case", "small"}, {"scope", "core"}};

// Sample i of "slow" is 2 + i/1000 s, of "fast" 1 + i/1000 s; "bad" is incorrect, and "frail" fails
// when it is paired. To lay the problem out costs 100 s, which are no candidate's. Counts what it
// is asked.
class Scripted : public Evaluator {
 public:
  const Evaluation& evaluate(const std::string& id, std::size_t samples) override {
    if (known_.empty()) spent_s_ += 100;
    Evaluation& known = known_[id];
    if (known.setup_s == 0) {
      ++setups;
      known.setup_s = 10;
      spent_s_ += 10;
    }
    if (id == "bad") {
      known.status = Status::incorrect;
      known.reason = "off by one";
    }
    while (known.status == Status::passed && known.samples_s.size() < samples) {
      ++taken;
      const double base = id == "slow" ? 2 : 1;
      known.samples_s.push_back(base + static_cast<double>(known.samples_s.size()) / 1000);
      known.sampling_s += 0.5;
      spent_s_ += 0.5;
    }
    return known;
  }

  Pairs pair(const std::string& a, const std::string& b, const PairPlan&, double) override {
    ++pairs;
    spent_s_ += 3;
    if (a == "frail" || b == "frail") {
      known_["frail"].status = Status::failed;
      known_["frail"].reason = "died";
      return {};
    }
    return {{1, 1, 1}, {2, 2, 2}};
  }

  double spent_s() const override { return spent_s_; }

  int setups = 0, taken = 0, pairs = 0;

 private:
  std::map<std::string, Evaluation> known_;
  double spent_s_ = 0;
};

// One search, call by call; what it was answered.
std::string search_with(Evaluator& evaluator) {
  std::string said;
  for (const auto& [id, samples] : std::vector<std::pair<const char*, std::size_t>>{
           {"fast", 2}, {"slow", 2}, {"bad", 2}, {"fast", 4}, {"fast", 3}, {"frail", 1}}) {
    const Evaluation& now = evaluator.evaluate(id, samples);
    said += std::string(id) + std::to_string(now.samples_s.size()) + now.reason + " ";
  }
  said += std::to_string(evaluator.pair("fast", "slow", {}, 0).b_s.size());
  said += std::to_string(evaluator.pair("fast", "frail", {}, 0).b_s.size());
  return said + evaluator.evaluate("frail", 0).reason;
}

constexpr const char* said_by_all = "fast2 slow2 bad0off by one fast4 fast4 frail1 30died";

TEST(Record, HoldsEveryAnswerOnceAndReadsBack) {
  Folder folder;
  Scripted inner;
  RecordFile file = RecordFile::create(folder / "r.jsonl", fingerprint, options);
  const auto recording = recording_evaluator(inner, file, problem);
  EXPECT_EQ(search_with(*recording), said_by_all);
  EXPECT_EQ(inner.taken, 7);
  EXPECT_EQ(recording->spent_s(), 100 + 4 * 10 + 7 * 0.5 + 2 * 3);
  file.finish(problem);
  file.finish(problem);

  const std::string text = read_file(folder / "r.jsonl");
  EXPECT_EQ(std::ranges::count(text, '\n'), 1 + 5 + 2 + 1);
  const TuningRecord record = read_record(folder / "r.jsonl");
  EXPECT_EQ(record.fingerprint, fingerprint);
  EXPECT_EQ(record.options, options);
  EXPECT_TRUE(is_time_stamp(record.measured_at)) << record.measured_at;
  ASSERT_EQ(record.problems.size(), 1U);
  const RecordedProblem& read = record.problems[0];
  EXPECT_TRUE(read.finished);
  ASSERT_EQ(read.answers.size(), 5U);
  EXPECT_EQ(read.answers[3].candidate, "fast");
  EXPECT_EQ(read.answers[3].first, 2U);
  EXPECT_EQ(read.answers[3].samples_s, (std::vector<double>{1.002, 1.003}));
  EXPECT_EQ(read.answers[3].setup_s, 0);
  EXPECT_EQ(read.answers[3].sampling_s, 1);
  ASSERT_EQ(read.meetings.size(), 2U);
  EXPECT_EQ(read.meetings[1].lost[0].candidate, "frail");
  EXPECT_EQ(read.evaluations().at("frail").status, Status::failed);
  EXPECT_EQ(record.whole_bytes, text.size());
}

// Cut at places all over the file: the search takes the same path, the rest is measured, and in
// the end the file is that of an undisturbed search.
TEST(Record, GoesOnFromWhereverItWasCut) {
  Folder folder;
  {
    Scripted inner;
    RecordFile file = RecordFile::create(folder / "whole.jsonl", fingerprint, options);
    search_with(*recording_evaluator(inner, file, problem));
    file.finish(problem);
  }
  const std::string whole = read_file(folder / "whole.jsonl");
  for (std::size_t bytes = whole.find('\n') + 1; bytes <= whole.size(); bytes += 37) {
    write_text(folder / "cut.jsonl", whole.substr(0, bytes));
    Scripted inner;
    RecordFile file = RecordFile::reopen(folder / "cut.jsonl");
    file.go_on(fingerprint, options);
    EXPECT_EQ(search_with(*recording_evaluator(inner, file, problem)), said_by_all);
    file.finish(problem);
    const std::string after = read_file(folder / "cut.jsonl");
    EXPECT_EQ(std::ranges::count(after, '\n'), std::ranges::count(whole, '\n')) << bytes;
    EXPECT_TRUE(after.starts_with(whole.substr(0, whole.rfind('\n', bytes - 1) + 1)));
    EXPECT_EQ(read_record(folder / "cut.jsonl").problems[0].answers.size(), 5U);
  }
  Scripted inner;
  RecordFile file = RecordFile::reopen(folder / "whole.jsonl");
  file.go_on(fingerprint, options);
  const auto recording = recording_evaluator(inner, file, problem);
  search_with(*recording);
  EXPECT_EQ(recording->spent_s(), 100 + 4 * 10 + 7 * 0.5 + 2 * 3);
  file.finish(problem);
  EXPECT_EQ(inner.setups + inner.taken + inner.pairs, 0);
  EXPECT_EQ(read_file(folder / "whole.jsonl"), whole);
}

// Flags of samples are their candidate's, those of pairs both's, and no line passes on what was
// wrong before; one that is resumed or replayed has them still, and a line without any is as it
// was.
TEST(Record, KeepsFlags) {
  class Flagged : public Scripted {
   public:
    const Evaluation& evaluate(const std::string& id, std::size_t samples) override {
      now_ = Scripted::evaluate(id, samples);
      if (id == "slow") now_.flags = {"not_queued"};
      if (pairs > 0) now_.flags.emplace_back("throttled");
      return now_;
    }

   private:
    Evaluation now_;
  };
  using Flags = std::vector<std::string>;
  Folder folder;
  const auto search = [](Evaluator& evaluator) {
    EXPECT_EQ(evaluator.evaluate("fast", 2).flags, Flags{});
    EXPECT_EQ(evaluator.evaluate("slow", 2).flags, Flags{"not_queued"});
    EXPECT_EQ(evaluator.evaluate("other", 2).flags, Flags{});
    evaluator.pair("fast", "slow", {}, 0);
    EXPECT_EQ(evaluator.evaluate("fast", 0).flags, Flags{"throttled"});
    EXPECT_EQ(evaluator.evaluate("slow", 0).flags, (Flags{"not_queued", "throttled"}));
    EXPECT_EQ(evaluator.evaluate("other", 0).flags, Flags{});
  };
  {
    Flagged inner;
    RecordFile file = RecordFile::create(folder / "r.jsonl", fingerprint, options);
    search(*recording_evaluator(inner, file, problem));
  }
  const std::string whole = read_file(folder / "r.jsonl");
  EXPECT_EQ(whole.find("\"flags\":[]"), std::string::npos);
  {
    Scripted nobody;
    RecordFile file = RecordFile::reopen(folder / "r.jsonl");
    file.go_on(fingerprint, options);
    search(*recording_evaluator(nobody, file, problem));
    EXPECT_EQ(nobody.setups + nobody.taken + nobody.pairs, 0);
  }
  const RecordedProblem record = read_record(folder / "r.jsonl").problems.at(0);
  EXPECT_EQ(record.meetings.at(0).flags, Flags{"throttled"});
  EXPECT_EQ(record.evaluations().at("fast").flags, Flags{"throttled"});
  EXPECT_EQ(record.evaluations().at("other").flags, Flags{});
  EXPECT_EQ(replay_evaluator(record)->evaluate("other", 2).flags, Flags{});
  EXPECT_EQ(replay_evaluator(record)->evaluate("slow", 2).flags,
            (Flags{"not_queued", "throttled"}));
}

void expect_refused(const std::function<void()>& act, const std::string& message) {
  try {
    act();
    ADD_FAILURE() << "not refused: " << message;
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
  }
}

TEST(Record, IsRefusedWhereItIsAnother) {
  Folder folder;
  const std::string path = folder / "r.jsonl";
  RecordFile::create(path, fingerprint, options);
  const std::string text = read_file(path);
  expect_refused([&] { RecordFile::create(path, fingerprint, options); }, "--resume " + path);
  expect_refused(
      [&] {
        RecordFile::reopen(path).go_on({{"device", "other"}}, options);
      },
      "fingerprint: device was \"a test's\" and is \"other\"");
  expect_refused([&] { RecordFile::reopen(path).go_on(fingerprint, options_with("seed", 2)); },
                 "options: seed was 1 and is 2");
  expect_refused(
      [&] { RecordFile::reopen(path).go_on(fingerprint, options_with("candidates", {"fast"})); },
      R"(options: candidates was ["fast","slow"] and is ["fast"])");
  RecordFile::reopen(path).go_on(fingerprint, options_with("candidates", {"slow", "fast"}));
  const RecordFile open = RecordFile::reopen(path);
  expect_refused([&] { RecordFile::reopen(path); }, "another run is writing it");
  EXPECT_EQ(read_file(path), text);
}

TEST(Record, IsReadStrictly) {
  Folder folder;
  const auto header_with = [](const std::string& candidates) {
    return R"({"schema":"gdnbench-record/1","fingerprint":{},"options":{)" + candidates +
           R"("variant":[]}})";
  };
  const std::string header = header_with(R"("candidates":["a"],)");
  const std::string answer =
      R"({"problem":{},"candidate":"a","status":"passed","reason":"","first":0,"samples_s":[1],"setup_s":0,"sampling_s":1})";
  const auto read = [&](const std::string& text) {
    write_text(folder / "r.jsonl", text);
    return read_record(folder / "r.jsonl");
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = answer;
    changed.replace(changed.find(from), from.size(), to);
    return header + "\n" + changed + "\n";
  };
  ASSERT_EQ(read(header + "\n" + answer + "\n").problems[0].answers.size(), 1U);
  EXPECT_EQ(read(header + "\n" + answer + "\n").problems[0].answers[0].seconds, 1);
  EXPECT_EQ(
      read(with("\"setup_s\":0", "\"seconds\":3,\"setup_s\":0")).problems[0].answers[0].seconds, 3);
  EXPECT_EQ(read(header + "\n" + answer).problems.size(), 0U);  // torn
  EXPECT_EQ(read(header + "\n").measured_at, "");
  const std::string dated = R"({"schema":"gdnbench-record/1","measured_at":"2025-11-29T20:40:58Z",)"
                            R"("fingerprint":{},"options":{"candidates":[],"variant":[]}})";
  EXPECT_EQ(read(dated + "\n").measured_at, "2025-11-29T20:40:58Z");
  expect_refused(
      [&] {
        read(R"({"schema":"gdnbench-record/1","measured_at":"today","fingerprint":{},"options":{}})"
             "\n");
      },
      "r.jsonl:1: measured_at: a time like");
  expect_refused([&] { read(""); }, "has no whole line");
  expect_refused([&] { read(header); }, "has no whole line");
  expect_refused([&] { read("nonsense\n"); }, "r.jsonl:1:2: not JSON");
  const std::string deep = "{\"finished\":{\"a\":" + std::string(100'000, '[');
  expect_refused([&] { read(header + "\n" + deep + std::string(100'000, ']') + "}}\n"); },
                 "nested too deeply");
  expect_refused(
      [&] {
        read(R"({"schema":"gdnbench/1"})"
             "\n");
      },
      "r.jsonl:1: schema");
  expect_refused([&] { read(header + "\n" + answer + "\n" + answer + "\n"); },
                 "r.jsonl:3: first: 1 is wanted");
  expect_refused([&] { read(with("\"passed\"", "\"past\"")); }, "r.jsonl:2: status");
  for (const auto& [candidates, said] : std::vector<std::pair<const char*, const char*>>{
           {"", ": a list is missing"},
           {"\"candidates\":null,", ": a list is missing"},
           {"\"candidates\":\"a\",", ": a list is expected, not a string"},
           {"\"candidates\":{},", ": a list is expected, not an object"},
           {"\"candidates\":[\"a\",2],", "[1]: a string is expected, not a number"}})
    expect_refused([&] { read(header_with(candidates) + "\n"); },
                   std::string("r.jsonl:1: options.candidates") + said);
  expect_refused(
      [&] {
        read(R"({"schema":"gdnbench-record/1","fingerprint":{},"options":{"candidates":[]}})"
             "\n");
      },
      "r.jsonl:1: options.variant: a list is missing");
  expect_refused([&] { read(with("\"reason\"", "\"flags\":[\"noisy\",\"\"],\"reason\"")); },
                 "r.jsonl:2: flags[1]: a name is expected");
  expect_refused([&] { read(with("[1]", "[-1]")); }, "r.jsonl:2: samples_s[0]");
  expect_refused([&] { read(with("\"first\":0", "\"first\":1")); },
                 "r.jsonl:2: first: 0 is wanted");
  expect_refused([&] { read(with("\"setup_s\":0,", "")); }, "r.jsonl:2: setup_s");
  expect_refused(
      [&] {
        read(header + "\n" +
             R"({"problem":{},"a":"a","b":"b","a_s":[1],"b_s":[],"seconds":1,"lost":[]})"
             "\n");
      },
      "r.jsonl:2: b_s: as many as in a_s");
  expect_refused([&] { read_record(folder / "missing.jsonl"); }, "no such file");
}

TEST(Replay, HandsOutWhatTheRecordHasAtItsCost) {
  RecordedProblem record;
  record.answers = {
      {.candidate = "a", .first = 0, .samples_s = {1, 2}, .setup_s = 5, .sampling_s = 1},
      {.candidate = "a", .first = 2, .samples_s = {3, 4}, .setup_s = 0, .sampling_s = 3},
      {.candidate = "b", .first = 0, .samples_s = {5, 6}, .setup_s = 1, .sampling_s = 8},
      {.candidate = "bad",
       .status = Status::failed,
       .reason = "hung",
       .samples_s = {},
       .setup_s = 120,
       .sampling_s = 0}};
  record.meetings = {{.a = "a", .b = "c", .pairs = {{1, 1}, {2, 2}}, .seconds = 7, .lost = {}}};
  const auto replay = replay_evaluator(record);
  EXPECT_EQ(replay->evaluate("a", 2).samples_s, (std::vector<double>{1, 2}));
  EXPECT_EQ(replay->spent_s(), 5 + 2);  // 4 s of sampling for 4 samples
  EXPECT_EQ(replay->evaluate("a", 3).samples_s, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(replay->evaluate("a", 2).samples_s.size(), 3U);
  EXPECT_EQ(replay->spent_s(), 5 + 3);
  EXPECT_EQ(replay->evaluate("a", 100).samples_s.size(), 4U);
  EXPECT_EQ(replay->spent_s(), 5 + 4);
  EXPECT_EQ(replay->evaluate("bad", 1).status, Status::failed);
  EXPECT_EQ(replay->evaluate("bad", 9).reason, "hung");
  EXPECT_EQ(replay->spent_s(), 129);
  EXPECT_EQ(replay->evaluate("elsewhere", 1).status, Status::skipped);
  EXPECT_EQ(replay->evaluate("elsewhere", 1).reason, "not in the record");
  EXPECT_EQ(replay->pair("c", "a", {}, 0).a_s, (std::vector<double>{2, 2}));  // the other way round
  EXPECT_EQ(replay->spent_s(), 136);
  const Pairs made = replay->pair("a", "b", {}, 0);
  EXPECT_EQ(made.a_s, (std::vector<double>{1, 2}));
  EXPECT_EQ(made.b_s, (std::vector<double>{5, 6}));
  EXPECT_EQ(replay->spent_s(), 136 + 2 + 8);
  const Pairs itself = replay->pair("a", "a", {}, 0);
  EXPECT_EQ(itself.a_s, (std::vector<double>{1, 3}));
  EXPECT_EQ(itself.b_s, (std::vector<double>{2, 4}));
}

TEST(TuningRecord, WhatCannotHaveBeenMeasuredIsRefused) {
  const TuningProblem right = {{.name = "small", .problem = {.offsets = {0, 65}}}};
  EXPECT_EQ(problem_from_json(to_json(right)).c.problem, right.c.problem);
  for (const auto& [field, value] :
       std::vector<std::pair<const char*, json>>{{"case", ""},
                                                 {"lengths", json::array()},
                                                 {"lengths", {0}},
                                                 {"lengths", {2'000'000'000, 2'000'000'000}},
                                                 {"query_heads", 0},
                                                 {"query_heads", 3},
                                                 {"value_heads", 0}}) {
    json wrong = to_json(right);
    wrong[field] = value;
    EXPECT_THROW(problem_from_json(wrong), UserError) << field << value;
  }
  EXPECT_EQ(signed_rank_p({0.1, std::nan(""), 0.2}), signed_rank_p({0.1, 0.2}));
}

// Another writer of the same process may go on with the next line.
TEST(AppendedFile, ALineThatDoesNotFitLeavesNoPartOfIt) {
  Folder folder;
  const std::string path = folder / "lines";
  AppendedFile file(path, true, "--record");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 100;
  setrlimit(RLIMIT_FSIZE, &small);
  file.append("first\n");
  EXPECT_THROW(file.append(std::string(1000, 'x') + "\n"), UserError);
  file.append("next\n");
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(read_file(path), "first\nnext\n");
}

}  // namespace
}  // namespace gdn
