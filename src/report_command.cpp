// `gdnbench report FILE`: a result file again as tables, and the ladder's table in a document.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/journal.hpp"
#include "src/report/render.hpp"

namespace gdn {
namespace {

constexpr std::string_view begin_mark = "<!-- ladder -->";
constexpr std::string_view end_mark = "<!-- /ladder -->";

void deliver(const std::string& path, const std::string& text) {
  if (path == "-")
    fmt::print("{}", text);
  else
    write_file(path, text);
}

// Replaces what stands between the marks of a document.
void put_ladder(const std::string& path, const std::string& table) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UserError(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = text.find(begin_mark);
  const std::size_t end = text.find(end_mark);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    throw UserError(fmt::format("{}: there is no place for the ladder: put {} and {} there", path,
                                begin_mark, end_mark));
  const std::size_t from = begin + begin_mark.size();
  text.replace(from, end - from, "\n" + table);
  write_file(path, text);
}

}  // namespace

int report(const ReportCommand& command) {
  const Report report = read_report(command.file);
  if (!command.csv.empty()) deliver(command.csv, csv(report));
  if (!command.markdown.empty()) deliver(command.markdown, markdown(report));
  if (!command.ladder.empty()) {
    const std::string table = ladder(report, command.scope, command.timing);
    if (table.empty())
      throw UserError(fmt::format("{}: there is no row of the {} scope in {} timing", command.file,
                                  name_of(command.scope), name_of(command.timing)));
    put_ladder(command.ladder, table);
  }
  const bool colour = isatty(STDOUT_FILENO) != 0 && std::getenv("NO_COLOR") == nullptr;
  const bool asked = !command.csv.empty() || !command.markdown.empty() || !command.ladder.empty();
  if (!asked) fmt::print("{}", console(report, colour));
  return 0;
}

}  // namespace gdn
