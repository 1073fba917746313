#include "src/report/json_field.hpp"

#include "src/error.hpp"

namespace gdn {

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Field Field::operator[](const std::string& key) const {
  const std::string path = path_.empty() ? key : path_ + "." + key;
  const auto found = value_->find(key);
  return found == value_->end() ? Field(path) : Field(*found, path);
}

const Field& Field::object() const { return need(is(&Json::is_object), "an object"); }

const std::string& Field::text() const {
  need(is(&Json::is_string), "a string");
  return value_->get_ref<const std::string&>();
}

const std::string& Field::name() const {
  if (text().empty()) refuse("a name is expected, not an empty string");
  return text();
}

bool Field::truth() const {
  need(is(&Json::is_boolean), "true or false");
  return value_->get<bool>();
}

double Field::number() const {
  need(is(&Json::is_number), "a number");
  return value_->get<double>();
}

double Field::quantity() const {
  const double value = number();
  if (!(value >= 0)) refuse(fmt::format("a number of at least 0 is expected, not {}", value));
  return value;
}

double Field::quantity_or_nan() const {
  return given() ? quantity() : std::numeric_limits<double>::quiet_NaN();
}

std::vector<double> Field::quantities() const {
  need(is(&Json::is_array), "a list of numbers");
  std::vector<double> numbers;
  numbers.reserve(value_->size());
  for (const Json& item : *value_) {
    const bool fine = item.is_number() && item.get<double>() >= 0;
    if (!fine) Field(item, fmt::format("{}[{}]", path_, numbers.size())).quantity();
    numbers.push_back(item.get<double>());
  }
  return numbers;
}

std::vector<std::string> Field::names() const {
  std::vector<std::string> names;
  for (const Field& item : items()) names.push_back(item.name());
  return names;
}

std::vector<Field> Field::items() const {
  need(is(&Json::is_array), "a list");
  std::vector<Field> items;
  items.reserve(value_->size());
  for (const Json& item : *value_) {
    items.push_back(Field(item, fmt::format("{}[{}]", path_, items.size())));
  }
  return items;
}

void Field::refuse(const std::string& what) const {
  throw UserError(path_.empty() ? what : path_ + ": " + what);
}

bool Field::is(bool (Json::*type)() const noexcept) const {
  return value_ != nullptr && (value_->*type)();
}

const Field& Field::need(bool fits, const char* wanted) const {
  if (fits) return *this;
  if (!given()) refuse(fmt::format("{} is missing", wanted));
  refuse(fmt::format("{} is expected, not {} {}", wanted, value_->is_object() ? "an" : "a",
                     value_->is_array() ? "list" : value_->type_name()));
}

std::uint64_t Field::whole_number(std::uint64_t largest) const {
  need(is(&Json::is_number_integer), "a whole number");
  const bool negative = !value_->is_number_unsigned() && value_->get<std::int64_t>() < 0;
  if (negative || value_->get<std::uint64_t>() > largest) {
    refuse(fmt::format("a whole number from 0 to {} is expected, not {}", largest, dump(*value_)));
  }
  return value_->get<std::uint64_t>();
}

}  // namespace gdn
