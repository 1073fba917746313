// Finds the instances of the ladder that --variant means, and --a and --b of `gdnbench ab`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernels/variant.hpp"

namespace gdn {

struct SelectedVariant {
  const Variant* variant = nullptr;
  const Instance* instance = nullptr;
};

// The instance of this id; none where this build has none.
std::optional<SelectedVariant> instance_of(const std::string& id);

// Each glob is the name of a variant (all its instances) or a glob over ids; none selects all of
// the target. In ladder order. Throws UserError, with a suggestion, for a glob that selects
// nothing; `option` is where it was given.
std::vector<SelectedVariant> select_variants(const std::vector<std::string>& globs, Target target,
                                             const char* option = "--variant");

}  // namespace gdn
