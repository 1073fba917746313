#include "src/report/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

namespace gdn {
namespace {

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

}  // namespace

Json parse_json(std::string_view text, const std::string& source, const JsonKind& kind,
                std::size_t first_line) {
  std::vector<std::set<std::string>> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    const auto fail = [&](const std::string& what) {
      throw UserError(fmt::format("{}: {}; is this {}?", source, what, kind.name));
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
    throw UserError(fmt::format("{}:{}: {} ({}); {}", source, line_and_column(text, at, first_line),
                                cut ? "cut off" : "not JSON", reason_of(error),
                                cut ? kind.when_cut : fmt::format("is this {}?", kind.name)));
  } catch (const Json::exception& error) {
    throw UserError(fmt::format("{}: not JSON that can be read ({}); is this {}?", source,
                                reason_of(error), kind.name));
  }
}

}  // namespace gdn
