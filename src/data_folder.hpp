// The folders of files that belong to this binary: its cases, and what was tuned with it.
#pragma once

#include <filesystem>

namespace gdn {

// The folder `name` beside the build or the installation of this binary; `variable` of the
// environment names another. Throws UserError where there is none; `files` says in it what is
// missing: "case files".
std::filesystem::path data_folder(const char* name, const char* variable, const char* files);

}  // namespace gdn
