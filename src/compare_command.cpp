// `gdnbench compare BASE HEAD`.
#include <cstdio>

#include "src/commands.hpp"
#include "src/file.hpp"
#include "src/report/render.hpp"
#include "src/streams.hpp"

namespace gdn {
int compare(const CompareCommand& command) {
  require_outputs({{"BASE", command.base},
                   {"HEAD", command.head},
                   {"--thresholds", command.options.thresholds_file}},
                  {{"--markdown", command.markdown}, {"--junit", command.junit}});
  const Comparison comparison =
      compare(read_report(command.base), read_report(command.head), command.options);
  const bool taken = is_standard_output(command.markdown) || is_standard_output(command.junit);
  std::FILE* const tables = taken ? stderr : stdout;
  print(tables, console(comparison, in_colour(tables)));
  deliver(command.markdown, markdown(comparison));
  if (!command.junit.empty()) deliver(command.junit, junit(comparison));
  return static_cast<int>(comparison.exit);
}

}  // namespace gdn
