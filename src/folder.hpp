// The folders of YAML files that belong to this binary: cases/ and tuning/.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace gdn {

// The folder of that name: where the environment variable says, else beside a build folder, else
// where an installation puts it. `contents` is what errors call its files. Throws UserError where
// there is none.
std::filesystem::path folder_named(const std::string& name, const char* variable,
                                   const std::string& contents);

bool is_yaml(const std::filesystem::path& path);

// The YAML files in a folder, by name. Throws UserError where it cannot be listed.
std::vector<std::filesystem::path> yaml_files_in(const std::filesystem::path& folder);

}  // namespace gdn
