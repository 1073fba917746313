// Rows and reports as JSON, strictly read: a number that is not there must not become a 0.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <span>

#include "src/error.hpp"
#include "src/report/render.hpp"
#include "src/result.hpp"

namespace gdn {
namespace {

using Json = nlohmann::json;

constexpr std::size_t largest_file_bytes = std::size_t{256} << 20;
constexpr int deepest_nesting = 32;  // ours is 5; nlohmann copies and writes by recursion

constexpr std::array scopes = {Scope::core, Scope::forward};
constexpr std::array timings = {Timing::cold, Timing::hot, Timing::graph, Timing::lab};
constexpr std::array statuses = {Status::passed, Status::incorrect, Status::failed,
                                 Status::skipped};

// Bytes that are not UTF-8 (a driver's message, a file's name) are replaced, never thrown at.
std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

// A value of a file, and where it stands there: every refusal names that.
class Field {
 public:
  explicit Field(const Json& value, std::string path = "")
      : value_(&value), path_(std::move(path)) {}

  Field operator[](const std::string& key) const {
    const std::string path = path_.empty() ? key : path_ + "." + key;
    const auto found = value_->find(key);
    return found == value_->end() ? Field(path) : Field(*found, path);
  }

  bool given() const { return value_ != nullptr && !value_->is_null(); }

  const Field& object() const { return need(is(&Json::is_object), "an object"); }

  const std::string& text() const {
    need(is(&Json::is_string), "a string");
    return value_->get_ref<const std::string&>();
  }

  bool truth() const {
    need(is(&Json::is_boolean), "true or false");
    return value_->get<bool>();
  }

  double number() const {
    need(is(&Json::is_number), "a number");
    return value_->get<double>();
  }

  // Times, counts and sizes: nothing here is negative.
  double quantity() const {
    const double value = number();
    if (!(value >= 0)) refuse(fmt::format("a number of at least 0 is expected, not {}", value));
    return value;
  }

  double quantity_or_nan() const {
    return given() ? quantity() : std::numeric_limits<double>::quiet_NaN();
  }

  template <class Count>
  Count count() const {
    need(is(&Json::is_number_integer), "a whole number");
    const bool negative = !value_->is_number_unsigned() && value_->get<std::int64_t>() < 0;
    const auto largest = static_cast<std::uint64_t>(std::numeric_limits<Count>::max());
    if (negative || value_->get<std::uint64_t>() > largest) {
      refuse(
          fmt::format("a whole number from 0 to {} is expected, not {}", largest, dump(*value_)));
    }
    return value_->get<Count>();
  }

  template <class Enum, std::size_t n>
  Enum one_of(const std::array<Enum, n>& values) const {
    std::string names;
    for (const Enum value : values) {
      if (text() == name_of(value)) return value;
      names += names.empty() ? "" : ", ";
      names += name_of(value);
    }
    refuse(fmt::format("{} is none of {}", dump(*value_), names));
  }

  std::vector<Field> items() const {
    need(is(&Json::is_array), "a list");
    std::vector<Field> items;
    items.reserve(value_->size());
    for (const Json& item : *value_) {
      items.push_back(Field(item, fmt::format("{}[{}]", path_, items.size())));
    }
    return items;
  }

  std::vector<double> quantities() const {
    need(is(&Json::is_array), "a list of numbers");
    std::vector<double> numbers;
    numbers.reserve(value_->size());
    for (const Json& item : *value_) {
      const bool fine = item.is_number() && item.get<double>() >= 0;
      if (!fine) Field(item, fmt::format("{}[{}]", path_, numbers.size())).quantity();
      numbers.push_back(item.get<double>());
    }
    return numbers;
  }

  const Json& raw() const { return *value_; }

  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError(path_.empty() ? what : path_ + ": " + what);
  }

 private:
  explicit Field(std::string path) : path_(std::move(path)) {}

  bool is(bool (Json::*type)() const noexcept) const {
    return value_ != nullptr && (value_->*type)();
  }

  const Field& need(bool fits, const char* wanted) const {
    if (fits) return *this;
    if (!given()) refuse(fmt::format("{} is missing", wanted));
    refuse(fmt::format("{} is expected, not {} {}", wanted, value_->is_object() ? "an" : "a",
                       value_->is_array() ? "list" : value_->type_name()));
  }

  const Json* value_ = nullptr;  // null where the file has no such field
  std::string path_;
};

Json to_json(const TimeSummary& time) {
  Json ci95;
  if (time.ci95) ci95 = {time.ci95->first, time.ci95->second};
  return {
      {"median", time.median}, {"q1", time.q1}, {"q3", time.q3}, {"min", time.min}, {"ci95", ci95}};
}

Json to_json(const ErrorSummary& error) {
  return {{"output_rms", number_or_null(error.output_rms)},
          {"state_rms", number_or_null(error.state_rms)},
          {"worst", error.worst},
          {"lab_passed", error.lab_passed}};
}

TimeSummary time_from(const Field& field) {
  TimeSummary time{.median = field["median"].quantity(),
                   .q1 = field["q1"].quantity(),
                   .q3 = field["q3"].quantity(),
                   .min = field["min"].quantity(),
                   .ci95 = std::nullopt};
  if (const Field ci95 = field["ci95"]; ci95.given()) {
    const std::vector<double> ends = ci95.quantities();
    if (ends.size() != 2 || ends[0] > ends[1]) ci95.refuse("[low, high] is expected");
    time.ci95 = {ends[0], ends[1]};
  }
  return time;
}

ErrorSummary error_from(const Field& field) {
  return {.output_rms = field["output_rms"].quantity_or_nan(),
          .state_rms = field["state_rms"].quantity_or_nan(),
          .worst = field["worst"].given() ? field["worst"].text() : "",
          .lab_passed = field["lab_passed"].truth()};
}

Knob knob_from(const std::string& name, const Field& value) {
  return {name, value.raw().is_number() ? dump(value.raw()) : value.text()};
}

Row row_from(const Field& field) {
  field.object();
  const auto text = [&](const char* key) {
    return field[key].given() ? field[key].text() : std::string();
  };
  Row row;
  row.case_name = field["case"].text();
  row.variant = field["variant"].text();
  row.scope = field["scope"].one_of(scopes);
  row.timing = field["timing"].one_of(timings);
  row.status = field["status"].one_of(statuses);
  row.backend = text("backend");
  row.timer = text("timer");
  row.flush = text("flush");
  row.reason = text("reason");
  row.input_hash = text("input_hash");
  if (const Field knobs = field["knobs"]; knobs.given()) {
    for (const auto& [name, value] : knobs.object().raw().items()) {
      row.knobs.push_back(knob_from(name, knobs[name]));
    }
  }
  if (const Field time = field["time_s"]; time.given()) row.time_s = time_from(time.object());
  if (const Field samples = field["samples_s"]; samples.given() || row.time_s) {
    row.samples_s = samples.quantities();
  }
  row.samples = field["samples"].given() ? field["samples"].count<std::int64_t>()
                                         : static_cast<std::int64_t>(row.samples_s.size());
  if (const Field host = field["host_s"]; host.given()) row.host_s = host.quantity();
  if (const Field error = field["error"]; error.given()) row.error = error_from(error.object());
  if (const Field kernels = field["kernels"]; kernels.given()) {
    for (const Field& kernel : kernels.items()) {
      kernel.object();
      row.kernels.push_back({kernel["name"].text(), kernel["time_s"].quantity()});
    }
  }
  if (const Field f = field["resources"]; f.given()) row.resources = f.object().raw();
  if (const Field f = field["telemetry"]; f.given()) row.telemetry = f.object().raw();
  if (const Field f = field["chain_chunks"]; f.given()) row.chain_chunks = f.count<std::int64_t>();
  if (const Field f = field["workspace_bytes"]; f.given()) {
    row.workspace_bytes = f.count<std::uint64_t>();
  }
  if (const Field f = field["flop"]; f.given()) row.flop = f.quantity();
  if (const Field f = field["bytes"]; f.given()) row.bytes = f.quantity();
  if (const Field flags = field["flags"]; flags.given()) {
    for (const Field& flag : flags.items()) row.flags.push_back(flag.text());
  }
  return row;
}

// Schema, fingerprint and options: the head of a report and the first line of a journal.
Report header_from(const Field& field) {
  field.object();
  if (const Field schema = field["schema"]; schema.text() != schema_name) {
    schema.refuse(
        fmt::format("{} is not \"{}\", which this gdnbench reads; measure again, or use the "
                    "gdnbench that wrote the file",
                    dump(schema.raw()), schema_name));
  }
  Report report;
  if (const Field f = field["fingerprint"]; f.given()) report.fingerprint = f.object().raw();
  if (const Field f = field["options"]; f.given()) report.options = f.object().raw();
  return report;
}

Json header_of(const Report& report) {
  return {
      {"schema", schema_name}, {"fingerprint", report.fingerprint}, {"options", report.options}};
}

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
  std::error_code error;
  const auto kind = std::filesystem::status(path, error).type();
  if (kind == std::filesystem::file_type::not_found) {
    throw UserError(path + ": no such file; give a result file that `run --json` wrote");
  }
  if (kind == std::filesystem::file_type::directory) {
    throw UserError(path + ": a folder; give a result file");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 1 << 16> block;
  while (file && text.size() <= largest_file_bytes) {
    file.read(block.data(), block.size());
    text.append(block.data(), static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad()) {
    throw UserError(path + ": cannot be read; check its permissions");
  }
  if (text.size() > largest_file_bytes) {
    throw UserError(path + ": larger than 256 MiB; is this a result file?");
  }
  return text;
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
        journal.report = header_from(Field(value));
      } else if (value.is_object() && value.contains("finished")) {
        journal.finished = Field(value)["finished"].truth();
      } else {
        journal.report.rows.push_back(row_from_json(value));
        journal.finished = false;
      }
    });
  }
  if (number == 0)
    throw UserError(path + ":1:1: the file is cut off in its first line; measure again");
  return journal;
}

}  // namespace

std::string_view name_of(Timing timing) {
  switch (timing) {
    case Timing::cold:
      return "cold";
    case Timing::hot:
      return "hot";
    case Timing::graph:
      return "graph";
    case Timing::lab:
      return "lab";
  }
  return "";
}

std::string_view name_of(Status status) {
  switch (status) {
    case Status::passed:
      return "passed";
    case Status::incorrect:
      return "incorrect";
    case Status::failed:
      return "failed";
    case Status::skipped:
      return "skipped";
  }
  return "";
}

std::string row_key(const Row& row) {
  return fmt::format("{}/{}/{}/{}", row.case_name, row.variant, name_of(row.scope),
                     name_of(row.timing));
}

double tflops(const Row& row) {
  return row.time_s && row.time_s->median > 0 ? row.flop / row.time_s->median / 1e12 : 0;
}

double gigabytes_per_s(const Row& row) {
  return row.time_s && row.time_s->median > 0 ? row.bytes / row.time_s->median / 1e9 : 0;
}

Json to_json(const Row& row) {
  Json knobs = Json::object();
  for (const Knob& knob : row.knobs) knobs[knob.name] = knob.value;
  Json kernels = Json::array();
  for (const KernelTime& kernel : row.kernels) {
    kernels.push_back({{"name", kernel.name}, {"time_s", kernel.time_s}});
  }
  return {{"case", row.case_name},
          {"variant", row.variant},
          {"knobs", knobs},
          {"backend", row.backend},
          {"scope", name_of(row.scope)},
          {"timing", name_of(row.timing)},
          {"timer", row.timer},
          {"flush", row.flush},
          {"status", name_of(row.status)},
          {"reason", row.reason},
          {"time_s", row.time_s ? to_json(*row.time_s) : Json()},
          {"samples_s", row.samples_s},
          {"samples", row.samples},
          {"host_s", row.host_s},
          {"error", row.error ? to_json(*row.error) : Json()},
          {"kernels", kernels},
          {"resources", row.resources},
          {"telemetry", row.telemetry},
          {"chain_chunks", row.chain_chunks},
          {"workspace_bytes", row.workspace_bytes},
          {"flop", row.flop},
          {"bytes", row.bytes},
          {"input_hash", row.input_hash},
          {"flags", row.flags}};
}

Json to_json(const Report& report) {
  Json whole = header_of(report);
  whole["results"] = Json::array();
  for (const Row& row : report.rows) whole["results"].push_back(to_json(row));
  return whole;
}

Row row_from_json(const Json& json) { return row_from(Field(json)); }

Report report_from_json(const Json& json) {
  const Field whole(json);
  Report report = header_from(whole);
  for (const Field& row : whole["results"].items()) report.rows.push_back(row_from(row));
  return report;
}

// One line a row: easy on the eye, on diff and on grep.
std::string json(const Report& report) {
  std::string rows;
  for (const Row& row : report.rows) {
    rows += rows.empty() ? "\n" : ",\n";
    rows += dump(to_json(row));
  }
  return fmt::format(
      "{{\n\"schema\": \"{}\",\n\"fingerprint\": {},\n\"options\": {},\n\"results\": [{}\n]\n}}\n",
      schema_name, dump(report.fingerprint), dump(report.options), rows);
}

std::string journal_header(const Report& report) { return dump(header_of(report)) + "\n"; }
std::string journal_line(const Row& row) { return dump(to_json(row)) + "\n"; }

Journal read_journal(const std::string& path) {
  const std::string text = read_file(path);
  if (!is_journal(text, path)) {
    throw UserError(path + ": not the journal of a run; give the .jsonl that `run --json` wrote");
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
