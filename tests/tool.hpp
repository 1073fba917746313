// The finished program, and how tests call it.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/process.hpp"

namespace gdn::test {

inline constexpr const char* tool = GDNBENCH_TOOL;
inline constexpr const char* faulty_tool = GDNBENCH_FAULTY_TOOL;
inline constexpr const char* on_terminal = GDNBENCH_ON_TERMINAL;

// The first configuration of each variant of the CPU, and all three of them for --variant.
inline constexpr const char* recurrent = "recurrent:threads=all";
inline constexpr const char* chunked = "chunked:chunk=64:threads=all";
inline constexpr const char* xform = "xform:chunk=64:threads=all";
inline constexpr const char* each_first = "recurrent:threads=all,*:chunk=64:threads=all";

using Words = std::vector<std::string>;

inline Words joined(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

// A quick run: 6 samples a row, however noisy, and however slow the build is that takes them.
inline Words run_arguments(const Words& more, const std::string& backend = "cpu",
                           const std::string& timeout = "60") {
  return joined({"run", "--backend", backend, "--timeout", timeout, "--max-noise", "1000",
                 "--min-samples", "6"},
                more);
}

// Seconds after which a row counts as hanging: those that do not have to end before, however busy
// the machine is.
inline constexpr const char* deadline_s = "10";

// A line of the shell, where $T is the tool and $RUN a quick run of one row with it.
inline Ended run_shell(const Folder& folder, const std::string& line) {
  const std::string quick = std::string(tool) +
                            " run --backend cpu --timeout 2 --max-noise 1000 --min-samples 6"
                            " --case edge_lengths:tokens=1 --scope core --variant " +
                            chunked;
  return run_program(folder, "/bin/sh",
                     {"-c", "T='" + std::string(tool) + "'; RUN='" + quick + "'; " + line});
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define EXPECT_HAS(text, part) \
  EXPECT_TRUE(::gdn::test::has(text, part)) << "\"" << part << "\" in:\n" << text

inline nlohmann::json read_json(const std::filesystem::path& path) {
  return nlohmann::json::parse(read_file(path));
}

// A journal or record as a kill would have left it: its first lines.
inline std::string first_lines(const std::string& text, int lines) {
  std::size_t end = 0;
  for (int line = 0; line < lines; ++line) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}

// With another hash in the first fingerprint of a build behind `from`.
inline std::string of_another_build(std::string text, std::size_t from = 0) {
  const std::string mark = "\"binary_hash\":\"";
  char& digit = text.at(text.find(mark, from) + mark.size());
  digit = digit == '0' ? '1' : '0';
  return text;
}

inline std::set<std::string> names_in(const std::string& folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    names.insert(entry.path().filename());
  return names;
}

inline void expect_refused(const Ended& ended, const std::string& message) {
  EXPECT_EQ(ended.exit_code, 4) << ended.err;
  EXPECT_HAS(ended.err, message);
  EXPECT_FALSE(has(ended.err, "unexpected")) << ended.err;
}

// Command lines that are refused with these messages: nothing else is said, and nothing written.
inline void expect_refusals(const Folder& folder,
                            const std::vector<std::pair<Words, std::string>>& refusals) {
  run_program(folder, tool, {"--version"});  // which leaves the files of its streams
  const std::set<std::string> before = names_in(folder.path());
  for (const auto& [arguments, message] : refusals) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    const Ended ended = run_program(folder, tool, arguments);
    expect_refused(ended, message);
    EXPECT_EQ(ended.out, "");
    EXPECT_EQ(names_in(folder.path()), before);
  }
}

}  // namespace gdn::test
