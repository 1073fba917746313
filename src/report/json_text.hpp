// Text that claims to be JSON and may come from anywhere.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "src/error.hpp"
#include "src/report/json_field.hpp"

namespace gdn {

// What a text should be, for the refusals.
struct JsonKind {
  const char* name;      // "a result file"
  const char* when_cut;  // what to do where the end is missing
};

// One JSON value: of bounded depth, no key twice in an object. Throws UserError
// "source:line:column: what; remedy"; `first_line` is the number of the text's first line.
Json parse_json(std::string_view text, const std::string& source, const JsonKind& kind,
                std::size_t first_line = 1);

// Names the file in what the readers of fields refuse.
template <class Read>
auto naming(const std::string& source, const Read& read) {
  try {
    return read();
  } catch (const UserError& error) {
    throw UserError(source + ": " + error.what());
  }
}

}  // namespace gdn
