// Rows and reports as JSON, strictly read: a number that is not there must not become a 0.
#include <fmt/format.h>

#include <array>
#include <cmath>

#include "src/error.hpp"
#include "src/report/json_field.hpp"
#include "src/report/render.hpp"
#include "src/result.hpp"

namespace gdn {
namespace {

constexpr std::array statuses = {Status::passed, Status::incorrect, Status::failed,
                                 Status::skipped};

Json number_or_null(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json interval_or_null(const std::optional<std::pair<double, double>>& interval) {
  return interval ? Json{interval->first, interval->second} : Json();
}

Json to_json(const TimeSummary& time) {
  return {{"median", time.median},
          {"q1", time.q1},
          {"q3", time.q3},
          {"min", time.min},
          {"ci95", interval_or_null(time.ci95)}};
}

Json to_json(const ErrorSummary& error) {
  return {{"output_rms", number_or_null(error.output_rms)},
          {"state_rms", number_or_null(error.state_rms)},
          {"worst", error.worst},
          {"lab_passed", error.lab_passed}};
}

Json to_json(const Against& against) {
  Json repeats = Json::array();
  for (const Against::Once& once : against.repeats)
    repeats.push_back({{"ratio", once.ratio},
                       {"ci95", interval_or_null(once.ci95)},
                       {"noise_floor", once.noise_floor},
                       {"pairs", once.pairs},
                       {"time_s", once.seconds},
                       {"verdict", name_of(once.verdict)}});
  return {{"variant", against.variant},
          {"revision", against.revision},
          {"median_s", against.median_s},
          {"ratio", against.ratio},
          {"ci95", interval_or_null(against.ci95)},
          {"rank_p", against.rank_p},
          {"equivalence_p", against.equivalence_p},
          {"pairs", against.pairs},
          {"noise_floor", against.noise_floor},
          {"difference_percent", against.difference_percent},
          {"verdict", name_of(against.verdict)},
          {"samples_s", against.samples_s},
          {"repeats", repeats}};
}

std::optional<std::pair<double, double>> interval_from(const Field& field) {
  if (!field.given()) return std::nullopt;
  const std::vector<double> ends = field.quantities();
  if (ends.size() != 2 || ends[0] > ends[1]) field.refuse("[low, high] is expected");
  return std::pair{ends[0], ends[1]};
}

Against against_from(const Field& field) {
  Against against{.variant = field["variant"].text(),
                  .revision = field["revision"].text(),
                  .median_s = field["median_s"].quantity(),
                  .ratio = field["ratio"].quantity(),
                  .ci95 = interval_from(field["ci95"]),
                  .rank_p = field["rank_p"].quantity(),
                  .equivalence_p = field["equivalence_p"].quantity(),
                  .pairs = field["pairs"].count<std::int64_t>(),
                  .noise_floor = field["noise_floor"].quantity(),
                  .difference_percent = field["difference_percent"].quantity(),
                  .verdict = field["verdict"].one_of(verdicts),
                  .samples_s = field["samples_s"].quantities(),
                  .repeats = {}};
  for (const Field& once : field["repeats"].items())
    against.repeats.push_back({.ratio = once.object()["ratio"].quantity(),
                               .ci95 = interval_from(once["ci95"]),
                               .noise_floor = once["noise_floor"].quantity(),
                               .pairs = once["pairs"].count<std::int64_t>(),
                               .seconds = once["time_s"].quantity(),
                               .verdict = once["verdict"].one_of(verdicts)});
  return against;
}

TunedAs tuned_from(const Field& field) {
  return {.case_name = field["case"].text(),
          .timing = field["timing"].one_of(all_timings),
          .distance = field["distance"].quantity(),
          .exact = field["exact"].truth()};
}

ChosenAs chosen_from(const Field& field) {
  return {.reason = field["reason"].text(), .predicted_s = field["predicted_s"].quantity()};
}

TimeSummary time_from(const Field& field) {
  return {.median = field["median"].quantity(),
          .q1 = field["q1"].quantity(),
          .q3 = field["q3"].quantity(),
          .min = field["min"].quantity(),
          .ci95 = interval_from(field["ci95"])};
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
  row.scope = field["scope"].one_of(all_scopes);
  row.timing = field["timing"].one_of(all_timings);
  row.status = field["status"].one_of(statuses);
  row.bound = text("bound");
  row.backend = text("backend");
  row.timer = text("timer");
  row.flush = text("flush");
  row.reason = text("reason");
  row.input_hash = text("input_hash");
  row.output_hash = text("output_hash");
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
  if (const Field medians = field["round_medians_s"]; medians.given()) {
    row.round_medians_s = medians.quantities();
  }
  if (row.time_s && row.round_medians_s.empty()) {
    row.round_medians_s = {row.time_s->median};  // a file from before there were rounds
  }
  if (const Field host = field["host_s"]; host.given()) row.host_s = host.quantity();
  if (const Field f = field["against"]; f.given()) row.against = against_from(f.object());
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
  if (const Field tuned = field["tuned"]; tuned.given()) row.tuned = tuned_from(tuned.object());
  if (const Field chosen = field["auto"]; chosen.given()) row.chosen = chosen_from(chosen.object());
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

std::string rung_of(const Row& row) { return row.variant.substr(0, row.variant.find(':')); }

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

Json to_json(const TunedAs& tuned) {
  return {{"case", tuned.case_name},
          {"timing", name_of(tuned.timing)},
          {"distance", tuned.distance},
          {"exact", tuned.exact}};
}

Json to_json(const ChosenAs& chosen) {
  return {{"reason", chosen.reason}, {"predicted_s", chosen.predicted_s}};
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
          {"bound", row.bound},
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
          {"round_medians_s", row.round_medians_s},
          {"host_s", row.host_s},
          {"against", row.against ? to_json(*row.against) : Json()},
          {"error", row.error ? to_json(*row.error) : Json()},
          {"kernels", kernels},
          {"resources", row.resources},
          {"telemetry", row.telemetry},
          {"chain_chunks", row.chain_chunks},
          {"workspace_bytes", row.workspace_bytes},
          {"flop", row.flop},
          {"bytes", row.bytes},
          {"input_hash", row.input_hash},
          {"output_hash", row.output_hash},
          {"flags", row.flags},
          {"tuned", row.tuned ? to_json(*row.tuned) : Json()},
          {"auto", row.chosen ? to_json(*row.chosen) : Json()}};
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

}  // namespace gdn
