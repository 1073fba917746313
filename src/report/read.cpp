// Result files: reports and journals, told apart by what is in them. They may come from anywhere.
#include <fmt/format.h>

#include <map>

#include "src/error.hpp"
#include "src/file.hpp"
#include "src/report/json_field.hpp"
#include "src/report/json_text.hpp"
#include "src/result.hpp"

namespace gdn {
namespace {

constexpr std::size_t largest_file_bytes = std::size_t{256} << 20;
constexpr JsonKind result_file = {
    .name = "a result file",
    .when_cut = "take the run's journal (.jsonl) in its place, or measure again"};

Json parse(std::string_view text, const std::string& source, std::size_t first_line = 1) {
  return parse_json(text, source, result_file, first_line);
}

std::string read_file(const std::string& path) {
  return read_text(path, largest_file_bytes, "a result file that `run --json` wrote");
}

// A journal's first line is an object by itself and has no results.
bool is_journal(std::string_view text, const std::string& path) {
  const std::size_t end = text.find('\n');
  if (end == std::string_view::npos) return false;
  const std::string_view line = text.substr(0, end);
  if (!Json::accept(line.begin(), line.end())) return false;
  const Json header = parse(line, path);
  return header.is_object() && !header.contains("results");
}

Journal parse_journal(std::string_view text, const std::string& path) {
  Journal journal;
  std::map<std::string, std::size_t> places;  // of the rows, by their keys
  const auto put = [&](Row row) {
    std::vector<Row>& rows = journal.report.rows;
    const auto [place, is_new] = places.emplace(row_key(row), rows.size());
    if (is_new) {
      rows.push_back(std::move(row));
    } else {
      rows[place->second] = std::move(row);  // with one more round
    }
  };
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // torn by a kill
    const std::string_view line = text.substr(begin, end - begin);
    ++number;
    begin = end + 1;
    journal.whole_bytes = begin;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;

    const Json value = parse(line, path, number);
    const std::string source = fmt::format("{}:{}", path, number);
    naming(source, [&] {
      if (number == 1) {
        Json head = value;
        head["results"] = Json::array();
        journal.report = report_from_json(head);
      } else if (value.is_object() && value.contains("finished")) {
        journal.finished = Field(value)["finished"].truth();
      } else {
        put(row_from_json(value));
        journal.finished = false;
      }
    });
  }
  return journal;
}

}  // namespace

Journal read_journal(const std::string& path) {
  const std::string text = read_file(path);
  if (!is_journal(text, path)) {
    throw UserError(
        path +
        ": not the journal of a run; give the .jsonl that `run --json` wrote, or start anew");
  }
  return parse_journal(text, path);
}

Report parse_report(std::string_view text, const std::string& source) {
  if (text.empty()) throw UserError(source + ": empty; give a result file that `run --json` wrote");
  if (is_journal(text, source)) {
    // For reading alone, a last line that lacks but its newline is whole.
    const std::string_view tail = text.substr(text.rfind('\n') + 1);
    const bool whole = Json::accept(tail.begin(), tail.end());
    return parse_journal(whole ? std::string(text) + '\n' : std::string(text), source).report;
  }
  const Json whole = parse(text, source);
  return naming(source, [&] { return report_from_json(whole); });
}

Report read_report(const std::string& path) { return parse_report(read_file(path), path); }

}  // namespace gdn
