#include "src/report/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>

#include "src/report/footnotes.hpp"
#include "src/report/render.hpp"
#include "src/report/text.hpp"

namespace gdn {
namespace {

using Rows = std::vector<const Row*>;

const std::string none = "—";

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

std::string range_of(const std::optional<std::pair<double, double>>& interval) {
  return interval ? fmt::format("{} … {}", significant(interval->first, 4),
                                significant(interval->second, 4))
                  : none;
}

std::string times_faster(double base_s, double median_s) {
  return base_s > 0 ? significant(base_s / median_s, 3) + "×" : none;
}

// What is said of a row below its table.
std::vector<std::string> notes_on(const Row& row) {
  std::vector<std::string> notes = row.flags;
  if (!row.bound.empty()) notes.push_back(row.bound);
  if (row.tuned) notes.push_back(note_on(*row.tuned));
  if (row.chosen) notes.push_back(note_on(*row.chosen));
  return notes;
}

Line line(const Row& row, double first_s, double before_s, Footnotes& footnotes) {
  Line line{{printable(row.variant)}, tone_of(row.status)};
  if (row.time_s && row.time_s->median > 0) {
    const double median = row.time_s->median;
    line.cells.push_back(format_time(median));
    line.cells.push_back(half_width(median, row.time_s->ci95));
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
  line.cells.push_back(verdict(row) + footnotes.mark(notes_on(row)));
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

std::string with_revision(const std::string& id, const std::string& revision) {
  return revision.empty() ? id : fmt::format("{} of {}", id, revision);
}

Line paired_line(const Row& row, Footnotes& footnotes) {
  Line line{{printable(row.variant)}, tone_of(row.status)};
  if (!row.against || !row.time_s) {
    line.cells.resize(9, none);
    line.cells.push_back(verdict(row) + footnotes.mark(notes_on(row)));
    return line;
  }
  const Against& against = *row.against;
  line.tone = tone_of(against.verdict);
  line.cells.push_back(printable(with_revision(against.variant, against.revision)));
  line.cells.push_back(format_time(against.median_s));
  line.cells.push_back(format_time(row.time_s->median));
  line.cells.push_back(significant(against.ratio, 4) + "×");
  line.cells.push_back(range_of(against.ci95));
  line.cells.push_back("±" + percent(against.noise_floor));
  line.cells.push_back(std::to_string(against.pairs));
  line.cells.push_back(fmt::format("{:.1e}", against.rank_p));
  line.cells.push_back(std::string(name_of(against.verdict)) + footnotes.mark(notes_on(row)));
  return line;
}

// "200 comparisons: 1 slower, 199 same; the longest took 1.2 s"
std::string note_on_repeats(const Row& row) {
  const std::vector<Against::Once>& repeats = row.against->repeats;
  std::string counts;
  for (const Verdict verdict : verdicts)
    if (const auto count =
            std::count_if(repeats.begin(), repeats.end(),
                          [&](const Against::Once& once) { return once.verdict == verdict; });
        count > 0)
      counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", count, name_of(verdict));
  const auto longest =
      std::max_element(repeats.begin(), repeats.end(),
                       [](const auto& a, const auto& b) { return a.seconds < b.seconds; });
  return fmt::format("{}, {} comparisons: {}; the longest took {}", printable(row.variant),
                     repeats.size(), counts, format_time(longest->seconds));
}

// Of rows that were measured in pairs.
Table paired_table(const Report& report, const std::string& name, const Rows& rows) {
  Table table{.title = printable(name),
              .subtitle = describe(report, name, rows),
              .columns = {{"B"},
                          {"A"},
                          {"A's median", true},
                          {"B's median", true},
                          {"B/A", true},
                          {"95 %", true},
                          {"floor", true},
                          {"pairs", true},
                          {"rank p", true},
                          {"B is"}},
              .groups = {},
              .notes = {}};
  std::map<std::pair<Scope, Timing>, Rows> groups;
  for (const Row* row : rows) groups[{row->scope, row->timing}].push_back(row);
  Footnotes footnotes;
  std::vector<std::string> repeats;
  for (const auto& [key, members] : groups) {
    table.groups.push_back({fmt::format("{}, {}", name_of(key.first), name_of(key.second)), {}});
    for (const Row* row : members) {
      table.groups.back().lines.push_back(paired_line(*row, footnotes));
      if (row->against && !row->against->repeats.empty()) repeats.push_back(note_on_repeats(*row));
    }
  }
  table.notes = footnotes.notes();
  table.notes.insert(table.notes.end(), repeats.begin(), repeats.end());
  return table;
}

Table case_table(const Report& report, const std::string& name, const Rows& rows) {
  if (std::any_of(rows.begin(), rows.end(), [](const Row* row) { return row->against; }))
    return paired_table(report, name, rows);

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

Line line(const ComparedRow& row) {
  const auto time = [](double seconds) { return seconds > 0 ? format_time(seconds) : none; };
  const bool timed = row.base_s > 0 && row.head_s > 0;
  return {{printable(row.case_name), printable(row.variant), std::string(name_of(row.scope)),
           std::string(name_of(row.timing)), time(row.base_s), time(row.head_s),
           timed ? significant(row.ratio.value, 4) + "×" : none, range_of(row.ratio.interval),
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
