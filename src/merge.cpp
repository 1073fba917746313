#include "src/merge.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>

#include "src/error.hpp"
#include "src/fingerprint.hpp"
#include "src/report/json_field.hpp"
#include "src/report/json_text.hpp"
#include "src/report/render.hpp"
#include "src/tuning_record.hpp"

namespace gdn {
namespace {

constexpr JsonKind any_kind = {.name = "wisdom, a tuning record or a result file",
                               .when_cut = "take a whole copy"};

// Rows of different builds would stand under one name.
constexpr std::array facts_of_builds = {Fact{"/kernels", "hash of the kernels' sources"},
                                        Fact{"/kernel_checks", "list of kernel checks"},
                                        Fact{"/revision", "revision"}};

enum class Kind { wisdom, record, results };

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::wisdom:
      return "wisdom";
    case Kind::record:
      return "a tuning record";
    case Kind::results:
      return "results";
  }
  return "";
}

// The schema stands in the first line, or in a JSON text of many lines.
Kind kind_of(const NamedText& file) {
  const std::string_view text = file.text;
  const std::string_view line = text.substr(0, text.find('\n'));
  const bool by_line = Json::accept(line.begin(), line.end());
  const Json head = parse_json(by_line ? line : text, file.path, any_kind);
  const std::string schema =
      naming(file.path, [&] { return Field(head).object()["schema"].text(); });
  if (schema.starts_with("gdnbench-wisdom/")) return Kind::wisdom;
  if (schema.starts_with("gdnbench-record/")) return Kind::record;
  if (schema.starts_with("gdnbench/")) return Kind::results;
  throw UserError(fmt::format("{}: schema: {} is none of gdnbench's; give {}", file.path,
                              dump(schema), any_kind.name));
}

void require_same_source(const Json& first, const std::string& first_path, const Json& other,
                         const std::string& other_path) {
  const auto differences = [&](std::span<const Fact> facts) {
    return differing(facts, first, "in " + first_path, other, "in " + other_path);
  };
  std::vector<std::string> found = differences(facts_of_times);
  std::ranges::move(differences(facts_of_builds), std::back_inserter(found));
  if (!found.empty())
    throw UserError(
        fmt::format("{} and {} may not be merged; measure both with one build on one device:\n  {}",
                    first_path, other_path, fmt::join(found, "\n  ")));
}

// What files say of things, in the order in which the things first came.
template <class Saying>
class Gathered {
 public:
  explicit Gathered(bool newer) : newer_(newer) {}

  // `name` is what people call the thing, `words` are all that is said of it.
  void add(const std::string& key, const std::string& name, const std::string& words,
           const std::string& place, Saying saying) {
    const auto [known, is_new] = known_.emplace(key, Known{sayings_.size(), words, place});
    if (is_new) {
      sayings_.push_back(std::move(saying));
      return;
    }
    Known& before = known->second;
    if (before.words == words) return;
    if (!newer_)
      throw UserError(
          fmt::format("{}: {} and {} differ; merge one of the two, or let the later file count "
                      "with --newer",
                      name, before.place, place));
    sayings_[before.index] = std::move(saying);
    before = {before.index, words, place};
  }

  const std::vector<Saying>& sayings() const { return sayings_; }

 private:
  struct Known {
    std::size_t index;
    std::string words, place;
  };
  bool newer_;
  std::map<std::string, Known> known_;
  std::vector<Saying> sayings_;
};

std::string merged_wisdom(const std::vector<NamedText>& files, bool newer) {
  std::optional<Wisdom> merged;
  Gathered<WisdomEntry> entries(newer);
  for (const NamedText& file : files) {
    const Wisdom wisdom = parse_wisdom(file.text, file.path);
    if (!merged) merged = Wisdom{.device = wisdom.device, .entries = {}};
    if (merged->device != wisdom.device)
      throw UserError(fmt::format("{} is wisdom of {}, {} of {}; each device has a file of its own",
                                  files[0].path, dump(merged->device), file.path,
                                  dump(wisdom.device)));
    for (std::size_t i = 0; i < wisdom.entries.size(); ++i) {
      const WisdomEntry& entry = wisdom.entries[i];
      const std::string name = fmt::format("{} in the {} scope, {} timing", entry.case_name,
                                           name_of(entry.scope), name_of(entry.timing));
      entries.add(problem_key(entry), name, dump(to_json(entry)),
                  fmt::format("{}: entries[{}]", file.path, i), entry);
    }
  }
  for (const WisdomEntry& entry : entries.sayings()) add(*merged, entry);
  return json(*merged);
}

// The lines of a record about one problem.
struct ProblemLines {
  Json problem;
  std::string lines;
  std::size_t first_line = 0;
};

struct Record {
  std::string header;  // its line
  Json fingerprint;
  std::string space;                              // a path, or ""
  std::vector<std::string> candidates, variants;  // ids and globs
  std::vector<ProblemLines> problems;
};

Json problem_of_line(const Field& line) {
  const Field finished = line.object()["finished"];
  return (finished.given() ? finished : line["problem"]).object().raw();
}

Record parse_record(const NamedText& file) {
  Record record;
  std::map<Json, std::size_t> places;
  std::map<std::pair<std::size_t, std::string>, std::size_t> samples;  // by problem and candidate
  const std::string_view text = file.text;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string_view::npos) break;  // torn by a kill
    const std::string line(text.substr(begin, end + 1 - begin));
    begin = end + 1;
    const Json value = parse_json(line, file.path, any_kind, ++number);
    naming(fmt::format("{}:{}", file.path, number), [&] {
      const Field field(value);
      if (number == 1) {
        if (const Field schema = field.object()["schema"]; schema.text() != record_schema)
          schema.refuse(fmt::format(
              "{} is not \"{}\", which this gdnbench reads; use the one that wrote the file",
              dump(schema.raw()), record_schema));
        record.header = line;
        record.fingerprint = field["fingerprint"].object().raw();
        const Field options = field["options"].object();
        record.space = options["space"].text();
        record.candidates = options["candidates"].names();
        record.variants = options["variant"].names();
        return;
      }
      Json problem = problem_of_line(field);
      const auto [place, is_new] = places.emplace(problem, record.problems.size());
      if (is_new) record.problems.push_back({std::move(problem), "", number});
      record.problems[place->second].lines += line;
      if (!field["candidate"].given()) return;
      std::size_t& before = samples[{place->second, field["candidate"].text()}];
      require_next(field["first"], before);
      before += field["samples_s"].items().size();
    });
  }
  if (number == 0) throw UserError(file.path + ": its header is cut off; take a whole copy");
  return record;
}

Json united_lists(const std::vector<Json>& lists) {
  Json all = Json::array();
  for (const Json& list : lists)
    for (const Json& item : list)
      if (std::ranges::find(all, item) == all.end()) all.push_back(item);
  return all;
}

// Candidates of several searches, in the order of the ladder; behind those, what this build lacks.
Json in_ladder_order(const Json& all) {
  auto ids = all.get<std::vector<Json>>();
  const auto place = [](const Json& id) {
    std::size_t place = 0;
    for (const Variant& variant : ladder())
      for (const Instance& instance : variant.instances) {
        if (id == variant_id(variant, instance)) return place;
        ++place;
      }
    return place;
  };
  std::ranges::stable_sort(ids, {}, place);
  return ids;
}

// The header of a record that has the answers of several: its candidates are those of all, and no
// --variant leaves one of them out.
std::string united_header(const std::vector<Record>& records) {
  std::vector<Json> candidates, globs;
  for (const Record& record : records) {
    candidates.emplace_back(record.candidates);
    globs.emplace_back(record.variants);
  }
  const auto same = [](const std::vector<Json>& lists) {
    return std::ranges::count(lists, lists[0]) == std::ssize(lists);
  };
  if (same(candidates) && same(globs)) return records[0].header;
  Json header = Json::parse(records[0].header);
  header["options"]["candidates"] = in_ladder_order(united_lists(candidates));
  const bool all = std::ranges::any_of(globs, &Json::empty);
  header["options"]["variant"] = all ? Json::array() : united_lists(globs);
  return dump(header) + '\n';
}

std::string merged_records(const std::vector<NamedText>& files, bool newer) {
  std::vector<Record> records;
  Gathered<std::string> problems(newer);
  for (const NamedText& file : files) {
    const Record& record = records.emplace_back(parse_record(file));
    require_same_source(records[0].fingerprint, files[0].path, record.fingerprint, file.path);
    if (record.space != records[0].space)  // no one search could go on with both
      throw UserError(
          fmt::format("{} and {} may not be merged: --space was {} in {}, {} in {}; tune both with "
                      "one --space",
                      files[0].path, file.path, dump(records[0].space), files[0].path,
                      dump(record.space), file.path));
    for (const auto& [problem, lines, line] : record.problems)
      problems.add(dump(problem), "the answers about " + dump(problem), lines,
                   fmt::format("{}:{}", file.path, line), lines);
  }
  std::string text = united_header(records);
  for (const std::string& lines : problems.sayings()) text += lines;
  return text;
}

// What all descriptions that mention it agree on.
Json united(const std::vector<Json>& descriptions) {
  std::map<std::string, std::vector<Json>> members;
  for (const Json& description : descriptions)
    for (const auto& [key, value] : description.items()) members[key].push_back(value);
  Json all = Json::object();
  for (const auto& [key, values] : members) {
    if (std::ranges::all_of(values, &Json::is_object))
      all[key] = united(values);
    else if (std::ranges::all_of(values, &Json::is_array))
      all[key] = united_lists(values);
    else if (std::ranges::count(values, values[0]) == std::ssize(values))
      all[key] = values[0];
  }
  return all;
}

std::string merged_results(const std::vector<NamedText>& files, bool newer) {
  std::vector<Json> fingerprints, options;
  Gathered<Row> rows(newer);
  struct Inputs {
    std::string hash, path;
  };
  std::map<std::string, Inputs> inputs;  // by case
  for (const NamedText& file : files) {
    const Report report = parse_report(file.text, file.path);
    fingerprints.push_back(report.fingerprint);
    options.push_back(report.options);
    require_same_source(fingerprints[0], files[0].path, report.fingerprint, file.path);
    for (std::size_t i = 0; i < report.rows.size(); ++i) {
      const Row& row = report.rows[i];
      if (!row.input_hash.empty()) {
        const auto& known =
            inputs.emplace(row.case_name, Inputs{row.input_hash, file.path}).first->second;
        if (known.hash != row.input_hash)
          throw UserError(
              fmt::format("{}: its inputs are {} in {}, {} in {}; rename one of the two cases and "
                          "measure it again",
                          row.case_name, known.hash, known.path, row.input_hash, file.path));
      }
      rows.add(row_key(row), row_key(row), dump(to_json(row)),
               fmt::format("{}: results[{}]", file.path, i), row);
    }
  }
  return json(Report{united(fingerprints), united(options), rows.sayings()});
}

}  // namespace

std::string merged(const std::vector<NamedText>& files, bool newer) {
  const Kind kind = kind_of(files.at(0));
  for (const NamedText& file : files)
    if (const Kind other = kind_of(file); other != kind)
      throw UserError(fmt::format("{} is {}, {} is {}; merge files of one kind", files[0].path,
                                  name_of(kind), file.path, name_of(other)));
  switch (kind) {
    case Kind::wisdom:
      return merged_wisdom(files, newer);
    case Kind::record:
      return merged_records(files, newer);
    case Kind::results:
      break;
  }
  return merged_results(files, newer);
}

}  // namespace gdn
