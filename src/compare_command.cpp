// `gdnbench compare BASE HEAD`.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>

#include "src/commands.hpp"
#include "src/journal.hpp"
#include "src/report/render.hpp"

namespace gdn {
namespace {

void deliver(const std::string& path, const std::string& text) {
  if (path == "-")
    fmt::print("{}", text);
  else
    write_file(path, text);
}

}  // namespace

int compare(const CompareCommand& command) {
  const Comparison comparison =
      compare(read_report(command.base), read_report(command.head), command.options);
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const bool taken = command.markdown == "-" || command.junit == "-";
  fmt::print(taken ? stderr : stdout, "{}", console(comparison, colour && !taken));
  if (!command.markdown.empty()) deliver(command.markdown, markdown(comparison));
  if (!command.junit.empty()) deliver(command.junit, junit(comparison));
  return static_cast<int>(comparison.exit);
}

}  // namespace gdn
