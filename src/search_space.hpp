// What a search tries: the combinations of knobs that a space file spans, each of which must have
// been compiled.
//
//   target: cuda
//   variants:
//     wide:
//       knobs: {stages: [1, 2], threads: [256, 512, 1024]}
//       constraints:
//         - name: addresses_of_two_stages
//           when: {stages: 2}             # all of them hold; without it: always
//           only: {threads: [256, 512]}   # then these are left
//           why: 1024 threads have 64 registers each, and spill
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/variant_select.hpp"

namespace gdn {

// The candidates of one text, in the order of the ladder; none where it is for another target.
// `source` is the name that errors show. Throws UserError "source:line:column: what; remedy", also
// for a combination that the space allows and the ladder has no instance of, or one that cannot be
// had (Instance::obstacle).
std::optional<std::vector<SelectedVariant>> parse_space(std::string_view yaml,
                                                        const std::string& source, Target target,
                                                        std::span<const Variant> ladder);

// The ids of the candidates of a space file, or, where `file` is "", of all files of the tuning
// folder that are for the target. Throws UserError where there are none.
std::vector<std::string> search_space(const std::string& file, Target target);

// Of the candidates those that the globs of --variant mean, as of a run (see select_variants).
// Throws UserError, with a suggestion, for a glob that means none.
std::vector<std::string> meant_by(const std::vector<std::string>& globs,
                                  const std::vector<std::string>& candidates);

}  // namespace gdn
