// `gdnbench report FILE`: a result file again as tables, the ladder's table in a document, and a
// page on the knobs.
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/file.hpp"
#include "src/report/render.hpp"
#include "src/streams.hpp"

namespace gdn {
namespace {

constexpr std::string_view begin_mark = "<!-- ladder -->";
constexpr std::size_t largest_document_bytes = std::size_t{64} << 20;
constexpr std::string_view end_mark = "<!-- /ladder -->";

// Replaces what stands between the marks of a document.
void put_ladder(const std::string& path, const std::string& table) {
  std::string text = read_text(path, largest_document_bytes, "the document that has its marks");
  const std::size_t begin = text.find(begin_mark);
  const std::size_t end = text.find(end_mark);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    throw UserError(fmt::format("{}: there is no place for the ladder: put {} and {} there", path,
                                begin_mark, end_mark));
  const std::size_t from = begin + begin_mark.size();
  text.replace(from, end - from, "\n" + table);
  write_file(path, text);
}

// What was made of the rows of a scope and timing; an error where there are none.
std::string found(std::string text, const ReportCommand& command) {
  if (text.empty())
    throw UserError(fmt::format("{}: there is no timed row of the {} scope in {} timing",
                                command.file, name_of(command.scope), name_of(command.timing)));
  return text;
}

}  // namespace

int report(const ReportCommand& command) {
  std::vector<NamedPath> inputs = {{"FILE", command.file}};
  for (const std::string& path : command.beside) inputs.push_back({"--beside", path});
  require_outputs(inputs, {{"--csv", command.csv},
                           {"--markdown", command.markdown},
                           {"--ladder", command.ladder},
                           {"--knobs", command.knobs}});
  const Report report = read_report(command.file);
  deliver(command.csv, csv(report));
  deliver(command.markdown, markdown(report));
  if (!command.ladder.empty()) {
    put_ladder(command.ladder, found(ladder(report, command.scope, command.timing), command));
  }
  if (!command.knobs.empty()) {
    std::vector<Report> beside;
    for (const std::string& path : command.beside) beside.push_back(read_report(path));
    deliver(command.knobs, found(knobs(report, beside, command.scope, command.timing), command));
  }
  const bool asked = !command.csv.empty() || !command.markdown.empty() || !command.ladder.empty() ||
                     !command.knobs.empty();
  if (!asked) print(stdout, console(report, in_colour(stdout)));
  return 0;
}

}  // namespace gdn
