// A case file between its text and its cases: fields, axes, and the drafts they expand into.
//
// A draft is one combination of the axes. It has its id before anything is checked against anything
// else, so that a selector and an override touch only the cases that they mean.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/case.hpp"
#include "src/yaml_tree.hpp"

namespace gdn {

namespace field {
enum Index : int {
  batch,
  tokens,
  sequences,
  query_heads,
  value_heads,
  initial_state,
  gates,
  beta_max,
  seed,
  count
};
}  // namespace field

enum class Form { number, flag, gate_profile, lengths };

// What there is to know of a field.
struct Field {
  std::string_view name;
  Form form;
  std::uint64_t low, high;  // of a number, or of each length
  std::string_view example;
};

extern const std::array<Field, field::count> fields;

// The longest name of a case: it is typed, and stands in every table.
inline constexpr std::size_t longest_id = 128;

// One value of one field, and where it was written.
struct Value {
  std::string text;                   // as ids show it: "2048", "true", "zero", "8192x4"
  std::uint64_t number = 0;           // count, flag, or index of the gate profile
  std::vector<std::int32_t> lengths;  // of `sequences`
  std::string source;
  Place place;
};

struct CaseFile {
  std::string source;
  std::string name;
  Place name_place;
  std::array<std::vector<Value>, field::count> values;  // none: not given; several: an axis
  std::vector<field::Index> axes;                       // in the order of the file
};

struct Setting {  // an override, read
  field::Index field;
  Value value;
};

struct Draft {
  const CaseFile* file = nullptr;
  std::string id;
  std::array<const Value*, field::count> values{};  // null: not given
};

std::optional<field::Index> index_of(std::string_view name);
std::vector<std::string> names_of_fields();

// `; did you mean "tokens"?` where a known word comes close, else what there is to choose from.
std::string choices(std::string_view word, const std::vector<std::string>& known);

Value read_value(field::Index index, const YamlNode& node, const std::string& source);

// "28672+4096", and "8192x4" for a run of equal lengths. Runs of 0 are spelled out: 0x4 is a number
// to many readers.
std::string join_lengths(std::span<const std::int32_t> lengths, std::string_view separator);

CaseFile read_case_file(std::string_view yaml, const std::string& source);
std::vector<Setting> read_overrides(const std::vector<Override>& overrides);

// The file's cases without and with the settings, in the order of the file. The drafts point into
// `file` and `settings`.
std::vector<Draft> expand(const CaseFile& file);
Draft with_settings(const Draft& draft, const std::vector<Setting>& settings);

// Checks the drafts and turns them into cases; of equal ones the first stays.
std::vector<Case> to_cases(const std::vector<Draft>& drafts, std::size_t memory_bytes);

}  // namespace gdn
