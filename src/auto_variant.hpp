// What `--variant auto` means: for each problem the instance that the model of costs picks
// (dispatch.hpp), with no file and no measuring.
#pragma once

#include <string>

#include "src/case.hpp"
#include "src/dispatch.hpp"
#include "src/result.hpp"
#include "src/variant_select.hpp"

namespace gdn {

inline constexpr const char* auto_variant = "auto";  // the word for --variant

struct AutoVariant {
  SelectedVariant selected;
  ChosenAs as;
};

// What there is to know of a case's inputs, or of `inputs_file`'s where that is not "": the gates
// by a look at the first 1024 tokens. `exact` is the user's wish.
KnownInputs known_inputs(const Case& c, const std::string& inputs_file, bool exact);

// Throws UserError where no variant of this build will do, or none has a known cost.
AutoVariant choose_variant(const Case& c, Scope scope, const Device& device,
                           const KnownInputs& inputs);

}  // namespace gdn
