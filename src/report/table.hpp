// What the console and Markdown show, as cells of text: the one place that decides on columns,
// words and order.
#pragma once

#include <string>
#include <vector>

#include "src/compare.hpp"
#include "src/result.hpp"
#include "src/wisdom.hpp"

namespace gdn {

enum class Tone { plain, good, warning, bad };  // of a line's last cell

struct Column {
  std::string title;
  bool right_aligned = false;
};

struct Line {
  std::vector<std::string> cells;  // one a column
  Tone tone = Tone::plain;
};

struct Group {
  std::string title;  // "core, cold"; "" for none
  std::vector<Line> lines;
};

struct Table {
  std::string title;     // the case
  std::string subtitle;  // its shape and inputs
  std::vector<Column> columns;
  std::vector<Group> groups;
  std::vector<std::string> notes;
};

// One table per case, in the order of the report; grouped by scope, then timing.
std::vector<Table> tables(const Report& report);

Table table(const Comparison& comparison);
Table table(const Wisdom& wisdom, const nlohmann::json& now);

// "1 slower, 3 same; geometric mean of HEAD/BASE 1.008× over 4 rows".
std::string summary(const Comparison& comparison);

}  // namespace gdn
