#include "src/report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>

#include "src/report/render.hpp"
#include "src/report/text.hpp"

namespace gdn {
namespace {

using Rows = std::vector<const Row*>;

const std::string none = "—";

std::string superscript(std::size_t number) {
  constexpr std::array digits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text;
  for (const char c : std::to_string(number)) text += digits[static_cast<std::size_t>(c - '0')];
  return text;
}

// The flags and bounds of a table's rows, numbered as they come.
class Footnotes {
 public:
  std::string mark(const Row& row) {
    std::string marks;
    for (const std::string& flag : row.flags) {
      const std::string_view meaning = meaning_of_flag(flag);
      marks += mark(fmt::format("{}{}{}", flag, meaning.empty() ? "" : ": ", meaning));
    }
    if (!row.bound.empty()) marks += mark(row.bound);
    return marks;
  }

  std::vector<std::string> notes() const {
    std::vector<std::string> notes;
    for (std::size_t i = 0; i < notes_.size(); ++i)
      notes.push_back(superscript(i + 1) + " " + printable(notes_[i]));
    return notes;
  }

 private:
  std::string mark(const std::string& note) {
    auto found = std::find(notes_.begin(), notes_.end(), note);
    if (found == notes_.end()) found = notes_.insert(notes_.end(), note);
    return " " + superscript(static_cast<std::size_t>(found - notes_.begin()) + 1);
  }

  std::vector<std::string> notes_;
};

std::string half_width(const TimeSummary& time) {
  if (!time.ci95 || time.median <= 0) return none;
  const double reach = std::max(time.median - time.ci95->first, time.ci95->second - time.median);
  return "±" + percent(reach / time.median);
}

std::string errors(const Row& row) {
  if (!row.error) return none;
  const auto rms = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.1e}", value) : std::string("NaN");
  };
  return rms(row.error->output_rms) + " / " + rms(row.error->state_rms);
}

std::string verdict(const Row& row) {
  std::string text(name_of(row.status));
  if (row.status == Status::passed && row.error && !row.error->lab_passed) {
    text += ", outside the lab's bound";
  }
  if (!row.reason.empty()) text += ": " + printable(row.reason);
  return text;
}

Tone tone_of(Status status) {
  switch (status) {
    case Status::passed:
      return Tone::good;
    case Status::skipped:
      return Tone::warning;
    default:
      return Tone::bad;
  }
}

// Of each row, the fastest of the rung before it among the rows: the nearest earlier variant that
// was timed. 0 where there is none.
std::vector<double> best_of_rung_before(const Rows& rows) {
  std::vector<double> before;
  std::string rung;
  double best_s = 0;  // of the rung of this row, so far
  double last_s = 0;  // of the rung before it
  for (const Row* row : rows) {
    if (rung_of(*row) != rung) {
      rung = rung_of(*row);
      if (best_s > 0) last_s = best_s;
      best_s = 0;
    }
    before.push_back(last_s);
    const double median = row->time_s ? row->time_s->median : 0;
    if (median > 0 && (best_s == 0 || median < best_s)) best_s = median;
  }
  return before;
}

std::string times_faster(double base_s, double median_s) {
  return base_s > 0 ? significant(base_s / median_s, 3) + "×" : none;
}

Line line(const Row& row, double first_s, double before_s, Footnotes& footnotes) {
  Line line{{printable(row.variant)}, tone_of(row.status)};
  if (row.time_s && row.time_s->median > 0) {
    const double median = row.time_s->median;
    line.cells.push_back(format_time(median));
    line.cells.push_back(half_width(*row.time_s));
    line.cells.push_back(times_faster(first_s, median));
    line.cells.push_back(times_faster(before_s, median));
    line.cells.push_back(significant(tflops(row), 3));
    line.cells.push_back(significant(gigabytes_per_s(row), 3));
    const auto chunks = static_cast<double>(row.chain_chunks);
    line.cells.push_back(chunks > 0 ? significant(1e6 * median / chunks, 3) : none);
  } else {
    line.cells.resize(8, none);
  }
  line.cells.push_back(errors(row));
  line.cells.push_back(verdict(row) + footnotes.mark(row));
  return line;
}

// "129 chunks in a chain, 1.35 GFLOP, 0.0203 GB; inputs 0123456789abcdef", or the shape that the
// run wrote into its options.
std::string describe(const Report& report, const std::string& name, const Rows& rows) {
  std::string shape;
  const auto shapes = report.options.find("shapes");
  if (shapes != report.options.end() && shapes->is_object()) {
    const auto found = shapes->find(name);
    if (found != shapes->end() && found->is_string()) shape = found->get<std::string>();
  }
  const auto described =
      std::find_if(rows.begin(), rows.end(), [](auto* r) { return r->flop > 0; });
  if (shape.empty() && described != rows.end()) {
    const Row& row = **described;
    shape = fmt::format("{} chunk{} in a chain, {} GFLOP", row.chain_chunks,
                        row.chain_chunks == 1 ? "" : "s", significant(row.flop / 1e9, 3));
  }
  std::vector<std::string> hashes;
  for (const Row* row : rows) {
    const bool known = std::find(hashes.begin(), hashes.end(), row->input_hash) != hashes.end();
    if (!row->input_hash.empty() && !known) hashes.push_back(row->input_hash);
  }
  std::string inputs;
  for (const std::string& hash : hashes) inputs += (inputs.empty() ? "inputs " : ", ") + hash;
  return printable(shape + (shape.empty() || inputs.empty() ? "" : "; ") + inputs);
}

// "over 8 rounds: …"; of a run that is not finished, "over 2 to 3 rounds: …".
std::string note_on_rounds(const Rows& rows) {
  std::size_t least = SIZE_MAX;
  std::size_t most = 0;
  for (const Row* row : rows) {
    if (!row->time_s) continue;
    least = std::min(least, row->round_medians_s.size());
    most = std::max(most, row->round_medians_s.size());
  }
  if (most <= 1) return "";
  const std::string rounds =
      least == most ? std::to_string(most) : fmt::format("{} to {}", least, most);
  return fmt::format("median and ± are over {} rounds, each in a fresh process", rounds);
}

Table case_table(const Report& report, const std::string& name, const Rows& rows) {
  Table table{.title = printable(name),
              .subtitle = describe(report, name, rows),
              .columns = {{"variant"},
                          {"median", true},
                          {"±", true},
                          {"gain", true},
                          {"step", true},
                          {"TFLOP/s", true},
                          {"GB/s", true},
                          {"µs/chunk", true},
                          {"error out / state", true},
                          {"verdict"}},
              .groups = {},
              .notes = {}};
  std::map<std::pair<Scope, Timing>, Rows> groups;
  for (const Row* row : rows) groups[{row->scope, row->timing}].push_back(row);
  Footnotes footnotes;
  for (const auto& [key, members] : groups) {
    Group group{fmt::format("{}, {}", name_of(key.first), name_of(key.second)), {}};
    const auto first = std::find_if(members.begin(), members.end(), [](const Row* row) {
      return row->time_s && row->time_s->median > 0;
    });
    const double first_s = first == members.end() ? 0 : (*first)->time_s->median;
    const std::vector<double> before = best_of_rung_before(members);
    for (std::size_t i = 0; i < members.size(); ++i)
      group.lines.push_back(line(*members[i], first_s, before[i], footnotes));
    table.groups.push_back(std::move(group));
  }
  table.notes = footnotes.notes();
  if (std::string note = note_on_rounds(rows); !note.empty()) table.notes.push_back(note);
  return table;
}

Tone tone_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::same:
      return Tone::plain;
    case Verdict::faster:
    case Verdict::added:
      return Tone::good;
    case Verdict::inconclusive:
    case Verdict::skipped:
      return Tone::warning;
    default:
      return Tone::bad;
  }
}

Line line(const ComparedRow& row) {
  const auto time = [](double seconds) { return seconds > 0 ? format_time(seconds) : none; };
  const bool timed = row.base_s > 0 && row.head_s > 0;
  const auto& interval = row.ratio.interval;
  return {{printable(row.case_name), printable(row.variant), std::string(name_of(row.scope)),
           std::string(name_of(row.timing)), time(row.base_s), time(row.head_s),
           timed ? significant(row.ratio.value, 4) + "×" : none,
           interval ? fmt::format("{} … {}", significant(interval->first, 4),
                                  significant(interval->second, 4))
                    : none,
           timed ? fmt::format("{:g} %", row.threshold_percent) : none,
           std::string(name_of(row.verdict)) +
               (row.reason.empty() ? "" : ": " + printable(row.reason))},
          tone_of(row.verdict)};
}

}  // namespace

std::vector<Table> tables(const Report& report) {
  std::vector<std::pair<std::string, Rows>> cases;
  for (const Row& row : report.rows) {
    auto found = std::find_if(cases.begin(), cases.end(),
                              [&](const auto& entry) { return entry.first == row.case_name; });
    if (found == cases.end()) found = cases.insert(cases.end(), {row.case_name, {}});
    found->second.push_back(&row);
  }
  std::vector<Table> tables;
  for (const auto& [name, rows] : cases) tables.push_back(case_table(report, name, rows));
  return tables;
}

Table table(const Comparison& comparison) {
  Table table{.title = "",
              .subtitle = "",
              .columns = {{"case"},
                          {"variant"},
                          {"scope"},
                          {"timing"},
                          {"BASE", true},
                          {"HEAD", true},
                          {"HEAD/BASE", true},
                          {"interval", true},
                          {"threshold", true},
                          {"verdict"}},
              .groups = {{}},
              .notes = {}};
  for (const ComparedRow& row : comparison.rows) table.groups[0].lines.push_back(line(row));
  std::vector<Interval> intervals;
  for (const ComparedRow& row : comparison.rows) {
    if (row.ratio.interval) intervals.push_back(*row.ratio.interval);
  }
  const auto agreeing = std::count_if(intervals.begin(), intervals.end(), [](const Interval& i) {
    return i.first <= 1 && 1 <= i.second;
  });
  if (!intervals.empty()) {
    table.notes.push_back(
        fmt::format("the intervals hold for all rows together at 95 % (each by itself at {:.4g} "
                    "%); {} of {} contain 1: no difference",
                    100 * comparison.confidence, agreeing, intervals.size()));
  }
  for (const std::string& warning : comparison.warnings) {
    table.notes.push_back("warning: " + printable(warning));
  }
  return table;
}

std::string summary(const Comparison& comparison) {
  std::string text;
  for (const Verdict verdict : verdicts) {
    const auto count = std::count_if(comparison.rows.begin(), comparison.rows.end(),
                                     [&](const ComparedRow& r) { return r.verdict == verdict; });
    if (count == 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name_of(verdict));
  }
  if (comparison.timed_rows > 0) {
    text += fmt::format("; geometric mean of HEAD/BASE {}× over {} timed row{}",
                        significant(comparison.geomean, 4), comparison.timed_rows,
                        comparison.timed_rows == 1 ? "" : "s");
  }
  return text;
}

}  // namespace gdn
