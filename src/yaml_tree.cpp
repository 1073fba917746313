#include "src/yaml_tree.hpp"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <utility>

#include "src/error.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

constexpr std::size_t largest_text_bytes = std::size_t{1} << 20;
constexpr std::size_t deepest_nesting = 8;  // a case file needs four

Place place_of(const YAML::Mark& mark) {  // yaml-cpp counts from 0, and from -1 where it lost track
  return {std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1};
}

// Length of the UTF-8 sequence at the head of `text`; 0 where there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  if (byte(0) < 0x80) return 1;
  const std::size_t length = byte(0) >= 0xF0 ? 4 : byte(0) >= 0xE0 ? 3 : 2;
  if (byte(0) < 0xC2 || byte(0) > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool overlong = (byte(0) == 0xE0 && byte(1) < 0xA0) || (byte(0) == 0xF0 && byte(1) < 0x90);
  const bool surrogate = byte(0) == 0xED && byte(1) >= 0xA0;
  const bool beyond = byte(0) == 0xF4 && byte(1) >= 0x90;
  return overlong || surrogate || beyond ? 0 : length;
}

// What yaml-cpp would let pass or misread, found before it sees the text.
void check_characters(std::string_view text, const std::string& source) {
  Place place;
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::size_t length = utf8_length(text.substr(i, 4));
    const auto fail = [&](const std::string& message) { fail_at(source, place, message); };
    if (length == 0) fail("a byte that is not UTF-8; save the file as UTF-8");
    if (c == '\t') fail("a tab; use spaces");
    if (c == '%' && place.column == 1) fail("a YAML directive; remove the line");
    const bool line_end = c == '\n' || (c == '\r' && text.substr(i, 2) == "\r\n");
    if (!line_end && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)) {
      fail(fmt::format("a control character (0x{:02x}); remove it",
                       static_cast<unsigned>(static_cast<unsigned char>(c))));
    }
    place = c == '\n' ? Place{place.line + 1, 1} : Place{place.line, place.column + int(length)};
    i += length;
  }
}

// Whether the quoted scalar at the head of `text` ends before the text does: yaml-cpp does not ask.
bool is_closed(std::string_view text) {
  const char quote = text[0];
  if (quote != '"' && quote != '\'') return true;  // a block: it ends by its indentation
  const char escape = quote == '"' ? '\\' : '\'';  // '' stands for one quote in single ones
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == escape && (quote == '"' || text.substr(i, 2) == "''")) {
      ++i;
    } else if (text[i] == quote) {
      return true;
    }
  }
  return false;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  YamlNode take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) fail(mark, "a second YAML document; keep one in a file");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_properties(mark, "", anchor);
    add(node(YamlNode::Kind::null, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(mark, "an alias (*name); write the value itself");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // "!" stands for quotes, and for a tag of that very spelling: the text itself tells which.
    const std::size_t at = static_cast<std::size_t>(std::max(mark.pos, 0));
    const bool in_quotes = tag == "!" && at < text_.size() &&
                           std::string_view("\"'|>").find(text_[at]) != std::string_view::npos;
    refuse_properties(mark, in_quotes ? "" : tag, anchor);
    if (in_quotes && !is_closed(text_.substr(at))) fail(mark, "a quote without its end; close it");
    YamlNode scalar = node(in_quotes ? YamlNode::Kind::quoted : YamlNode::Kind::plain, mark);
    scalar.text = value;
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlNode node;
    std::map<std::string, Place> keys;  // of a map, so far
    bool awaits_value = false;          // of a map: its last key has none yet
    std::string key;
    Place key_place;
  };

  [[noreturn]] void fail(const YAML::Mark& mark, const std::string& message) const {
    fail_at(source_, place_of(mark), message);
  }

  static YamlNode node(YamlNode::Kind kind, const YAML::Mark& mark) {
    YamlNode node;
    node.kind = kind;
    node.place = place_of(mark);
    return node;
  }

  void refuse_properties(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) fail(mark, "an anchor (&name); write the value where it is used");
    if (!tag.empty() && tag != "?") fail(mark, "a tag (!type); write the value alone");
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    refuse_properties(mark, tag, anchor);
    if (stack_.size() >= deepest_nesting) fail(mark, "nested too deeply; remove brackets");
    if (!stack_.empty() && awaits_key(stack_.back())) {
      fail(mark, "a list or map as a key; write `field: value`");
    }
    stack_.push_back({node(kind, mark), {}, false, {}, {}});
  }

  void close() {
    YamlNode done = std::move(stack_.back().node);
    stack_.pop_back();
    add(std::move(done));
  }

  static bool awaits_key(const Open& parent) {
    return parent.node.kind == YamlNode::Kind::map && !parent.awaits_value;
  }

  void add(YamlNode child) {
    if (stack_.empty()) {
      root_ = std::move(child);
      return;
    }
    Open& parent = stack_.back();
    if (awaits_key(parent)) {
      begin_entry(parent, std::move(child));
      return;
    }
    if (parent.node.kind == YamlNode::Kind::map) {
      child.key = std::move(parent.key);
      child.key_place = parent.key_place;
      parent.awaits_value = false;
    }
    parent.node.items.push_back(std::move(child));
  }

  void begin_entry(Open& parent, YamlNode key) {
    if (key.kind == YamlNode::Kind::null) {
      fail_at(source_, key.place, "a value without a key; write `field: value`");
    }
    if (key.text == "<<") {
      fail_at(source_, key.place, "a merge key (<<); write the fields themselves");
    }
    const auto [first, is_new] = parent.keys.emplace(key.text, key.place);
    if (!is_new) {
      fail_at(source_, key.place,
              fmt::format("duplicate key {}; it is given in line {} already, keep one of the two",
                          excerpt(key.text), first->second.line));
    }
    parent.key = std::move(key.text);
    parent.key_place = key.place;
    parent.awaits_value = true;
  }

  std::string_view text_;
  const std::string& source_;
  std::vector<Open> stack_;
  YamlNode root_;
  int documents_ = 0;
};

}  // namespace

void fail_at(const std::string& source, Place place, const std::string& message) {
  throw UserError(fmt::format("{}:{}:{}: {}", source, place.line, place.column, message));
}

YamlNode parse_yaml(std::string_view text, const std::string& source) {
  if (text.size() > largest_text_bytes) {
    fail_at(source, {}, "larger than 1 MiB; is this the right file?");
  }
  if (text.substr(0, 3) == "\xEF\xBB\xBF") text.remove_prefix(3);  // some editors' byte order mark
  check_characters(text, source);
  TreeBuilder builder(text, source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& e) {
    fail_at(source, place_of(e.mark),
            fmt::format("not valid YAML: {}; mend it here or just above", e.msg));
  }
  YamlNode root = builder.take_root();
  if (root.kind == YamlNode::Kind::null) {
    fail_at(source, {}, "nothing but space and comments; write `field: value` lines");
  }
  return root;
}

std::string read_yaml_file(const std::string& path) {
  const auto fail = [&](const std::string& message) { throw UserError(path + ": " + message); };
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) {
    fail("no such file; check the path");
  }
  if (status.type() == std::filesystem::file_type::directory) {
    fail("a folder; give a YAML file");
  }
  if (status.type() != std::filesystem::file_type::regular) {
    fail(error ? error.message() + "; check the path and its permissions"
               : "not a regular file; give a YAML file");
  }
  std::string text(largest_text_bytes + 1, '\0');
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) {
    fail(fmt::format("cannot be read ({}); check its permissions", std::strerror(errno)));
  }
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace gdn
