#include "src/data_folder.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "src/error.hpp"

namespace gdn {

namespace fs = std::filesystem;

fs::path data_folder(const char* name, const char* variable, const char* files) {
  std::error_code error;
  if (const char* set = std::getenv(variable); set != nullptr && *set != '\0') {
    if (fs::is_directory(set, error)) return set;
    throw UserError(
        fmt::format("{}={}: no such folder; set it to the folder of the {}", variable, set, files));
  }
  const fs::path binary = fs::read_symlink("/proc/self/exe", error);
  std::vector<std::string> tried;
  // Beside a build folder, one level deeper for the tests, and where an installation puts them.
  for (const char* place : {"../", "../../", "../share/gdnbench/"}) {
    fs::path folder = (binary.parent_path() / place / name).lexically_normal();
    if (fs::is_directory(folder, error)) return folder;
    tried.push_back(folder.string());
  }
  throw UserError(fmt::format("no folder of {} (tried {}); set {} to it", files,
                              fmt::join(tried, ", "), variable));
}

}  // namespace gdn
