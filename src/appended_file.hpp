// A file that grows by whole lines while a run lasts: journals and records.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "src/file.hpp"

namespace gdn {

// Locked as long as it is open: a second run that would write it is refused.
class AppendedFile {
 public:
  // `option` is what errors tell to choose another file with: "--json". Throws UserError where the
  // file cannot be written, is not regular, or another run has it.
  AppendedFile(const std::string& path, bool create, std::string option);

  const std::string& path() const { return path_; }
  std::uintmax_t size() const;
  void cut(std::uintmax_t bytes);
  void append(const std::string& line);  // on disk when it returns

 private:
  std::string path_;
  Descriptor file_;
};

// What differs first, by its path below `name`, with both values; "" when nothing does. For the
// user who goes on with something else than was begun.
std::string first_difference(const nlohmann::json& before, const nlohmann::json& now,
                             const std::string& name);

}  // namespace gdn
