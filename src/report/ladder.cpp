// The ladder at a glance: a row a variant, a column a case, medians; as Markdown.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "src/report/render.hpp"
#include "src/report/text.hpp"

namespace gdn {
namespace {

template <class Get>
std::vector<std::string> distinct(const std::vector<const Row*>& rows, Get get) {
  std::vector<std::string> all;
  for (const Row* row : rows)
    if (std::ranges::find(all, get(*row)) == all.end()) all.push_back(get(*row));
  return all;
}

std::string cell(const std::vector<const Row*>& rows, const std::string& case_name,
                 const std::string& variant) {
  for (const Row* row : rows)
    if (row->case_name == case_name && row->variant == variant)
      return row->time_s ? fmt::format("{:.1f}", row->time_s->median * 1e6)
                         : std::string(name_of(row->status));
  return "";
}

std::string device_name(const Report& report) {
  const auto device = report.fingerprint.find("device");
  return device == report.fingerprint.end() ? "unknown device"
                                            : text_at(*device, "name", "unknown device");
}

}  // namespace

std::string ladder(const Report& report, Scope scope, Timing timing) {
  std::vector<const Row*> rows;
  for (const Row& row : report.rows)
    if (row.scope == scope && row.timing == timing) rows.push_back(&row);
  if (rows.empty()) return "";
  const auto cases = distinct(rows, [](const Row& row) { return row.case_name; });
  const auto variants = distinct(rows, [](const Row& row) { return row.variant; });

  std::string text = fmt::format("{}, {} scope, {} timing, median µs, gdnbench {}:\n\n| variant |",
                                 device_name(report), name_of(scope), name_of(timing),
                                 text_at(report.fingerprint, "revision", "of unknown revision"));
  for (const std::string& name : cases) text += fmt::format(" {} |", printable(name));
  text += "\n|---|";
  for (std::size_t i = 0; i < cases.size(); ++i) text += "---:|";
  for (const std::string& variant : variants) {
    const bool timed = std::ranges::any_of(rows, [&](const Row* row) {
      return row->variant == variant && row->status != Status::skipped;
    });
    if (!timed) continue;  // which no device of this kind can run
    text += fmt::format("\n| `{}` |", printable(variant));
    for (const std::string& name : cases) text += fmt::format(" {} |", cell(rows, name, variant));
  }
  return text + "\n";
}

}  // namespace gdn
