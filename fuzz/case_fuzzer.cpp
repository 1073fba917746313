// Any bytes are a case file that is refused with its place, or cases that, printed and read again,
// are equal.

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "src/case.hpp"
#include "src/error.hpp"

namespace {

constexpr std::size_t memory_bytes = std::size_t{1} << 40;
constexpr std::size_t most_round_trips = 8;  // of one file: an axis may have thousands of cases

[[noreturn]] void fail(const char* what, const std::string& text) {
  std::fprintf(stderr, "%s:\n%s\n", what, text.c_str());
  std::abort();
}

// "input:LINE:COLUMN: ", both from 1.
bool begins_with_place(std::string_view message) {
  constexpr std::string_view source = "input:";
  if (message.substr(0, source.size()) != source) return false;
  message.remove_prefix(source.size());
  for (const std::string_view end : {":", ": "}) {
    std::size_t digits = 0;
    while (digits < message.size() && std::isdigit(static_cast<unsigned char>(message[digits]))) {
      ++digits;
    }
    if (digits == 0 || message[0] == '0' || message.substr(digits, end.size()) != end) return false;
    message.remove_prefix(digits + end.size());
  }
  return !message.empty();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view yaml(reinterpret_cast<const char*>(data), size);
  std::vector<gdn::Case> cases;
  try {
    cases = gdn::parse_cases(yaml, "input", {}, memory_bytes);
  } catch (const gdn::UserError& error) {
    if (!begins_with_place(error.what())) fail("a refusal without its place", error.what());
    return 0;
  }
  for (std::size_t i = 0; i < cases.size() && i < most_round_trips; ++i) {
    const std::string printed = gdn::to_yaml(cases[i]);
    try {
      const std::vector<gdn::Case> again = gdn::parse_cases(printed, "printed", {}, memory_bytes);
      if (again.size() != 1 || again[0] != cases[i]) fail("read again, it differs", printed);
    } catch (const gdn::UserError& error) {
      fail(error.what(), printed);
    }
  }
  return 0;
}
