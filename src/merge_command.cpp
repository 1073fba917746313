// `gdnbench merge --output F FILES…`.
#include <fmt/format.h>

#include <filesystem>

#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/file.hpp"
#include "src/merge.hpp"

namespace gdn {
namespace {

constexpr std::size_t largest_file_bytes = std::size_t{256} << 20;

}  // namespace

int merge(const MergeCommand& command) {
  std::vector<NamedPath> inputs;
  for (const std::string& path : command.files) inputs.push_back({"FILES", path});
  require_outputs(inputs, {{"--output", command.output}});
  if (!is_standard_output(command.output) && std::filesystem::exists(command.output) &&
      keeps_bytes(command.output))
    throw UserError(
        fmt::format("--output {}: it is there already, and what it holds would be lost; "
                    "name it among FILES and give another --output",
                    command.output));
  std::vector<NamedText> files;
  for (const std::string& path : command.files)
    files.push_back(
        {path, read_text(path, largest_file_bytes, "wisdom, a tuning record or a result file")});
  deliver(command.output, merged(files, command.newer));
  return 0;
}

}  // namespace gdn
