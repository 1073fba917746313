#include "src/wisdom.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <set>
#include <tuple>

#include "src/error.hpp"
#include "src/file.hpp"
#include "src/fingerprint.hpp"
#include "src/folder.hpp"
#include "src/report/json_field.hpp"
#include "src/report/json_text.hpp"

namespace gdn {
namespace {

constexpr std::size_t largest_file_bytes = std::size_t{256} << 20;
constexpr std::int64_t most_tokens = std::int64_t{1} << 30;  // token indices are 32-bit
constexpr JsonKind wisdom_file = {.name = "a wisdom file",
                                  .when_cut = "take an older copy, or tune again"};

constexpr std::array facts_of_wisdom = {
    Fact{"/device/name", "device"}, Fact{"/kernels", "hash of the kernels' sources"},
    Fact{"/driver", "driver"},      Fact{"/cuda", "CUDA version"},
    Fact{"/mig", "MIG mode"},       Fact{"/device/ecc", "ECC mode"}};

// With these being the same, a winner stays one.
constexpr std::array facts_of_winners = {Fact{"/kernels", "hash of the kernels' sources"},
                                         Fact{"/driver", "driver"}};

using Pair = std::optional<std::pair<double, double>>;

Json pair_or_null(const Pair& ends) {
  return ends ? Json::array({ends->first, ends->second}) : Json();
}

Json to_json(const std::vector<Knob>& knobs) {
  Json object = Json::object();
  for (const Knob& knob : knobs) object[knob.name] = knob.value;
  return object;
}

Json problem_to_json(const WisdomEntry& entry) {
  Json sequences = Json::array();
  for (int s = 0; s < entry.problem.sequences(); ++s) sequences.push_back(entry.problem.length(s));
  Json json = {{"sequences", sequences},
               {"query_heads", entry.problem.query_heads},
               {"value_heads", entry.problem.value_heads},
               {"initial_state", entry.problem.initial_state},
               {"gates", name_of(entry.gates)}};
  if (entry.beta_max != 1) json["beta_max"] = entry.beta_max;
  return json;
}

int heads_in(const Field& field) {
  const int heads = field.count<int>();
  if (heads < 1) field.refuse("at least one head is expected");
  return heads;
}

void problem_from(const Field& field, WisdomEntry& entry) {
  field.object();
  Problem& problem = entry.problem;
  std::int64_t tokens = 0;
  for (const Field& length : field["sequences"].items()) {
    tokens += length.count<std::int32_t>();
    if (tokens > most_tokens) length.refuse(fmt::format("more than {} tokens in all", most_tokens));
    problem.offsets.push_back(static_cast<std::int32_t>(tokens));
  }
  if (tokens == 0) field["sequences"].refuse("a sequence with a token is expected");
  problem.query_heads = heads_in(field["query_heads"]);
  problem.value_heads = heads_in(field["value_heads"]);
  if (problem.value_heads % problem.query_heads != 0)
    field["value_heads"].refuse(
        fmt::format("a multiple of query_heads, which is {}, is expected", problem.query_heads));
  problem.initial_state = field["initial_state"].truth();
  constexpr auto profiles = [] {
    std::array<Gates, gates_names.size()> all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<Gates>(i);
    return all;
  }();
  entry.gates = field["gates"].one_of(profiles);
  if (const Field beta_max = field["beta_max"]; beta_max.given()) {
    entry.beta_max = beta_max.count<int>();
    if (entry.beta_max != 1 && entry.beta_max != 2) beta_max.refuse("1 or 2 is expected");
  }
}

std::vector<Knob> knobs_from(const Field& field) {
  std::vector<Knob> knobs;
  for (const auto& [name, value] : field.object().raw().items())
    knobs.push_back({name, field[name].text()});
  return knobs;
}

// Null: too few samples for an interval. It may not be left out.
Pair ends_from(const Field& parent, const char* name) {
  const Field field = parent[name];
  if (parent.raw().contains(name) && !field.given()) return std::nullopt;
  const std::vector<double> ends = field.quantities();
  if (ends.size() != 2 || ends[0] > ends[1]) field.refuse("[low, high] is expected");
  return std::pair(ends[0], ends[1]);
}

double positive(const Field& field) {
  const double value = field.number();
  if (!(value > 0)) field.refuse(fmt::format("a number above 0 is expected, not {}", value));
  return value;
}

void require_time_stamp(const Field& field) {
  if (!is_time_stamp(field.text()))
    field.refuse(
        fmt::format("a time like 2025-11-29T20:40:58Z is expected, not {}", dump(field.raw())));
}

WisdomEntry::Search search_from(const Field& field) {
  field.object();
  return {.strategy = field["strategy"].name(),
          .seed = field["seed"].count<std::uint64_t>(),
          .candidates = field["candidates"].count<std::int64_t>(),
          .evaluated = field["evaluated"].count<std::int64_t>(),
          .evaluated_fully = field["evaluated_fully"].count<std::int64_t>(),
          .limited = field["limited"].truth(),
          .seconds = field["seconds"].quantity()};
}

WisdomEntry entry_from(const Field& field, const std::vector<Field>& fingerprints) {
  field.object();
  WisdomEntry entry;
  entry.case_name = field["case"].name();
  problem_from(field["problem"], entry);
  entry.scope = field["scope"].one_of(all_scopes);
  entry.timing = field["timing"].one_of(all_timings);
  const Field winner = field["winner"].object();
  entry.winner = {.variant = winner["variant"].name(),
                  .knobs = knobs_from(winner["knobs"]),
                  .median_s = positive(winner["median_s"]),
                  .ci95 = ends_from(winner, "ci95")};
  for (const Field& tied : field["tied"].items()) {
    tied.object();
    entry.tied.push_back({.variant = tied["variant"].name(),
                          .knobs = knobs_from(tied["knobs"]),
                          .ratio = positive(tied["ratio"]),
                          .interval = ends_from(tied, "interval")});
  }
  if (const Field all = field["slower"]; all.given())
    for (const Field& slower : all.items()) {
      slower.object();
      entry.slower.push_back({slower["variant"].name(), positive(slower["ratio"])});
    }
  for (const Field& failed : field["failed"].items()) {
    failed.object();
    entry.failed.push_back({failed["variant"].name(), failed["reason"].text()});
  }
  entry.search = search_from(field["search"]);
  if (const Field flags = field["flags"]; flags.given()) entry.flags = flags.names();
  require_time_stamp(field["tuned_at"]);
  entry.tuned_at = field["tuned_at"].text();
  const auto place = field["fingerprint"].count<std::size_t>();
  if (place >= fingerprints.size())
    field["fingerprint"].refuse(
        fmt::format("there are {} fingerprints, counted from 0", fingerprints.size()));
  entry.fingerprint = fingerprints[place].raw();
  return entry;
}

std::string device_of(const Field& fingerprint) {
  return fingerprint.object()["device"].object()["name"].name();
}

Wisdom wisdom_from(const Field& whole) {
  whole.object();
  if (const Field schema = whole["schema"]; schema.text() != wisdom_schema_name)
    schema.refuse(
        fmt::format("{} is not \"{}\", which this gdnbench reads; tune again, or use the "
                    "gdnbench that wrote the file",
                    dump(schema.raw()), wisdom_schema_name));
  Wisdom wisdom{.device = whole["device"].name(), .entries = {}};
  const std::vector<Field> fingerprints = whole["fingerprints"].items();
  for (const Field& fingerprint : fingerprints)
    if (const std::string name = device_of(fingerprint); name != wisdom.device)
      fingerprint["device"]["name"].refuse(fmt::format(
          "{} is another device than that of the file, {}; each device has a file of its own",
          dump(name), dump(wisdom.device)));
  std::set<std::string> problems;
  for (const Field& field : whole["entries"].items()) {
    wisdom.entries.push_back(entry_from(field, fingerprints));
    if (!problems.insert(problem_key(wisdom.entries.back())).second)
      field.refuse("its problem stands there twice; keep one of the two");
  }
  return wisdom;
}

// Whether what was found out about the same problem still holds, and says more.
bool is_wider(const WisdomEntry& there, const WisdomEntry& entry) {
  return there.search.evaluated > entry.search.evaluated &&
         problem_key(there) == problem_key(entry) &&
         differing(facts_of_winners, there.fingerprint, "", entry.fingerprint, "").empty();
}

double apart(double a, double b) { return std::abs(std::log2(a / b)); }

double chains(const Problem& problem) {
  int sequences = 0;
  for (int s = 0; s < problem.sequences(); ++s) sequences += problem.length(s) > 0;
  return static_cast<double>(sequences) * problem.value_heads;
}

double work(const Problem& problem) {
  return static_cast<double>(problem.tokens()) * problem.value_heads;
}

}  // namespace

Wisdom parse_wisdom(std::string_view text, const std::string& source) {
  const Json whole = parse_json(text, source, wisdom_file);
  return naming(source, [&] { return wisdom_from(Field(whole)); });
}

Wisdom read_wisdom(const std::string& path) {
  return parse_wisdom(
      read_text(path, largest_file_bytes,
                "a wisdom file; `gdnbench tune --case '*' --output FILE` makes one, `run --variant "
                "auto` does without"),
      path);
}

Json to_json(const WisdomEntry& entry) {
  Json tied = Json::array();
  for (const WisdomEntry::Tied& t : entry.tied)
    tied.push_back({{"variant", t.variant},
                    {"knobs", to_json(t.knobs)},
                    {"ratio", t.ratio},
                    {"interval", pair_or_null(t.interval)}});
  Json slower = Json::array();
  for (const WisdomEntry::Slower& s : entry.slower)
    slower.push_back({{"variant", s.variant}, {"ratio", s.ratio}});
  Json failed = Json::array();
  for (const WisdomEntry::Failed& f : entry.failed)
    failed.push_back({{"variant", f.variant}, {"reason", f.reason}});
  Json json = {{"case", entry.case_name},
               {"problem", problem_to_json(entry)},
               {"scope", name_of(entry.scope)},
               {"timing", name_of(entry.timing)},
               {"winner",
                {{"variant", entry.winner.variant},
                 {"knobs", to_json(entry.winner.knobs)},
                 {"median_s", entry.winner.median_s},
                 {"ci95", pair_or_null(entry.winner.ci95)}}},
               {"tied", tied},
               {"slower", slower},
               {"failed", failed},
               {"search",
                {{"strategy", entry.search.strategy},
                 {"seed", entry.search.seed},
                 {"candidates", entry.search.candidates},
                 {"evaluated", entry.search.evaluated},
                 {"evaluated_fully", entry.search.evaluated_fully},
                 {"limited", entry.search.limited},
                 {"seconds", entry.search.seconds}}},
               {"tuned_at", entry.tuned_at},
               {"fingerprint", entry.fingerprint}};
  if (!entry.flags.empty()) json["flags"] = entry.flags;
  return json;
}

std::string json(const Wisdom& wisdom) {
  std::vector<Json> known;  // fingerprints, in the order of their first entries
  std::string fingerprints;
  std::string entries;
  for (const WisdomEntry& entry : wisdom.entries) {
    auto place = std::ranges::find(known, entry.fingerprint);
    if (place == known.end()) {
      fingerprints += (known.empty() ? "\n" : ",\n") + dump(entry.fingerprint);
      place = known.insert(known.end(), entry.fingerprint);
    }
    Json line = to_json(entry);
    line["fingerprint"] = place - known.begin();
    entries += (entries.empty() ? "\n" : ",\n") + dump(line);
  }
  return fmt::format(
      "{{\n\"schema\": {},\n\"device\": {},\n\"fingerprints\": [{}\n],\n\"entries\": [{}\n]\n}}\n",
      dump(wisdom_schema_name), dump(wisdom.device), fingerprints, entries);
}

std::string problem_key(const WisdomEntry& entry) {
  return fmt::format("{} {} {}", dump(problem_to_json(entry)), name_of(entry.scope),
                     name_of(entry.timing));
}

void add(Wisdom& wisdom, WisdomEntry entry) {
  const std::string device = device_of(Field(entry.fingerprint, "fingerprint"));
  if (device != wisdom.device)
    throw UserError(fmt::format(
        "{} was tuned on {}, and this is the wisdom of {}; each device has a file of its own",
        entry.case_name, dump(device), dump(wisdom.device)));
  const std::string key = problem_key(entry);
  std::erase_if(wisdom.entries, [&](const WisdomEntry& e) { return problem_key(e) == key; });
  const auto order = [](const WisdomEntry& e) {
    return std::tuple(e.case_name, e.scope, e.timing, problem_key(e));
  };
  const auto place = std::ranges::upper_bound(wisdom.entries, order(entry), {}, order);
  wisdom.entries.insert(place, std::move(entry));
}

std::vector<WisdomEntry> add_to_wisdom_file(const std::string& path,
                                            const std::vector<WisdomEntry>& entries) {
  std::vector<WisdomEntry> stayed;
  if (entries.empty()) return stayed;
  // The file is replaced whole, so it is its folder that two writers lock against each other.
  const std::filesystem::path parent = std::filesystem::absolute(path).parent_path();
  const Descriptor folder(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) flock(folder.get(), LOCK_EX);
  Wisdom wisdom;
  if (std::filesystem::exists(path))
    wisdom = read_wisdom(path);
  else
    wisdom.device = device_of(Field(entries.front().fingerprint, "fingerprint"));
  naming(path, [&] {
    for (const WisdomEntry& entry : entries) {
      const auto wider = std::ranges::find_if(
          wisdom.entries, [&](const WisdomEntry& there) { return is_wider(there, entry); });
      if (wider == wisdom.entries.end())
        add(wisdom, entry);
      else
        stayed.push_back(*wider);
    }
  });
  write_file(path, json(wisdom));
  return stayed;
}

double distance(const Problem& a, std::optional<Gates> a_gates, const Problem& b,
                std::optional<Gates> b_gates) {
  const bool other_gates = a_gates && b_gates && *a_gates != *b_gates;
  return apart(chains(a), chains(b)) +
         apart(static_cast<double>(a.chain_chunks()), static_cast<double>(b.chain_chunks())) +
         apart(work(a), work(b)) + apart(a.heads_per_query(), b.heads_per_query()) +
         (a.initial_state != b.initial_state ? 0.25 : 0) + (other_gates ? 1 : 0);
}

std::optional<Advice> find(const Wisdom& wisdom, const Problem& problem, std::optional<Gates> gates,
                           Scope scope, Timing timing, int beta_max) {
  std::optional<Advice> best;
  const auto rank = [&](const Advice& advice) {
    return std::tuple(advice.entry->timing != timing, advice.distance, !advice.exact);
  };
  for (const WisdomEntry& entry : wisdom.entries) {
    if (entry.scope != scope) continue;
    const Advice advice{.entry = &entry,
                        .distance = distance(problem, gates, entry.problem, entry.gates),
                        .exact = entry.timing == timing && entry.gates == gates &&
                                 entry.beta_max == beta_max && entry.problem == problem};
    if (!best || rank(advice) < rank(*best)) best = advice;
  }
  return best;
}

std::vector<std::string> staleness(const WisdomEntry& entry, const Json& now) {
  return differing(facts_of_wisdom, entry.fingerprint, "when it was tuned", now, "now");
}

std::string device_slug(std::string_view device_name) {
  std::string slug;
  for (const char c : device_name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      slug += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!slug.empty() && slug.back() != '_')
      slug += '_';
  }
  while (slug.ends_with('_')) slug.pop_back();
  return slug.empty() ? "device" : slug;
}

std::string wisdom_path(const std::string& device_name) {
  const std::filesystem::path folder =
      folder_named("tuning", "GDNBENCH_TUNING", "tuned winners (tuning/)");
  return (folder / (device_slug(device_name) + ".json")).string();
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

bool is_time_stamp(const std::string& text) {
  std::tm parts{};
  const char* const end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end != nullptr && *end == '\0';
}

}  // namespace gdn
