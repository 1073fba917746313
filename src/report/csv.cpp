// RFC 4180: CRLF, quotes around what needs them. A text that a spreadsheet would run as a formula
// is led by an apostrophe (OWASP, "CSV Injection").
#include <fmt/format.h>

#include <cmath>

#include "src/report/render.hpp"
#include "src/report/text.hpp"

namespace gdn {
namespace {

class Record {
 public:
  Record& text(std::string_view value) {
    std::string field = printable(value);
    if (!field.empty() && std::string_view("=+-@").find(field[0]) != std::string_view::npos) {
      field.insert(field.begin(), '\'');
    }
    if (field.find_first_of(",\"") == std::string::npos) return add(field);
    std::string quoted = "\"";
    for (const char c : field) quoted.append(c == '"' ? 2 : 1, c);
    return add(quoted + '"');
  }

  // Every digit: the shortest text that reads back as the same number. Empty where there is none.
  Record& number(double value) { return add(std::isfinite(value) ? fmt::format("{}", value) : ""); }
  Record& count(std::uint64_t value) { return add(std::to_string(value)); }
  Record& none(int fields = 1) {
    for (int i = 0; i < fields; ++i) add("");
    return *this;
  }

  std::string line() const { return text_ + "\r\n"; }

 private:
  Record& add(std::string_view field) {
    if (fields_++ > 0) text_ += ',';
    text_ += field;
    return *this;
  }

  std::string text_;
  int fields_ = 0;
};

constexpr std::string_view header =
    "case,variant,knobs,backend,scope,timing,timer,flush,status,reason,"
    "median_s,q1_s,q3_s,min_s,ci95_low_s,ci95_high_s,samples,rounds,host_s,tflop_per_s,gb_per_s,"
    "output_rms,state_rms,lab_passed,worst,chain_chunks,workspace_bytes,flop,bytes,input_hash,"
    "flags,tuned,auto\r\n";

constexpr std::string_view wisdom_header =
    "tuned_as,sequences,query_heads,value_heads,initial_state,gates,beta_max,scope,timing,variant,"
    "median_s,ci95_low_s,ci95_high_s,tied,strategy,seed,candidates,evaluated,evaluated_fully,"
    "limited,seconds,tuned_at,kernels,driver\r\n";

std::string joined_knobs(const Row& row) {
  std::string text;
  for (const Knob& knob : row.knobs) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", knob.name, knob.value);
  }
  return text;
}

std::string joined_flags(const Row& row) {
  std::string text;
  for (const std::string& flag : row.flags) text += (text.empty() ? "" : ";") + flag;
  return text;
}

std::string record(const Row& row) {
  Record record;
  record.text(row.case_name).text(row.variant).text(joined_knobs(row)).text(row.backend);
  record.text(name_of(row.scope)).text(name_of(row.timing)).text(row.timer).text(row.flush);
  record.text(name_of(row.status)).text(row.reason);
  if (row.time_s) {
    const TimeSummary& time = *row.time_s;
    record.number(time.median).number(time.q1).number(time.q3).number(time.min);
    if (time.ci95) {
      record.number(time.ci95->first).number(time.ci95->second);
    } else {
      record.none(2);
    }
    record.count(static_cast<std::uint64_t>(row.samples)).count(row.round_medians_s.size());
    record.number(row.host_s);
    record.number(tflops(row)).number(gigabytes_per_s(row));
  } else {
    record.none(11);
  }
  if (row.error) {
    record.number(row.error->output_rms).number(row.error->state_rms);
    record.text(row.error->lab_passed ? "true" : "false").text(row.error->worst);
  } else {
    record.none(4);
  }
  record.count(static_cast<std::uint64_t>(row.chain_chunks)).count(row.workspace_bytes);
  record.number(row.flop).number(row.bytes).text(row.input_hash).text(joined_flags(row));
  record.text(row.tuned ? note_on(*row.tuned) : "");
  record.text(row.chosen ? note_on(*row.chosen) : "");
  return record.line();
}

std::string record(const WisdomEntry& entry) {
  const auto truth = [](bool value) { return value ? "true" : "false"; };
  const Problem& problem = entry.problem;
  std::string sequences, tied;
  for (int s = 0; s < problem.sequences(); ++s)
    sequences += fmt::format("{}{}", s == 0 ? "" : ";", problem.length(s));
  for (const WisdomEntry::Tied& t : entry.tied) tied += (tied.empty() ? "" : ";") + t.variant;
  Record record;
  record.text(entry.case_name).text(sequences);
  record.number(problem.query_heads).number(problem.value_heads).text(truth(problem.initial_state));
  record.text(name_of(entry.gates))
      .number(entry.beta_max)
      .text(name_of(entry.scope))
      .text(name_of(entry.timing));
  record.text(entry.winner.variant).number(entry.winner.median_s);
  if (const auto& ci95 = entry.winner.ci95)
    record.number(ci95->first).number(ci95->second);
  else
    record.none(2);
  const WisdomEntry::Search& search = entry.search;
  record.text(tied).text(search.strategy).count(search.seed);
  for (const std::int64_t count : {search.candidates, search.evaluated, search.evaluated_fully})
    record.count(static_cast<std::uint64_t>(count));
  record.text(truth(search.limited)).number(search.seconds).text(entry.tuned_at);
  record.text(text_at(entry.fingerprint, "kernels", ""));
  record.text(text_at(entry.fingerprint, "driver", ""));
  return record.line();
}

}  // namespace

std::string csv(const Report& report) {
  std::string text(header);
  for (const Row& row : report.rows) text += record(row);
  return text;
}

std::string csv(const Wisdom& wisdom) {
  std::string text(wisdom_header);
  for (const WisdomEntry& entry : wisdom.entries) text += record(entry);
  return text;
}

}  // namespace gdn
