// What `--variant tuned` means: for each problem the winner that the device's wisdom names.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernels/prepare/recipe.hpp"
#include "src/result.hpp"
#include "src/variant_select.hpp"
#include "src/wisdom.hpp"

namespace gdn {

inline constexpr const char* tuned_variant = "tuned";  // the word for --variant

struct TunedVariant {
  SelectedVariant selected;
  TunedAs as;
};

class TunedVariants {
 public:
  // Reads `file`, or where that is "" the file of the device. `now` is the fingerprint of this run;
  // `strict` makes stale wisdom an error. Throws UserError where there is no wisdom.
  TunedVariants(const std::string& file, const Device& device, nlohmann::json now, bool strict);

  // The winner for a problem, or the first tied with it that this build has. Throws UserError where
  // it has none of them, where nothing was tuned in the scope, or the wisdom is stale and must not
  // be. Gates are unknown (nullopt) of a user's own inputs.
  TunedVariant select(const Problem& problem, std::optional<Gates> gates, Scope scope,
                      Timing timing, int beta_max);

  // What makes the answers so far worth less, each once.
  const std::set<std::string>& warnings() const { return warnings_; }

 private:
  void warn(const std::string& what) { warnings_.insert(path_ + ": " + what); }
  void examine_age(const WisdomEntry& entry);

  Target target_;
  std::string path_;
  Wisdom wisdom_;
  nlohmann::json now_;
  bool strict_;
  std::set<std::string> warnings_;
};

}  // namespace gdn
