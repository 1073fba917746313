// What a run was asked for, as its journal and its results keep it: --resume needs nothing else.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/options.hpp"

namespace gdn {

// The options that decide which rows there are and how they are measured, and what they meant: each
// case in full, or the hash of the inputs' bytes. Paths are absolute.
nlohmann::json record_of(const RunOptions& options, const std::vector<Case>& cases);

// Absolute, as a record keeps it; "" stays "". Throws UserError for a path that no record can name.
std::string recorded_path(const std::string& path);

// `given` with all that the record decides. Throws UserError for a record that is none.
RunOptions recalled(const RunOptions& given, const nlohmann::json& record);

}  // namespace gdn
