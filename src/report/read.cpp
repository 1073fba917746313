// Result files: reports and journals, told apart by what is in them. They may come from anywhere.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "src/error.hpp"
#include "src/file.hpp"
#include "src/report/json_field.hpp"
#include "src/result.hpp"

namespace gdn {
namespace {

constexpr std::size_t largest_file_bytes = std::size_t{256} << 20;
constexpr int deepest_nesting = 32;  // ours is 5; nlohmann copies and writes by recursion

// "…: unexpected end of input" of nlohmann's "[json.exception…] parse error at line 3, column 7:
// …".
std::string reason_of(const Json::exception& error) {
  const std::string_view text = error.what();
  std::size_t from = text.find(": ");
  if (from == std::string_view::npos) from = text.find("] ");
  return std::string(from == std::string_view::npos ? text : text.substr(from + 2));
}

// "3:7" (both from 1) of a place in a text.
std::string line_and_column(std::string_view text, std::size_t at, std::size_t first_line) {
  const std::string_view before = text.substr(0, std::min(at, text.size()));
  std::size_t line = first_line;
  std::size_t column = 1;
  for (const char c : before) {
    column = c == '\n' ? 1 : column + 1;
    line += c == '\n';
  }
  return fmt::format("{}:{}", line, column);
}

// Parses what may come from anywhere: bounded depth, no key twice.
Json parse(std::string_view text, const std::string& source, std::size_t first_line = 1) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const auto fail = [&](const std::string& what) {
      throw UserError(source + ": " + what + "; is this a result file?");
    };
    if (depth > deepest_nesting) fail("nested too deeply");
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      fail("the key " + dump(parsed) + " stands twice in one object");
    }
    return true;
  };
  try {
    return Json::parse(text.begin(), text.end(), watch);
  } catch (const Json::parse_error& error) {
    const std::size_t at = error.byte > 0 ? error.byte - 1 : 0;
    const bool cut = at >= text.find_last_not_of(" \t\r\n") + 1;
    throw UserError(
        fmt::format("{}:{}: {} ({}){}", source, line_and_column(text, at, first_line),
                    cut ? "cut off" : "not JSON", reason_of(error),
                    cut ? "; take the run's journal (.jsonl) in its place, or measure again" : ""));
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("{}: not JSON that can be read ({})", source, reason_of(error)));
  }
}

std::string read_file(const std::string& path) {
  return read_text(path, largest_file_bytes, "a result file that `run --json` wrote");
}

// Names the file in what report_from_json and its like refuse.
template <class Read>
auto naming(const std::string& source, const Read& read) {
  try {
    return read();
  } catch (const UserError& error) {
    throw UserError(source + ": " + error.what());
  }
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
