#include "src/case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "src/case_file.hpp"

namespace gdn {
namespace {

constexpr std::uint64_t most_tokens = std::uint64_t{1} << 30;   // token indices are 32-bit
constexpr std::uint64_t most_offsets = std::uint64_t{1} << 22;  // of all cases together: 16 MiB
constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;

// The id is made anew for every draft, and refused as soon as it is too long to be typed.
void name_draft(Draft& draft, const std::vector<field::Index>& shown) {
  draft.id = draft.file->name;
  for (const field::Index index : shown) {
    const Value* value = draft.values[index];
    if (value == nullptr) continue;
    if (draft.id.size() + fields[index].name.size() + value->text.size() + 2 > longest_id) {
      fail_at(value->source, value->place,
              fmt::format("the name of this case would exceed {} characters; shorten `name` or the "
                          "list",
                          longest_id));
    }
    draft.id += fmt::format(":{}={}", fields[index].name, value->text);
  }
}

std::uint64_t number_or(const Draft& draft, field::Index index, std::uint64_t otherwise) {
  const Value* value = draft.values[index];
  return value == nullptr ? otherwise : value->number;
}

// Where the blame goes for a relation between fields: to what the command line changed, if it did.
const Value& culprit(const Draft& draft, field::Index usual, field::Index other) {
  const Value* first = draft.values[usual];
  const Value* second = draft.values[other];
  const bool other_is_set = second != nullptr && second->source != draft.file->source;
  return other_is_set && first->source == draft.file->source ? *second : *first;
}

[[noreturn]] void fail_value(const Value& value, const std::string& message) {
  fail_at(value.source, value.place, message);
}

std::vector<std::int32_t> offsets_of(const Draft& draft) {
  const Value* listed = draft.values[field::sequences];
  const std::uint64_t batch = listed ? listed->lengths.size() : number_or(draft, field::batch, 1);
  std::vector<std::int32_t> offsets = {0};
  offsets.reserve(batch + 1);
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < batch; ++i) {
    sum += listed ? static_cast<std::uint64_t>(listed->lengths[i])
                  : draft.values[field::tokens]->number;
    if (sum > most_tokens) break;
    offsets.push_back(static_cast<std::int32_t>(sum));
  }
  const Value& value = listed ? *listed : culprit(draft, field::tokens, field::batch);
  if (sum > most_tokens) {
    fail_value(value, fmt::format("more than {} tokens in all; give fewer or shorter sequences",
                                  most_tokens));
  }
  if (sum == 0) fail_value(value, "no token at all; give one sequence a length of at least 1");
  return offsets;
}

Case to_case(const Draft& draft, std::size_t memory_bytes) {
  Case c;
  c.name = draft.id;
  c.problem.query_heads = static_cast<int>(draft.values[field::query_heads]->number);
  c.problem.value_heads = static_cast<int>(draft.values[field::value_heads]->number);
  c.problem.initial_state = draft.values[field::initial_state]->number != 0;
  c.recipe.gates = static_cast<Gates>(draft.values[field::gates]->number);
  c.recipe.beta_max = static_cast<int>(number_or(draft, field::beta_max, 1));
  c.recipe.seed = number_or(draft, field::seed, 1);
  if (c.problem.value_heads % c.problem.query_heads != 0) {
    fail_value(culprit(draft, field::value_heads, field::query_heads),
               fmt::format("`value_heads` is {}, no multiple of `query_heads`, which is {}; every "
                           "query head serves as many value heads",
                           c.problem.value_heads, c.problem.query_heads));
  }
  c.problem.offsets = offsets_of(draft);
  if (const std::string why = too_large(c.problem, memory_bytes); !why.empty()) {
    const Value* listed = draft.values[field::sequences];
    fail_value(listed ? *listed : culprit(draft, field::tokens, field::batch),
               fmt::format("{} {}; give fewer tokens or heads", draft.id, why));
  }
  return c;
}

}  // namespace

std::vector<Draft> expand(const CaseFile& file) {
  Draft first;
  first.file = &file;
  for (int i = 0; i < field::count; ++i) {
    if (!file.values[i].empty()) first.values[i] = &file.values[i][0];
  }
  std::vector<Draft> drafts = {first};
  for (const field::Index axis : file.axes) {
    std::vector<Draft> product;
    for (const Draft& draft : drafts) {
      for (const Value& value : file.values[axis]) {
        product.push_back(draft);
        product.back().values[axis] = &value;
      }
    }
    drafts = std::move(product);
  }
  for (Draft& draft : drafts) name_draft(draft, file.axes);
  return drafts;
}

Draft with_settings(const Draft& draft, const std::vector<Setting>& settings) {
  Draft changed = draft;
  std::vector<field::Index> shown = draft.file->axes;
  for (const Setting& setting : settings) {
    if (setting.field == field::sequences) {  // one way to give the lengths replaces the other
      changed.values[field::batch] = changed.values[field::tokens] = nullptr;
    }
    if (setting.field == field::tokens) changed.values[field::sequences] = nullptr;
    changed.values[setting.field] = &setting.value;
    if (std::ranges::find(shown, setting.field) == shown.end()) shown.push_back(setting.field);
  }
  if (changed.values[field::sequences] != nullptr && changed.values[field::batch] != nullptr) {
    fail_value(*changed.values[field::batch],
               fmt::format("{} lists its sequences, which have no `batch`; set sequences=... or "
                           "tokens=... as well",
                           draft.id));
  }
  name_draft(changed, shown);
  return changed;
}

std::vector<Case> to_cases(const std::vector<Draft>& drafts, std::size_t memory_bytes) {
  std::vector<Case> cases;
  std::map<std::string, std::pair<std::size_t, const CaseFile*>> known;  // by id: which, and whence
  std::uint64_t offsets = 0;
  for (const Draft& draft : drafts) {
    const Value* listed = draft.values[field::sequences];
    offsets += listed ? listed->lengths.size() : number_or(draft, field::batch, 1);
    if (offsets > most_offsets) {
      fail_value(listed ? *listed : *draft.values[field::tokens],
                 fmt::format("more than {} sequences in all cases together; select fewer cases",
                             most_offsets));
    }
    Case c = to_case(draft, memory_bytes);
    const auto [entry, is_new] = known.try_emplace(c.name, cases.size(), draft.file);
    const auto& [index, file] = entry->second;
    if (is_new) {
      cases.push_back(std::move(c));
    } else if (cases[index] != c) {
      fail_at(draft.file->source, draft.file->name_place,
              fmt::format("case {} is another one than that of {}; rename one of the two", c.name,
                          file->source));
    }
  }
  return cases;
}

std::vector<Case> parse_cases(std::string_view yaml, const std::string& source,
                              const std::vector<Override>& overrides, std::size_t memory_bytes) {
  const CaseFile file = read_case_file(yaml, source);
  const std::vector<Setting> settings = read_overrides(overrides);
  std::vector<Draft> drafts = expand(file);
  for (Draft& draft : drafts) draft = with_settings(draft, settings);
  return to_cases(drafts, memory_bytes);
}

std::string to_yaml(const Case& c) {
  std::vector<std::int32_t> lengths;
  lengths.reserve(c.problem.offsets.size());
  for (int i = 0; i < c.problem.sequences(); ++i) lengths.push_back(c.problem.length(i));
  const bool dense =
      !lengths.empty() && std::ranges::count(lengths, lengths[0]) == std::ssize(lengths);
  // Quotes, because a bare name may be a word of YAML (null) or end in a colon.
  std::string yaml = fmt::format("name: \"{}\"\n", c.name);
  yaml += dense ? fmt::format("batch: {}\ntokens: {}\n", lengths.size(), lengths[0])
                : fmt::format("sequences: [{}]\n", join_lengths(lengths, ", "));
  yaml += fmt::format("query_heads: {}\nvalue_heads: {}\n", c.problem.query_heads,
                      c.problem.value_heads);
  yaml += fmt::format("initial_state: {}\n", c.problem.initial_state);
  yaml += fmt::format("gates: {}\nbeta_max: {}\nseed: {}\n", name_of(c.recipe.gates),
                      c.recipe.beta_max, c.recipe.seed);
  return yaml;
}

double footprint_bytes(const Problem& problem) {
  constexpr double dim = head_dim;
  const double tokens = static_cast<double>(problem.tokens());
  const double query_token = 2 * 2 * dim;            // q, k
  const double value_token = 2 * 2 * dim + 3 * 4     // v, output; raw_g, g, beta
                             + 2 * 2 * chunk_tokens  // A, and what rounding took from it
                             + 8 * dim;              // the fp64 reference
  const double state = dim * dim * (4 + 8 + (problem.initial_state ? 4 : 0));
  return tokens * (query_token * problem.query_heads + value_token * problem.value_heads) +
         state * problem.sequences() * problem.value_heads;
}

std::string too_large(const Problem& problem, std::size_t memory_bytes) {
  const double needed = footprint_bytes(problem);
  const auto memory = static_cast<double>(memory_bytes);
  if (needed <= memory) return "";
  return fmt::format("needs {:.2f} GiB for inputs, outputs and reference, and there are {:.2f} GiB",
                     needed / gibibyte, memory / gibibyte);
}

}  // namespace gdn
