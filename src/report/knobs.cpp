// What the knobs are worth: a page of ratios, as Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/error.hpp"
#include "src/report/render.hpp"
#include "src/report/text.hpp"
#include "src/statistics.hpp"

namespace gdn {
namespace {

using Rows = std::vector<const Row*>;
using RowsOfCase = std::map<std::string, Rows>;

template <class Get>
std::vector<std::string> distinct(const Rows& rows, Get get) {
  std::vector<std::string> all;
  for (const Row* row : rows)
    if (std::ranges::find(all, get(*row)) == all.end()) all.push_back(get(*row));
  return all;
}

std::string case_of(const Row& row) { return row.case_name; }

std::string value_of(const Row& row, const std::string& knob) {
  const auto found = std::ranges::find(row.knobs, knob, &Knob::name);
  return found == row.knobs.end() ? "" : found->value;
}

std::string word(const std::vector<Knob>& knobs) {
  std::string text;
  for (const Knob& knob : knobs) text += (text.empty() ? "" : ":") + knob.name + "=" + knob.value;
  return text;
}

std::vector<Knob> without(std::vector<Knob> knobs, const std::string& name) {
  std::erase_if(knobs, [&](const Knob& knob) { return knob.name == name; });
  return knobs;
}

bool contains_all(const std::vector<Knob>& knobs, const std::vector<Knob>& some) {
  return std::ranges::all_of(
      some, [&](const Knob& knob) { return std::ranges::find(knobs, knob) != knobs.end(); });
}

RowsOfCase by_case(const Rows& rows) {
  RowsOfCase all;
  for (const Row* row : rows) all[row->case_name].push_back(row);
  return all;
}

Rows timed(const Report& report, Scope scope, Timing timing) {
  Rows rows;
  for (const Row& row : report.rows)
    if (row.scope == scope && row.timing == timing && row.time_s && row.time_s->median > 0)
      rows.push_back(&row);
  return rows;
}

std::string cell(const std::vector<double>& ratios) {
  return ratios.empty() ? "" : fmt::format("{:.3f}", geometric_mean(ratios));
}

// A table with a column a case and one for all. `ratios(line, case)` are what a cell is the mean
// of.
template <class Ratios>
std::string table(const std::string& corner, const std::vector<std::string>& lines,
                  const std::vector<std::string>& cases, Ratios ratios) {
  std::string text = fmt::format("| {} |", corner);
  for (const std::string& name : cases) text += fmt::format(" {} |", printable(name));
  text += " all |\n|---|";
  for (std::size_t i = 0; i <= cases.size(); ++i) text += "---:|";
  for (const std::string& line : lines) {
    text += fmt::format("\n| {} |", printable(line));
    std::vector<double> all;
    for (const std::string& name : cases) {
      const std::vector<double> some = ratios(line, name);
      all.insert(all.end(), some.begin(), some.end());
      text += fmt::format(" {} |", cell(some));
    }
    text += fmt::format(" {} |", cell(all));
  }
  return text + "\n\n";
}

// Each value of a knob against the first, over rows that differ in nothing else.
std::string knob_table(const Rows& rows, const std::string& knob,
                       const std::vector<std::string>& cases) {
  const auto values = distinct(rows, [&](const Row& row) { return value_of(row, knob); });
  if (values.size() < 2) return "";
  RowsOfCase of = by_case(rows);
  const auto ratios = [&](const std::string& value, const std::string& name) {
    std::vector<double> all;
    for (const Row* row : of[name])
      for (const Row* first : of[name])
        if (value_of(*row, knob) == value && value_of(*first, knob) == values.front() &&
            without(row->knobs, knob) == without(first->knobs, knob))
          all.push_back(row->time_s->median / first->time_s->median);
    return all;
  };
  return fmt::format("## `{}`: {}\n\n", rung_of(*rows.front()), knob) +
         table(knob, values, cases, ratios);
}

double fastest(const Rows& rows, const std::vector<Knob>& with) {
  double best = 0;
  for (const Row* row : rows)
    if (contains_all(row->knobs, with) && (best == 0 || row->time_s->median < best))
      best = row->time_s->median;
  return best;
}

// A rung against the one before: the fastest of both, and instances whose knobs the other has too.
std::string step_table(const Rows& before, const Rows& rows,
                       const std::vector<std::string>& cases) {
  constexpr const char* best = "fastest instances";
  std::vector<std::string> lines = {best};
  std::map<std::string, std::vector<Knob>> knobs_of = {{best, {}}};
  for (const Row* row : rows) {
    const std::string line = word(row->knobs);
    const bool shared = !row->knobs.empty() && std::ranges::any_of(before, [&](const Row* earlier) {
      return contains_all(earlier->knobs, row->knobs);
    });
    if (shared && knobs_of.emplace(line, row->knobs).second) lines.push_back(line);
  }
  RowsOfCase of = by_case(rows), of_before = by_case(before);
  const auto ratios = [&](const std::string& line, const std::string& name) {
    const double now = fastest(of[name], knobs_of.at(line));
    const double then = fastest(of_before[name], knobs_of.at(line));
    return now > 0 && then > 0 ? std::vector{now / then} : std::vector<double>{};
  };
  return fmt::format("## `{}` over `{}`\n\n", rung_of(*rows.front()), rung_of(*before.front())) +
         table("", lines, cases, ratios);
}

std::string setting_of(const Report& report) {
  const auto batch = report.options.find("batch");
  return fmt::format(
      "schedule {}, batch {}", text_at(report.options, "schedule", "auto"),
      batch != report.options.end() && batch->is_number_integer() ? batch->get<std::int64_t>() : 1);
}

// Files that differ in how the host waits, against the first.
std::string settings_table(const Report& report, const std::vector<Report>& beside, Scope scope,
                           const std::vector<std::string>& cases) {
  if (beside.empty()) return "";
  std::map<std::string, RowsOfCase> rows_of;
  std::vector<std::string> settings;
  const auto add = [&](const Report& of) {
    settings.push_back(setting_of(of));
    if (rows_of.contains(settings.back()))
      throw UserError(fmt::format("--beside: two of the files have {}; give each setting once",
                                  settings.back()));
    rows_of[settings.back()] = by_case(timed(of, scope, Timing::lab));
  };
  add(report);
  for (const Report& other : beside) add(other);
  RowsOfCase& first = rows_of[settings.front()];
  bool any = false;
  const auto ratios = [&](const std::string& setting, const std::string& name) {
    std::vector<double> all;
    for (const Row* row : rows_of[setting][name])
      for (const Row* base : first[name])
        if (row->variant == base->variant)
          all.push_back(row->time_s->median / base->time_s->median);
    any |= !all.empty() && setting != settings.front();
    return all;
  };
  const std::string text =
      "## How the host waits: lab timing\n\nThe first line is FILE itself; a batch is that many "
      "launches with one "
      "synchronisation.\n\n" +
      table("", settings, cases, ratios);
  if (!any)
    throw UserError(
        fmt::format("--beside: the files have no row of the {} scope in lab timing in common with "
                    "FILE; run the same cases with --timing lab",
                    name_of(scope)));
  return text;
}

}  // namespace

std::string knobs(const Report& report, const std::vector<Report>& beside, Scope scope,
                  Timing timing) {
  const Rows rows = timed(report, scope, timing);
  if (rows.empty()) return "";
  const auto cases = distinct(rows, case_of);
  const nlohmann::json device = report.fingerprint.value("device", nlohmann::json());
  std::string text = fmt::format(
      "# What the knobs are worth\n\n{}, {} scope, {} timing, gdnbench {}.\n"
      "A figure is a time over the time that it is compared with: below 1 is faster. Several "
      "instances that differ in\nnothing else give their geometric mean, and so does \"all\" for "
      "the "
      "cases. (In `gdnbench report`, gain and step are the\ninverse.) Written by `gdnbench report "
      "--knobs`.\n\n",
      text_at(device, "name", "unknown device"), name_of(scope), name_of(timing),
      text_at(report.fingerprint, "revision", "of unknown revision"));
  Rows before;
  for (const std::string& rung : distinct(rows, rung_of)) {
    Rows own;
    std::ranges::copy_if(rows, std::back_inserter(own),
                         [&](const Row* row) { return rung_of(*row) == rung; });
    if (!before.empty()) text += step_table(before, own, cases);
    std::vector<std::string> names;
    for (const Row* row : own)
      for (const Knob& knob : row->knobs)
        if (std::ranges::find(names, knob.name) == names.end()) names.push_back(knob.name);
    for (const std::string& name : names) text += knob_table(own, name, cases);
    before = std::move(own);
  }
  return text + settings_table(report, beside, scope, cases);
}

}  // namespace gdn
