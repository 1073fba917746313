// `gdnbench report FILE`: a result file again as tables, the ladder's table in a document, and a
// page on the knobs.
#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
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

// A document with the table between its marks.
std::string with_ladder(const std::string& path, const std::string& table) {
  if (!std::filesystem::is_regular_file(path))
    throw UserError(fmt::format("--ladder {}: give the file that has the marks {} and {}", path,
                                begin_mark, end_mark));
  std::string text = read_text(path, largest_document_bytes, "the document that has its marks");
  const std::size_t begin = text.find(begin_mark);
  const std::size_t end = text.find(end_mark);
  if (begin == std::string::npos || end == std::string::npos || end < begin)
    throw UserError(fmt::format("{}: there is no place for the ladder: put {} and {} there", path,
                                begin_mark, end_mark));
  const std::size_t from = begin + begin_mark.size();
  return text.replace(from, end - from, "\n" + table);
}

// What was made of the rows of a scope and timing; an error where there are none.
std::string found(std::string text, const ReportCommand& command) {
  if (text.empty())
    throw UserError(
        fmt::format("{}: there is no timed row of the {} scope in {} timing; "
                    "give other results, --scope or --timing",
                    command.file, name_of(command.scope), name_of(command.timing)));
  return text;
}

// The reports beside the one, which may be compared with it.
std::vector<Report> beside(const ReportCommand& command, const Report& report) {
  std::vector<Report> all;
  for (const std::string& path : command.beside) {
    all.push_back(read_report(path));
    if (const auto found = differences(report, all.back()); !found.empty())
      throw UserError(
          fmt::format("--beside {}: it may not be compared with {} (BASE); leave it out: {}", path,
                      command.file, found.front()));
  }
  return all;
}

}  // namespace

int report(const ReportCommand& command) {
  std::vector<NamedPath> inputs = {{"FILE", command.file}};
  for (const std::string& path : command.beside) inputs.push_back({"--beside", path});
  require_outputs(inputs, {{"--csv", command.csv},
                           {"--markdown", command.markdown},
                           {"--ladder", command.ladder},
                           {"--knobs", command.knobs}});
  if (command.knobs.empty() && !command.beside.empty())
    throw UserError("--beside is for the page that --knobs writes; give that, too");
  const Report report = read_report(command.file);
  // All is made before anything is written.
  std::string document, page;
  if (!command.ladder.empty())
    document =
        with_ladder(command.ladder, found(ladder(report, command.scope, command.timing), command));
  if (!command.knobs.empty())
    page = found(knobs(report, beside(command, report), command.scope, command.timing), command);
  deliver(command.csv, csv(report));
  deliver(command.markdown, markdown(report));
  if (!command.ladder.empty()) write_file(command.ladder, document);
  deliver(command.knobs, page);
  const bool asked = !command.csv.empty() || !command.markdown.empty() || !command.ladder.empty() ||
                     !command.knobs.empty();
  if (!asked) print(stdout, console(report, in_colour(stdout)));
  return 0;
}

}  // namespace gdn
