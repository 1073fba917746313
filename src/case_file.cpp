#include "src/case_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "src/suggest.hpp"

namespace gdn {
namespace {

constexpr std::size_t most_cases = 10000;  // of one file

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_id_character(char c) {
  return is_letter(c) || (c >= '0' && c <= '9') ||
         std::string_view("_.+-:=").find(c) != std::string_view::npos;
}

void read_name(const YamlNode& node, CaseFile& file) {
  constexpr std::string_view form =
      "write a name of letters, digits and _ . + - : = that begins with a letter";
  if (node.kind == YamlNode::Kind::null) {
    fail_at(file.source, node.key_place, fmt::format("`name` has no value; {}", form));
  }
  const bool scalar = node.kind == YamlNode::Kind::plain || node.kind == YamlNode::Kind::quoted;
  const bool letter_first = !node.text.empty() && is_letter(node.text[0]);
  if (!scalar || !letter_first || !std::ranges::all_of(node.text, is_id_character)) {
    const std::string what = scalar ? excerpt(node.text) : "a list or map";
    fail_at(file.source, node.place, fmt::format("`name` is {}; {}", what, form));
  }
  if (node.text.size() > longest_id) {
    fail_at(file.source, node.place,
            fmt::format("`name` has {} characters; give at most {}", node.text.size(), longest_id));
  }
  file.name = node.text;
  file.name_place = node.place;
}

void read_axis(const YamlNode& node, CaseFile& file) {
  const auto index = index_of(node.key);
  if (!index) {
    fail_at(
        file.source, node.key_place,
        fmt::format("unknown axis {}{}", excerpt(node.key), choices(node.key, names_of_fields())));
  }
  if (!file.values[*index].empty()) {
    fail_at(file.source, node.key_place,
            fmt::format("`{}` is a field and an axis; keep one of the two", node.key));
  }
  if (node.kind != YamlNode::Kind::list || node.items.empty()) {
    fail_at(file.source, node.kind == YamlNode::Kind::null ? node.key_place : node.place,
            fmt::format("axis `{}` is not a list of values; write [{}]", node.key,
                        fields[*index].example));
  }
  if (node.items.size() > most_cases) {
    fail_at(file.source, node.place,
            fmt::format("axis `{}` has {} values; give at most {}", node.key, node.items.size(),
                        most_cases));
  }
  std::set<std::string> seen;
  for (const YamlNode& item : node.items) {
    Value value = read_value(*index, item, file.source);
    if (!seen.insert(value.text).second) {
      fail_at(file.source, item.place,
              fmt::format("axis `{}` has the value {} twice; remove one", node.key,
                          excerpt(value.text)));
    }
    file.values[*index].push_back(std::move(value));
  }
  file.axes.push_back(*index);
}

// `axes` comes last, whatever its place in the file, so that it sees every field.
void read_axes(const YamlNode& node, CaseFile& file) {
  if (node.kind != YamlNode::Kind::map || node.items.empty()) {
    fail_at(file.source, node.kind == YamlNode::Kind::null ? node.key_place : node.place,
            "`axes` is not a map of lists; write for example {tokens: [2048, 4096]}");
  }
  std::size_t cases = 1;
  for (const YamlNode& axis : node.items) {
    read_axis(axis, file);
    cases *= file.values[file.axes.back()].size();
    if (cases > most_cases) {
      fail_at(file.source, axis.key_place,
              fmt::format("`axes` expand into more than {} cases; give fewer values", most_cases));
    }
  }
}

void require_complete(const CaseFile& file, Place start) {
  const auto missing = [&](std::string_view name, std::string_view example) {
    fail_at(file.source, start,
            fmt::format("field `{}` is missing; add for example `{}: {}`", name, name, example));
  };
  if (file.name.empty()) missing("name", "my_case");
  for (const field::Index index :
       {field::query_heads, field::value_heads, field::initial_state, field::gates}) {
    if (file.values[index].empty()) missing(fields[index].name, fields[index].example);
  }
  if (file.values[field::sequences].empty()) {
    if (file.values[field::tokens].empty()) missing("tokens", "4096");
    return;
  }
  for (const field::Index dense : {field::batch, field::tokens}) {
    if (file.values[dense].empty()) continue;
    fail_at(file.source, file.values[dense][0].place,
            fmt::format("`{}` beside `sequences`, which gives every length already; keep one",
                        fields[dense].name));
  }
}

// An override's value as the file would have it; `sequences` is written as ids show it.
YamlNode node_of(const Override& override, field::Index index) {
  const auto scalar = [](std::string_view text, std::size_t column) {
    YamlNode node;
    node.kind = text.empty() ? YamlNode::Kind::null : YamlNode::Kind::plain;
    node.text = text;
    node.place = {1, static_cast<int>(column)};
    return node;
  };
  // Behind the "=" of --set.
  const std::size_t column = override.source.empty() ? override.field.size() + 2 : 1;
  if (index != field::sequences || override.value.empty()) return scalar(override.value, column);
  YamlNode list = scalar("", column);
  list.kind = YamlNode::Kind::list;
  std::string_view rest = override.value;
  for (std::size_t at = 0, plus = 0; plus != std::string_view::npos; at = plus + 1) {
    plus = rest.find('+', at);
    list.items.push_back(scalar(rest.substr(at, plus - at), column + at));
  }
  return list;
}

}  // namespace

CaseFile read_case_file(std::string_view yaml, const std::string& source) {
  const YamlNode root = parse_yaml(yaml, source);
  if (root.kind != YamlNode::Kind::map) {
    fail_at(source, root.place, "not a map of fields; write `field: value` lines, with a space");
  }
  CaseFile file;
  file.source = source;
  const YamlNode* axes = nullptr;
  for (const YamlNode& node : root.items) {
    if (node.key == "name") {
      read_name(node, file);
    } else if (node.key == "axes") {
      axes = &node;
    } else if (const auto index = index_of(node.key)) {
      file.values[*index].push_back(read_value(*index, node, source));
    } else {
      std::vector<std::string> known = names_of_fields();
      known.insert(known.begin(), {"name", "axes"});
      fail_at(source, node.key_place,
              fmt::format("unknown field {}{}", excerpt(node.key), choices(node.key, known)));
    }
  }
  if (axes != nullptr) read_axes(*axes, file);
  require_complete(file, root.place);
  return file;
}

std::vector<Setting> read_overrides(const std::vector<Override>& overrides) {
  std::vector<Setting> settings;
  for (const Override& override : overrides) {
    const std::string source = override.source.empty()
                                   ? fmt::format("--set {}={}", override.field, override.value)
                                   : override.source;
    const auto index = index_of(override.field);
    if (!index) {
      fail_at(source, {},
              fmt::format("unknown field {}{}", excerpt(override.field),
                          choices(override.field, names_of_fields())));
    }
    const bool again = std::ranges::find(settings, *index, &Setting::field) != settings.end();
    if (again) fail_at(source, {}, fmt::format("`{}` is set twice; keep one", override.field));
    const YamlNode node = node_of(override, *index);
    settings.push_back({*index, read_value(*index, node, source)});
  }
  const auto setting_of = [&](field::Index index) {
    return std::ranges::find(settings, index, &Setting::field);
  };
  if (setting_of(field::sequences) == settings.end()) return settings;
  for (const field::Index dense : {field::batch, field::tokens}) {
    if (setting_of(dense) == settings.end()) continue;
    const Value& value = setting_of(dense)->value;
    fail_at(value.source, value.place,
            fmt::format("`{}` set beside `sequences`, which gives every length already; keep one",
                        fields[dense].name));
  }
  return settings;
}

}  // namespace gdn
