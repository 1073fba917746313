#include "src/progress.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "src/report/render.hpp"

namespace gdn {

Progress::Progress(std::size_t total) : total_(total), terminal_(isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() { clear(); }

void Progress::doing(const std::string& case_name, const std::string& variant, Scope scope,
                     Timing timing) {
  if (!terminal_) return;
  fmt::print(stderr, "\r\033[K[{}/{}] {}  {}  {}  {} …", done_ + 1, total_, case_name, variant,
             name_of(scope), name_of(timing));
  std::fflush(stderr);
}

void Progress::skip() { ++done_; }

void Progress::finished(const Row& row) {
  ++done_;
  if (terminal_) return;
  const std::string outcome = row.time_s ? format_time(row.time_s->median) : row.reason;
  fmt::print(stderr, "[{}/{}] {} {} {} {}: {}{}{}\n", done_, total_, row.case_name, row.variant,
             name_of(row.scope), name_of(row.timing), name_of(row.status),
             outcome.empty() ? "" : ", ", outcome);
}

void Progress::clear() {
  if (terminal_) fmt::print(stderr, "\r\033[K");
  std::fflush(stderr);
}

}  // namespace gdn
