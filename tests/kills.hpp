// Runs of the tool that are killed in the middle, and go on by --resume.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "src/result.hpp"
#include "tests/tool.hpp"

namespace gdn::test {

// How often each row stands in a journal: once a round.
inline std::map<std::string, std::size_t> lines_of(const std::string& path) {
  std::map<std::string, std::size_t> lines;
  std::istringstream journal(read_file(path));
  for (std::string line; std::getline(journal, line);)
    if (const nlohmann::json row = nlohmann::json::parse(line); row.contains("case"))
      ++lines[row_key(row_from_json(row))];
  return lines;
}

inline std::vector<std::string> keys_of(const std::string& path) {
  std::vector<std::string> keys;
  for (const Row& row : read_report(path).rows) keys.push_back(row_key(row));
  return keys;
}

using Clock = std::chrono::steady_clock;

// Runs the tool until it has ended or `moment` has come, and kills it then. The deadline is a
// moment too, and a failure.
inline Ended run_until(const std::function<bool()>& moment, Clock::time_point deadline,
                       const Folder& folder, const std::vector<std::string>& arguments) {
  Process process(folder, tool, arguments);
  while (!process.has_ended() && !moment()) {
    if (Clock::now() >= deadline) {
      ADD_FAILURE() << "no end in sight of " << testing::PrintToString(arguments) << ": "
                    << read_file(folder / "stderr.txt");
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  process.kill_now();
  return process.wait();
}

// kill -9 at 20 random moments of unfinished runs: the rows in the journal stay, and in the end
// they are those of a run that nobody disturbed, each once in every round. A moment is when the
// journal has changed, and up to 20 ms more. A run that gets finished before its moment is judged,
// and another begun. `exit_code` is that of a whole run.
inline void expect_20_kills_lose_nothing(const std::vector<std::string>& arguments,
                                         std::size_t rows, std::size_t rounds = 1,
                                         int exit_code = 0) {
  constexpr int wanted_kills = 20;
  const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1000);
  Folder whole;
  const Ended undisturbed = run_until([] { return false; }, deadline, whole, arguments);
  ASSERT_EQ(undisturbed.exit_code, exit_code) << undisturbed.err;
  const std::vector<std::string> expected = keys_of(whole / "r.json");
  ASSERT_EQ(expected.size(), rows);
  ASSERT_EQ(std::set<std::string>(expected.begin(), expected.end()).size(), rows);

  std::mt19937 random(20);
  std::optional<Folder> folder(std::in_place);
  int kills = 0;
  int runs = 1;
  while (true) {
    const std::string journal = *folder / "r.json.jsonl";
    const std::string before = read_file(journal);
    const std::string lines = before.substr(0, before.rfind('\n') + 1);  // without a torn one
    const std::chrono::milliseconds pause(random() % 20);
    if (lines.empty()) std::filesystem::remove(journal);  // as the tool says of a torn header
    std::optional<Clock::time_point> changed;
    const auto moment = [&] {
      std::error_code absent;
      const std::uintmax_t size = std::filesystem::file_size(journal, absent);
      if (!changed && !absent && size != before.size()) changed = Clock::now();
      return kills < wanted_kills && changed && Clock::now() >= *changed + pause;
    };
    const Ended ended = run_until(
        moment, deadline, *folder,
        lines.empty() ? arguments : std::vector<std::string>{"run", "--resume", "r.json.jsonl"});
    if (testing::Test::HasFailure()) return;
    const std::string after = read_file(journal);
    ASSERT_TRUE(after.starts_with(lines)) << "after " << kills << " kills";
    if (ended.exit_code == 128 + SIGKILL) {
      if (!has(after, "{\"finished\"")) ++kills;
      continue;
    }
    ASSERT_EQ(ended.exit_code, exit_code) << ended.err;
    ASSERT_EQ(keys_of(*folder / "r.json"), expected);
    ASSERT_EQ(keys_of(journal), expected);
    for (const auto& [key, written] : lines_of(journal)) EXPECT_EQ(written, rounds) << key;
    for (const Row& row : read_report(*folder / "r.json").rows)
      EXPECT_EQ(row.round_medians_s.size(), rounds) << row_key(row);
    if (kills == wanted_kills) break;
    folder.emplace();
    ++runs;
  }
  testing::Test::RecordProperty("kills", kills);
  testing::Test::RecordProperty("runs", runs);
  EXPECT_EQ(kills, wanted_kills);
}

}  // namespace gdn::test
