#include "src/streams.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "src/error.hpp"

namespace gdn {
namespace {

int lost = 0;  // why standard output could not be written, of errno; 0: it could

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::string output_lost(const std::string& reason) {
  return fmt::format("standard output: cannot be written: {}; give it room, or a file", reason);
}

void prepare_process() {
  int opened = 0;
  do {
    opened = open("/dev/null", O_RDWR | O_CLOEXEC);
    // The three are for the worker too.
    if (opened >= 0 && opened <= STDERR_FILENO) fcntl(opened, F_SETFD, 0);
  } while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) close(opened);
  std::signal(SIGXFSZ, SIG_IGN);
}

void print(std::FILE* to, std::string_view text) {
  const bool arrived =
      std::fwrite(text.data(), 1, text.size(), to) == text.size() && std::fflush(to) == 0;
  if (!arrived && to == stdout) lost = errno;
}

void flush_standard_output() {
  if (std::fflush(stdout) != 0) lost = errno;
  if (lost == 0 && std::ferror(stdout) != 0) lost = EIO;
  if (lost != 0 && lost != EPIPE) throw UserError(output_lost(std::strerror(lost)));
}

bool is_terminal(std::FILE* stream) {
  const std::string_view kind = variable("TERM");
  return isatty(fileno(stream)) != 0 && !kind.empty() && kind != "dumb";
}

bool in_colour(std::FILE* stream) { return is_terminal(stream) && variable("NO_COLOR").empty(); }

std::size_t columns(std::FILE* terminal) {
  constexpr std::size_t usual = 80;
  winsize size{};
  const bool known = ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : usual;
}

}  // namespace gdn
