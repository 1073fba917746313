#include "src/thresholds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "src/suggest.hpp"
#include "src/yaml_tree.hpp"

namespace gdn {
namespace {

constexpr double largest_percent = 1000;

// Digits with at most one point, as people write per cent: no sign, exponent, 0x or leading zero.
double percent_from(const YamlNode& node, const std::string& source) {
  const std::string& text = node.text;
  double percent = 0;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), percent, std::chars_format::fixed);
  const bool digits = !text.empty() && text.find_first_not_of("0123456789.") == std::string::npos &&
                      text.front() != '.' && text.back() != '.';
  const bool leading_zero = text.size() > 1 && text[0] == '0' && text[1] != '.';
  if (node.kind != YamlNode::Kind::plain || !digits || leading_zero || error != std::errc() ||
      end != text.data() + text.size() || percent > largest_percent) {
    fail_at(
        source, node.kind == YamlNode::Kind::null ? node.key_place : node.place,
        fmt::format("a threshold is a number from 0 to {:g}, in per cent{}; write it like 2 or 2.5",
                    largest_percent, text.empty() ? "" : ", not " + excerpt(text)));
  }
  return percent;
}

}  // namespace

Thresholds Thresholds::read(const std::string& path, double percent) {
  const YamlNode root = parse_yaml(read_yaml_file(path), path);
  if (root.kind != YamlNode::Kind::map) {
    fail_at(path, root.place,
            "thresholds are `default: 2` and `cases: {\"glob\": 5}`; write those");
  }
  const std::vector<std::string> known = {"default", "cases"};
  Thresholds thresholds(percent);
  for (const YamlNode& field : root.items) {
    if (field.key == "default") {
      thresholds.default_percent_ = percent_from(field, path);
    } else if (field.key == "cases") {
      if (field.kind != YamlNode::Kind::map) {
        fail_at(path, field.place, "`cases` holds `glob: percent` lines; write at least one");
      }
      for (const YamlNode& entry : field.items) {
        const Place at = entry.key_place;
        thresholds.entries_.push_back({entry.key, percent_from(entry, path),
                                       fmt::format("{}:{}:{}", path, at.line, at.column)});
      }
    } else {
      fail_at(path, field.key_place,
              fmt::format("unknown key {}{}; the keys are default and cases", excerpt(field.key),
                          did_you_mean(field.key, known)));
    }
  }
  return thresholds;
}

double Thresholds::percent_for(std::string_view case_name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return matches_glob(entry.glob, case_name);
  });
  return found == entries_.end() ? default_percent_ : found->percent;
}

std::vector<std::string> Thresholds::unused(const std::vector<std::string>& case_names) const {
  std::vector<std::string> warnings;
  for (const Entry& entry : entries_) {
    const bool used = std::any_of(case_names.begin(), case_names.end(),
                                  [&](const auto& name) { return matches_glob(entry.glob, name); });
    if (used) continue;
    warnings.push_back(fmt::format("{}: {} matches no case compared{}", entry.place,
                                   excerpt(entry.glob), did_you_mean(entry.glob, case_names)));
  }
  return warnings;
}

}  // namespace gdn
