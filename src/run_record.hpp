// What a run was asked for, as its journal and its results keep it: --resume needs nothing else.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/options.hpp"

namespace gdn {

// What a record says that was asked for. Throws UserError that names the record's file and the
// field.
class Asked {
 public:
  Asked(std::string file, const nlohmann::json& record) : file_(std::move(file)), record_(record) {}

  bool has(const std::string& name) const {
    return record_.is_object() && record_.contains(name) && !record_.at(name).is_null();
  }
  template <class T>
  void take(const std::string& name, T& to) const {
    try {
      record_.at(name).get_to(to);
    } catch (const nlohmann::json::exception&) {
      refuse(name);
    }
  }
  template <class T>
  void take_if_there(const std::string& name, T& to) const {
    if (has(name)) take(name, to);
  }
  template <class T>
  T get(const std::string& name) const {
    T value;
    take(name, value);
    return value;
  }
  Asked within(const std::string& name) const {  // of a name that it has
    Asked inner(file_, record_.at(name));
    inner.place_ = place_ + name + ".";
    return inner;
  }

 private:
  [[noreturn]] void refuse(const std::string& name) const;

  std::string file_, place_ = "options.";
  const nlohmann::json& record_;
};

// The options that decide which rows there are and how they are measured, and what they meant: each
// case in full, or the hash of the inputs' bytes. Paths are absolute.
nlohmann::json record_of(const RunOptions& options, const std::vector<Case>& cases);

// Absolute, as a record keeps it; "" stays "". Throws UserError for a path that no record can name.
std::string recorded_path(const std::string& path);

// `given` with all that the record decides. Throws UserError for a record that is none.
RunOptions recalled(const RunOptions& given, const nlohmann::json& record);

}  // namespace gdn
