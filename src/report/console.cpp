// Tables for a terminal: widths from what is in them, colours only when asked for.
#include <fmt/format.h>

#include <algorithm>

#include "src/report/render.hpp"
#include "src/report/table.hpp"
#include "src/report/text.hpp"
#include "src/report/tuned.hpp"

namespace gdn {
namespace {

class Paint {
 public:
  explicit Paint(bool on) : on_(on) {}

  std::string bold(const std::string& text) const { return with("1", text); }
  std::string dim(const std::string& text) const { return with("2", text); }
  std::string in(Tone tone, const std::string& text) const {
    switch (tone) {
      case Tone::good:
        return with("32", text);
      case Tone::warning:
        return with("33", text);
      case Tone::bad:
        return with("31", text);
      case Tone::plain:
        break;
    }
    return text;
  }

 private:
  std::string with(const char* code, const std::string& text) const {
    return on_ && !text.empty() ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
  }

  bool on_;
};

std::vector<std::size_t> widths_of(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t widest = width(table.columns[c].title);
    for (const Group& group : table.groups) {
      for (const Line& line : group.lines) widest = std::max(widest, width(line.cells[c]));
    }
    widths.push_back(widest);
  }
  return widths;
}

std::string padded(const std::string& cell, std::size_t to, bool right) {
  const std::string space(to - std::min(to, width(cell)), ' ');
  return right ? space + cell : cell + space;
}

// All cells but the last, padded; the last is written as it is, so that no line ends in spaces.
std::string columns_but_last(const Table& table, const std::vector<std::size_t>& widths,
                             const std::vector<std::string>& cells) {
  std::string text;
  for (std::size_t c = 0; c + 1 < cells.size(); ++c) {
    text += padded(cells[c], widths[c], table.columns[c].right_aligned) + "  ";
  }
  return text;
}

std::string draw(const Table& table, const Paint& paint) {
  const std::vector<std::size_t> widths = widths_of(table);
  std::vector<std::string> titles;
  for (const Column& column : table.columns) titles.push_back(column.title);

  std::string text;
  if (!table.title.empty()) {
    text += paint.bold(table.title);
    text += table.subtitle.empty() ? "\n" : "  " + table.subtitle + "\n";
  }
  for (const Group& group : table.groups) {
    if (!group.title.empty()) text += "  " + paint.bold(group.title) + "\n";
    text += "  " + paint.dim(columns_but_last(table, widths, titles) + titles.back()) + "\n";
    for (const Line& line : group.lines) {
      text += "  " + columns_but_last(table, widths, line.cells) +
              paint.in(line.tone, line.cells.back()) + "\n";
    }
  }
  for (const std::string& note : table.notes) text += "  " + note + "\n";
  return text;
}

}  // namespace

std::string console(const Report& report, bool colour) {
  std::string text;
  for (const Table& table : tables(report)) {
    text += (text.empty() ? "" : "\n") + draw(table, Paint(colour));
  }
  return text;
}

std::string console(const Comparison& comparison, bool colour) {
  const Paint paint(colour);
  const bool fine = comparison.exit == Exit::fine;
  return draw(table(comparison), paint) + "\n" +
         paint.in(fine ? Tone::good : Tone::bad, summary(comparison)) + "\n";
}

std::string console(const TunedProblem& tuned, bool colour) {
  return draw(table(tuned), Paint(colour));
}

std::string console(const Wisdom& wisdom, const nlohmann::json& now, bool colour) {
  return draw(table(wisdom, now), Paint(colour));
}

}  // namespace gdn
