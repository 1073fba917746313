// The finished program, and how tests call it.
#pragma once

#include <gtest/gtest.h>

#include <string>
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

// A quick run: 6 samples a row, however noisy, and however slow the build is that takes them.
inline std::vector<std::string> run_arguments(const std::vector<std::string>& more,
                                              const std::string& backend = "cpu",
                                              const std::string& timeout = "60") {
  std::vector<std::string> all = {"run",         "--backend", backend,         "--timeout", timeout,
                                  "--max-noise", "1000",      "--min-samples", "6"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
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

}  // namespace gdn::test
