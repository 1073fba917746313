#include "src/profiler_commands.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "src/trace.hpp"

namespace gdn {
namespace {

bool is_plain(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; }

// ncu reads @ , [ ] / * + in a range's name as its own unless a backslash stands before them.
std::string ncu_escaped(std::string_view name) {
  std::string escaped;
  for (const char c : name) {
    if (std::string_view("@,[]/*+\\").find(c) != std::string_view::npos) escaped += '\\';
    escaped += c;
  }
  return escaped;
}

std::string file_of(std::string_view case_name, std::string_view variant) {
  std::string name = fmt::format("{}.{}", case_name, variant);
  std::ranges::replace_if(
      name, [](char c) { return !is_plain(c) && c != '.' && c != '_' && c != '-'; }, '-');
  return name;
}

}  // namespace

std::string shell_quoted(std::string_view word) {
  const auto means_itself = [](char c) {
    return is_plain(c) || std::string_view("_-./:=+,@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, means_itself)) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string shell_line(std::span<const std::string> words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_quoted(word);
  return line;
}

std::string ncu_filter(std::string_view case_name, std::string_view variant) {
  return fmt::format("{}@{}/{}", trace_domain, ncu_escaped(case_name), ncu_escaped(variant));
}

std::string nsys_line(std::string_view case_name, std::string_view variant,
                      std::span<const std::string> command) {
  return fmt::format(
      "nsys profile -c cudaProfilerApi --capture-range-end=stop --cuda-graph-trace=node "
      "-t cuda,nvtx -f true -o {} {}",
      file_of(case_name, variant), shell_line(command));
}

std::string ncu_line(std::string_view case_name, std::string_view variant,
                     std::span<const std::string> command) {
  return fmt::format(
      "ncu --profile-from-start off --nvtx --nvtx-include {} --clock-control none --set full "
      "-f -o {} {}",
      shell_quoted(ncu_filter(case_name, variant)), file_of(case_name, variant),
      shell_line(command));
}

}  // namespace gdn
