// A value of a JSON file that knows where it stands there: every refusal names the place.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace gdn {

using Json = nlohmann::json;

// On one line. Bytes that are not UTF-8 (a driver's message, a file's name) are replaced, never
// thrown at.
std::string dump(const Json& value);

// The getters throw UserError "results[3].time_s.median: a number is missing".
class Field {
 public:
  explicit Field(const Json& value, std::string path = "")
      : value_(&value), path_(std::move(path)) {}

  Field operator[](const std::string& key) const;  // of what is given
  bool given() const { return value_ != nullptr && !value_->is_null(); }
  const Json& raw() const { return *value_; }  // of what is given

  const Field& object() const;  // itself
  const std::string& text() const;
  const std::string& name() const;  // a text that is not empty
  bool truth() const;
  double number() const;
  double quantity() const;  // a time, a count, a size: nothing here is negative
  double quantity_or_nan() const;
  std::vector<double> quantities() const;
  std::vector<std::string> names() const;
  std::vector<Field> items() const;

  template <class Count>
  Count count() const {
    return static_cast<Count>(whole_number(std::uint64_t{std::numeric_limits<Count>::max()}));
  }

  template <class Enum, std::size_t n>
  Enum one_of(const std::array<Enum, n>& values) const {
    std::string names;
    for (const Enum value : values) {
      if (text() == name_of(value)) return value;
      names += names.empty() ? "" : ", ";
      names += name_of(value);
    }
    refuse(fmt::format("{} is none of {}", dump(*value_), names));
  }

  [[noreturn]] void refuse(const std::string& what) const;

 private:
  explicit Field(std::string path) : path_(std::move(path)) {}

  bool is(bool (Json::*type)() const noexcept) const;
  const Field& need(bool fits, const char* wanted) const;
  std::uint64_t whole_number(std::uint64_t largest) const;

  const Json* value_ = nullptr;  // null where the file has no such field
  std::string path_;
};

}  // namespace gdn
