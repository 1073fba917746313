// JSON Schema, as much of it as docs/*-schema.json use. A keyword that is not known here is
// an error, so that no part of the schema goes unchecked.
#pragma once

#include <regex.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace gdn {

class JsonSchema {
 public:
  explicit JsonSchema(nlohmann::json root) : root_(std::move(root)) {}

  // Empty when the value conforms; else "/results/3/time_s: required: median", ….
  std::vector<std::string> faults(const nlohmann::json& value) const { return of(value, root_); }

  // Of a value that is to conform to a part of the schema: "row".
  std::vector<std::string> faults(const nlohmann::json& value,
                                  const std::string& definition) const {
    return of(value, root_.at("$defs").at(definition));
  }

 private:
  using Json = nlohmann::json;

  std::vector<std::string> of(const Json& value, const Json& schema) const {
    std::vector<std::string> faults;
    check(value, schema, "", faults);
    return faults;
  }

  static bool has_type(const Json& value, const std::string& type) {
    if (type == "object") return value.is_object();
    if (type == "array") return value.is_array();
    if (type == "string") return value.is_string();
    if (type == "number") return value.is_number();
    if (type == "integer") return value.is_number_integer();
    if (type == "boolean") return value.is_boolean();
    if (type == "null") return value.is_null();
    throw std::logic_error("schema: unknown type " + type);
  }

  // POSIX, as GCC 12's std::regex does not compile with sanitizers and warnings as errors.
  static bool matches(const std::string& text, const std::string& pattern) {
    regex_t regex;
    if (regcomp(&regex, pattern.c_str(), REG_EXTENDED | REG_NOSUB) != 0) {
      throw std::logic_error("schema: bad pattern " + pattern);
    }
    const bool found = regexec(&regex, text.c_str(), 0, nullptr, 0) == 0;
    regfree(&regex);
    return found;
  }

  void check(const Json& value, const Json& schema, const std::string& path,
             std::vector<std::string>& faults) const {
    static const std::set<std::string> annotations = {"$schema", "$id", "title", "description",
                                                      "$defs"};
    for (const auto& [keyword, rule] : schema.items()) {
      if (annotations.contains(keyword)) continue;
      if (!conforms(keyword, rule, value, schema, path, faults)) {
        faults.push_back(path + ": " + keyword + ": " + rule.dump());
      }
    }
  }

  bool conforms(const std::string& keyword, const Json& rule, const Json& value, const Json& schema,
                const std::string& path, std::vector<std::string>& faults) const {
    if (keyword == "$ref") {
      check(value, root_.at(Json::json_pointer(rule.get<std::string>().substr(1))), path, faults);
      return true;
    }
    if (keyword == "type") {
      const Json types = rule.is_array() ? rule : Json::array({rule});
      return std::any_of(types.begin(), types.end(),
                         [&](const Json& type) { return has_type(value, type); });
    }
    if (keyword == "const") return value == rule;
    if (keyword == "enum") return std::find(rule.begin(), rule.end(), value) != rule.end();
    if (keyword == "minimum") return !value.is_number() || value.get<double>() >= rule;
    if (keyword == "exclusiveMinimum") return !value.is_number() || value.get<double>() > rule;
    if (keyword == "minLength")
      return !value.is_string() || value.get<std::string>().size() >= rule;
    if (keyword == "minItems") return !value.is_array() || value.size() >= rule;
    if (keyword == "maxItems") return !value.is_array() || value.size() <= rule;
    if (keyword == "pattern") return !value.is_string() || matches(value, rule);
    if (keyword == "required") {
      return !value.is_object() || std::all_of(rule.begin(), rule.end(), [&](const Json& name) {
        return value.contains(name.get<std::string>());
      });
    }
    if (keyword == "properties") {
      for (const auto& [name, property] : rule.items()) {
        if (value.is_object() && value.contains(name)) {
          check(value.at(name), property, path + "/" + name, faults);
        }
      }
      return true;
    }
    if (keyword == "additionalProperties") {
      if (!value.is_object()) return true;
      bool fine = true;
      for (const auto& [name, member] : value.items()) {
        if (schema.contains("properties") && schema.at("properties").contains(name)) continue;
        if (rule.is_object()) {
          check(member, rule, path + "/" + name, faults);
        } else {
          fine = fine && rule.get<bool>();
        }
      }
      return fine;
    }
    if (keyword == "items") {
      for (std::size_t i = 0; value.is_array() && i < value.size(); ++i) {
        check(value[i], rule, path + "/" + std::to_string(i), faults);
      }
      return true;
    }
    throw std::logic_error("schema: unknown keyword " + keyword);
  }

  nlohmann::json root_;
};

}  // namespace gdn
