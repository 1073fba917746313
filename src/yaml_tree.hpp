// The part of YAML that our files use, read into a plain tree in which every node knows its place.
//
// yaml-cpp keeps both of two equal keys, resolves aliases and types by rules of its own, and its
// nodes forget how they were written; so we listen to its parser's events and refuse what a short
// hand-written file has no use for: tabs, anchors, aliases, tags, directives, several documents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gdn {

struct Place {
  int line = 1;  // both count from 1
  int column = 1;
};

struct YamlNode {
  enum class Kind { null, plain, quoted, list, map };
  Kind kind = Kind::null;
  std::string text;             // of a plain or quoted scalar, exactly as written
  std::vector<YamlNode> items;  // of a list, or the values of a map in the order of the file
  std::string key;              // of a value in a map
  Place place;
  Place key_place;
};

// Throws UserError "source:line:column: what; remedy", also for an empty text and one that is
// larger than 1 MiB.
YamlNode parse_yaml(std::string_view text, const std::string& source);

// The file's bytes, at most one more than parse_yaml takes. Throws UserError "path: what; remedy".
std::string read_yaml_file(const std::string& path);

// Throws UserError "source:line:column: message".
[[noreturn]] void fail_at(const std::string& source, Place place, const std::string& message);

}  // namespace gdn
