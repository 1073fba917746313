#include "src/result.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "src/error.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

template <class Value, std::size_t count>
Value named(const char* what, const std::string& name, const std::array<Value, count>& values) {
  std::vector<std::string> known;
  for (const Value value : values) {
    if (name_of(value) == name) return value;
    known.emplace_back(name_of(value));
  }
  throw UserError(fmt::format("{}: \"{}\" is none{}; one of {}", what, name,
                              did_you_mean(name, known), fmt::join(known, ", ")));
}

}  // namespace

void give_up(Row& row, Status status, const std::string& reason) {
  row.status = status;
  row.reason = reason;
  row.time_s.reset();
  row.samples_s.clear();
  row.samples = 0;
  row.round_medians_s.clear();
  row.kernels.clear();
  row.against.reset();
}

void add_flags(const std::vector<std::string>& more, std::vector<std::string>& flags) {
  for (const std::string& flag : more)
    if (std::ranges::find(flags, flag) == flags.end()) flags.push_back(flag);
}

Scope scope_named(const std::string& name) { return named("scope", name, all_scopes); }

Timing timing_named(const std::string& name) { return named("timing", name, all_timings); }

}  // namespace gdn
