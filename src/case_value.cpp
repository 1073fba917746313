#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>

#include "src/case_file.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

constexpr std::uint64_t most_sequences = 65536;

}  // namespace

const std::array<Field, field::count> fields = {{
    {"batch", Form::number, 1, most_sequences, "1"},
    {"tokens", Form::number, 1, 1u << 24, "4096"},
    {"sequences", Form::lengths, 0, 1u << 24, "[1024, 7168]"},
    {"query_heads", Form::number, 1, 1024, "4"},
    {"value_heads", Form::number, 1, 1024, "8"},
    {"initial_state", Form::flag, 0, 1, "false"},
    {"gates", Form::gate_profile, 0, 0, "random_decay"},
    {"beta_max", Form::number, 1, 2, "1"},
    {"seed", Form::number, 0, std::numeric_limits<std::uint64_t>::max(), "1"},
}};

namespace {

// Plain decimal digits, and nothing that another reader might take for something else: 010 is 8 in
// YAML 1.1, and +5, 0x10, 1_000 and 1e3 are numbers to some readers only.
std::optional<std::uint64_t> parse_number(std::string_view text) {
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return std::nullopt;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Reads the values of one field; knows where it is, for its messages.
class ValueReader {
 public:
  ValueReader(const Field& field, const std::string& source) : field_(field), source_(source) {}

  Value read(const YamlNode& node) const {
    Value value;
    value.source = source_;
    value.place = node.place;
    if (node.kind == YamlNode::Kind::null) {
      fail(node.key.empty() ? node.place : node.key_place,
           fmt::format("`{}` has no value; write {}", field_.name, field_.example));
    }
    if (field_.form == Form::lengths) {
      read_lengths(node, value);
      return value;
    }
    require_scalar(node);
    switch (field_.form) {
      case Form::number:
        value.number = number(node);
        break;
      case Form::flag:
        value.number = flag(node);
        break;
      case Form::gate_profile:
        value.number = gate_profile(node);
        break;
      case Form::lengths:
        break;
    }
    value.text = node.text;
    return value;
  }

 private:
  [[noreturn]] void fail(Place place, const std::string& message) const {
    fail_at(source_, place, message);
  }

  void require_scalar(const YamlNode& node) const {
    if (node.kind == YamlNode::Kind::list) {
      fail(node.place, fmt::format("`{}` is a list; give one value here, or the list under `axes`",
                                   field_.name));
    }
    if (node.kind == YamlNode::Kind::map) {
      fail(node.place,
           fmt::format("`{}` holds fields of its own; write {}", field_.name, field_.example));
    }
    if (node.kind == YamlNode::Kind::quoted && field_.form != Form::gate_profile) {
      fail(node.place, fmt::format("`{}` is quoted text; write {} without quotes", field_.name,
                                   field_.example));
    }
  }

  std::uint64_t number(const YamlNode& node) const {
    const std::uint64_t number = whole_number(node.text, node.place);
    require_range(number, node.place);
    return number;
  }

  std::uint64_t whole_number(std::string_view text, Place place) const {
    if (const auto number = parse_number(text)) return *number;
    const bool only_digits = text.find_first_not_of("0123456789") == std::string_view::npos;
    if (!text.empty() && only_digits && text[0] != '0') {
      fail(place, fmt::format("`{}` is {}, beyond 64 bits; give a smaller number", field_.name,
                              excerpt(text)));
    }
    fail(place, fmt::format("`{}` is {}, not a whole number; {}", field_.name, excerpt(text),
                            remedy(text)));
  }

  // What was probably meant by 010, +5 or 1_000.
  std::string remedy(std::string_view text) const {
    std::string digits;
    std::ranges::copy_if(text, std::back_inserter(digits), [](char c) { return c != '_'; });
    digits.erase(0, std::min(digits.find_first_not_of("+0"), digits.size()));
    return parse_number(digits)
               ? fmt::format("write {}", digits)
               : fmt::format("write plain decimal digits, such as {}",
                             field_.form == Form::lengths ? "4096" : field_.example);
  }

  void require_range(std::uint64_t number, Place place) const {
    if (number >= field_.low && number <= field_.high) return;
    const std::string_view what = field_.form == Form::lengths ? "a length of " : "";
    fail(place, fmt::format("{}`{}` is {}, out of range; give {} ... {}", what, field_.name, number,
                            field_.low, field_.high));
  }

  std::uint64_t flag(const YamlNode& node) const {
    if (node.text == "true") return 1;
    if (node.text == "false") return 0;
    fail(node.place, fmt::format("`{}` is {}, not a truth value; write true or false", field_.name,
                                 excerpt(node.text)));
  }

  std::uint64_t gate_profile(const YamlNode& node) const {
    const auto found = std::ranges::find(gates_names, node.text);
    if (found != gates_names.end()) return static_cast<std::uint64_t>(found - gates_names.begin());
    fail(node.place,
         fmt::format("`{}` is {}, which is no gate profile{}", field_.name, excerpt(node.text),
                     choices(node.text, {gates_names.begin(), gates_names.end()})));
  }

  void read_lengths(const YamlNode& node, Value& value) const {
    if (node.kind != YamlNode::Kind::list || node.items.empty()) {
      fail(node.place,
           fmt::format("`{}` is not a list of lengths; write {}", field_.name, field_.example));
    }
    for (const YamlNode& item : node.items) {
      if (item.kind != YamlNode::Kind::plain) {
        fail(item.place, fmt::format("`{}` holds something that is no plain number; write {}",
                                     field_.name, field_.example));
      }
      append_run(item, value.lengths);
    }
    value.text = join_lengths(value.lengths, "+");
  }

  // "4096", or "8192x4" for four of them.
  void append_run(const YamlNode& item, std::vector<std::int32_t>& lengths) const {
    const std::size_t times = item.text.find('x');
    const std::string_view length_text = std::string_view(item.text).substr(0, times);
    const std::uint64_t length = whole_number(length_text, item.place);
    require_range(length, item.place);
    std::uint64_t count = 1;
    if (times != std::string::npos) {
      if (length == 0) {  // or is it a hexadecimal number?
        fail(item.place, fmt::format("`{}` holds {}; write each empty sequence as 0", field_.name,
                                     excerpt(item.text)));
      }
      count = whole_number(std::string_view(item.text).substr(times + 1), item.place);
    }
    if (count == 0) {
      fail(item.place, fmt::format("`{}` holds {}, a run of none; leave it out", field_.name,
                                   excerpt(item.text)));
    }
    if (count > most_sequences - lengths.size()) {
      fail(item.place, fmt::format("`{}` lists more than {} sequences; give fewer", field_.name,
                                   most_sequences));
    }
    lengths.insert(lengths.end(), count, static_cast<std::int32_t>(length));
  }

  const Field& field_;
  const std::string& source_;
};

}  // namespace

std::vector<std::string> names_of_fields() {
  std::vector<std::string> names;
  for (const Field& field : fields) names.emplace_back(field.name);
  return names;
}

std::optional<field::Index> index_of(std::string_view name) {
  const auto found = std::ranges::find(fields, name, &Field::name);
  if (found == fields.end()) return std::nullopt;
  return static_cast<field::Index>(found - fields.begin());
}

std::string choices(std::string_view word, const std::vector<std::string>& known) {
  const std::string guess = did_you_mean(word, known);
  return guess.empty() ? fmt::format("; write one of {}", fmt::join(known, ", ")) : guess;
}

Value read_value(field::Index index, const YamlNode& node, const std::string& source) {
  return ValueReader(fields[index], source).read(node);
}

std::string join_lengths(std::span<const std::int32_t> lengths, std::string_view separator) {
  std::string text;
  for (std::size_t i = 0; i < lengths.size();) {
    std::size_t end = i + 1;
    while (lengths[i] != 0 && end < lengths.size() && lengths[end] == lengths[i]) ++end;
    if (!text.empty()) text += separator;
    text += std::to_string(lengths[i]);
    if (end - i > 1) text += fmt::format("x{}", end - i);
    i = end;
  }
  return text;
}

}  // namespace gdn
