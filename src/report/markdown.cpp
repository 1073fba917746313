// The same tables for a pull request.
#include <algorithm>
#include <iterator>

#include "src/report/render.hpp"
#include "src/report/table.hpp"

namespace gdn {
namespace {

// Foreign text shows as itself: it opens no cell, tag, link or emphasis. The underscores of our ids
// lie within words, where GitHub leaves them alone.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      if (std::string_view("\\|`*[]~").find(c) != std::string_view::npos) result += '\\';
      result += c;
    }
  }
  return result;
}

std::string draw(const std::vector<Column>& columns, const std::vector<Line>& lines) {
  std::string text = "|";
  for (const Column& column : columns) text += " " + column.title + " |";
  text += "\n|";
  for (const Column& column : columns) text += column.right_aligned ? "---:|" : "---|";
  text += "\n";
  for (const Line& line : lines) {
    text += "|";
    for (const std::string& cell : line.cells) text += " " + escaped(cell) + " |";
    text += "\n";
  }
  return text;
}

std::string list(const std::vector<std::string>& notes) {
  std::string text = notes.empty() ? "" : "\n";
  for (const std::string& note : notes) text += "- " + escaped(note) + "\n";
  return text;
}

std::string headline(Exit exit) {
  switch (exit) {
    case Exit::fine:
      return "✅ no regression";
    case Exit::regression:
      return "❌ slower";
    case Exit::incorrect:
      return "❌ incorrect, failed or missing";
    case Exit::inconclusive:
      return "❔ inconclusive";
    case Exit::usage:
      break;
  }
  return "❌ not compared";
}

}  // namespace

std::string markdown(const Report& report) {
  std::string text;
  for (const Table& table : tables(report)) {
    text += (text.empty() ? "### " : "\n### ") + escaped(table.title) + "\n";
    if (!table.subtitle.empty()) text += "\n" + escaped(table.subtitle) + "\n";
    for (const Group& group : table.groups) {
      text += "\n**" + escaped(group.title) + "**\n\n" + draw(table.columns, group.lines);
    }
    text += list(table.notes);
  }
  return text;
}

// What wants attention stands open; every row is there to unfold.
std::string markdown(const Comparison& comparison) {
  const Table whole = table(comparison);
  const std::vector<Line>& lines = whole.groups[0].lines;
  std::vector<Line> notable;
  std::copy_if(lines.begin(), lines.end(), std::back_inserter(notable),
               [](const Line& line) { return line.tone != Tone::plain; });

  std::string text = "### gdnbench: " + headline(comparison.exit) + "\n\n" +
                     escaped(summary(comparison)) + "\n" + list(whole.notes);
  if (!notable.empty()) text += "\n" + draw(whole.columns, notable);
  if (notable.size() < lines.size()) {
    text += "\n<details><summary>all rows</summary>\n\n" + draw(whole.columns, lines) +
            "\n</details>\n";
  }
  return text;
}

}  // namespace gdn
