// `gdnbench wisdom show` and `gdnbench wisdom export`.
#include <cstdio>

#include "src/backend.hpp"
#include "src/commands.hpp"
#include "src/file.hpp"
#include "src/fingerprint.hpp"
#include "src/report/render.hpp"
#include "src/streams.hpp"

namespace gdn {
namespace {

std::string in_format(const std::string& format, const Wisdom& wisdom) {
  if (format == "cpp") return cpp_header(wisdom);
  return format == "csv" ? csv(wisdom) : json(wisdom);
}

}  // namespace

int wisdom(const WisdomCommand& command) {
  require_outputs({{"FILE", command.file}}, {{"--output", command.output}});
  const auto backend = make_backend({});
  const Wisdom wisdom =
      read_wisdom(command.file.empty() ? wisdom_path(backend->device().name) : command.file);
  if (command.what == WisdomCommand::What::show)
    print(stdout, console(wisdom, fingerprint(backend->fingerprint()), in_colour(stdout)));
  else
    deliver(command.output, in_format(command.format, wisdom));
  return 0;
}

}  // namespace gdn
