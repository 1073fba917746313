// Names that people type: how to show them, the nearest known one, and globs over them.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace gdn {

// Foreign text for a message: in quotes, printable, and not longer than a line.
std::string excerpt(std::string_view text);

// The known name within a few typing errors of `word`, the nearest one first; none where all are
// too far to be what was meant.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> known);

// `; did you mean "tokens"?`, or nothing. Made to follow the "what" of a message.
std::string did_you_mean(std::string_view word, std::span<const std::string> known);

// Shell wildcards (* ? [..]) over a whole id.
bool matches_glob(std::string_view glob, std::string_view id);

}  // namespace gdn
