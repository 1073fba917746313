#include "src/tuned.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "src/error.hpp"

namespace gdn {
namespace {

constexpr const char* tune_again = "`gdnbench tune` makes it anew";

// Nothing where this build has no such instance.
std::optional<SelectedVariant> instance_of(const std::string& id, Target target) {
  for (const Variant& variant : ladder())
    for (const Instance& instance : variant.instances)
      if (variant.target == target && variant_id(variant, instance) == id)
        return SelectedVariant{&variant, &instance};
  return std::nullopt;
}

std::vector<std::string> best_of(const WisdomEntry& entry) {
  std::vector<std::string> ids = {entry.winner.variant};
  for (const WisdomEntry::Tied& tied : entry.tied) ids.push_back(tied.variant);
  return ids;
}

}  // namespace

TunedVariants::TunedVariants(const std::string& file, const Device& device, nlohmann::json now,
                             bool strict)
    : target_(device.target),
      path_(file.empty() ? wisdom_path(device.name) : file),
      wisdom_(read_wisdom(path_)),
      now_(std::move(now)),
      strict_(strict) {}

void TunedVariants::examine_age(const WisdomEntry& entry) {
  const std::vector<std::string> differences = staleness(entry, now_);
  if (strict_ && !differences.empty())
    throw UserError(
        fmt::format("{}: the wisdom on {} is stale: {}; {}, without --strict it is a "
                    "warning",
                    path_, entry.case_name, fmt::join(differences, "; "), tune_again));
  for (const std::string& difference : differences)
    warn(fmt::format("stale: {}; {}", difference, tune_again));
}

TunedVariant TunedVariants::select(const Problem& problem, std::optional<Gates> gates, Scope scope,
                                   Timing timing, int beta_max) {
  const std::optional<Advice> advice = find(wisdom_, problem, gates, scope, timing, beta_max);
  if (!advice)
    throw UserError(
        fmt::format("{}: nothing was tuned in the {} scope; `gdnbench tune --scope {}` "
                    "does it, --variant auto does without, or choose another --scope",
                    path_, name_of(scope), name_of(scope)));
  const WisdomEntry& entry = *advice->entry;
  examine_age(entry);
  if (entry.timing != timing)
    warn(
        fmt::format("nothing was tuned in the {} scope in {} timing: winners in {} timing are "
                    "taken",
                    name_of(scope), name_of(timing), name_of(entry.timing)));
  const std::vector<std::string> ids = best_of(entry);
  for (const std::string& id : ids) {
    if (const auto selected = instance_of(id, target_))
      return {*selected, {entry.case_name, entry.timing, advice->distance, advice->exact}};
    warn(fmt::format("this build has no {} for the {} backend, the best for {}", id,
                     name_of(target_), entry.case_name));
  }
  throw UserError(fmt::format("{}: this build has none of the best for {} ({}); {}", path_,
                              entry.case_name, fmt::join(ids, ", "), tune_again));
}

}  // namespace gdn
