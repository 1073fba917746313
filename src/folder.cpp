#include "src/folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "src/error.hpp"

namespace gdn {

namespace fs = std::filesystem;

fs::path folder_named(const std::string& name, const char* variable, const std::string& contents) {
  if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') {
    std::error_code error;
    if (fs::is_directory(set, error)) return set;
    throw UserError(fmt::format("{}={}: no such folder; set it to the folder of the {}", variable,
                                set, contents));
  }
  std::error_code error;
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> tried;
  // Beside a build folder, one level deeper for the tests, and where an installation puts them.
  for (const char* place : {"..", "../..", "../share/gdnbench"}) {
    fs::path folder = (binary.parent_path() / place / name).lexically_normal();
    if (fs::is_directory(folder, error)) return folder;
    tried.push_back(folder.string());
  }
  throw UserError(fmt::format("no folder of {} (tried {}); set {} to it", contents,
                              fmt::join(tried, ", "), variable));
}

bool is_yaml(const fs::path& path) {
  return path.extension() == ".yaml" || path.extension() == ".yml";
}

std::vector<fs::path> yaml_files_in(const fs::path& folder) {
  std::vector<fs::path> paths;
  try {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (is_yaml(entry.path())) paths.push_back(entry.path().lexically_normal());
    }
  } catch (const fs::filesystem_error& e) {
    throw UserError(fmt::format("{}: cannot be listed ({}); check its permissions", folder.string(),
                                e.code().message()));
  }
  std::ranges::sort(paths);
  return paths;
}

}  // namespace gdn
