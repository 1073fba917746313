#include "src/variant_select.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "src/error.hpp"
#include "src/suggest.hpp"

namespace gdn {

std::optional<SelectedVariant> instance_of(const std::string& id) {
  for (const Variant& variant : ladder())
    for (const Instance& instance : variant.instances)
      if (variant_id(variant, instance) == id) return SelectedVariant{&variant, &instance};
  return std::nullopt;
}

std::vector<SelectedVariant> select_variants(const std::vector<std::string>& globs, Target target,
                                             const char* option) {
  std::vector<SelectedVariant> selected;
  std::vector<std::string> known;
  std::set<std::string> unused(globs.begin(), globs.end());
  for (const Variant& variant : ladder()) {
    if (variant.target != target) continue;
    known.push_back(variant.name);
    for (const Instance& instance : variant.instances) {
      const std::string id = variant_id(variant, instance);
      known.push_back(id);
      bool wanted = globs.empty();
      for (const std::string& glob : globs)
        if (glob == variant.name || matches_glob(glob, id)) {
          wanted = true;
          unused.erase(glob);
        }
      if (wanted) selected.push_back({&variant, &instance});
    }
  }
  if (!unused.empty()) {
    const std::string& glob = *unused.begin();
    if (glob == "auto" || glob == "tuned")
      throw UserError(
          fmt::format("{} {}: what stands for one variant of each case is for run and for ab --b, "
                      "auto also for profile, alone; name a variant here",
                      option, glob));
    const bool elsewhere = std::ranges::any_of(ladder(), [&](const Variant& variant) {
      return glob == variant.name ||
             std::ranges::any_of(variant.instances, [&](const Instance& instance) {
               return matches_glob(glob, variant_id(variant, instance));
             });
    });
    throw UserError(fmt::format(
        "{} {}: the {} backend has no such variant{}; `gdnbench list variants` shows them", option,
        glob, name_of(target),
        elsewhere ? ", the other one has (--backend)" : did_you_mean(glob, known)));
  }
  return selected;
}

}  // namespace gdn
