#include "src/progress.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <string_view>

#include "src/report/render.hpp"
#include "src/streams.hpp"

namespace gdn {
namespace {

constexpr std::string_view clear_line = "\r\033[K";

// As many characters as fit: a line that wraps could not be cleared again.
std::string_view cut(std::string_view utf8, std::size_t columns) {
  std::size_t bytes = 0;
  for (std::size_t seen = 0; bytes < utf8.size(); ++bytes) {
    const bool begins = (static_cast<unsigned char>(utf8[bytes]) & 0xC0) != 0x80;
    if (begins && seen++ == columns) break;
  }
  return utf8.substr(0, bytes);
}

}  // namespace

Progress::Progress(std::size_t rows, int rounds)
    : total_(rows * static_cast<std::size_t>(rounds)),
      rounds_(rounds),
      terminal_(is_terminal(stderr)) {}

Progress::~Progress() { clear(); }

void Progress::begin_round(int round) { round_ = round; }

void Progress::doing(const std::string& case_name, const std::string& variant, Scope scope,
                     Timing timing) {
  if (!terminal_) return;
  const std::string line = fmt::format("{} {}  {}  {}  {} …", place(done_ + 1), case_name, variant,
                                       name_of(scope), name_of(timing));
  print(stderr, fmt::format("{}{}", clear_line, cut(line, columns(stderr) - 1)));
}

void Progress::skip() { ++done_; }

void Progress::finished(const Row& row) {
  ++done_;
  if (terminal_) return;
  const std::string outcome = row.time_s ? format_time(row.time_s->median) : row.reason;
  print(stderr, fmt::format("{} {} {} {} {}: {}{}{}\n", place(done_), row.case_name, row.variant,
                            name_of(row.scope), name_of(row.timing), name_of(row.status),
                            outcome.empty() ? "" : ", ", outcome));
}

void Progress::clear() const {
  if (terminal_) print(stderr, clear_line);
}

std::string Progress::place(std::size_t number) const {
  return rounds_ == 1 ? fmt::format("[{}/{}]", number, total_)
                      : fmt::format("[{}/{}, round {}]", number, total_, round_);
}

SearchProgress::SearchProgress(std::size_t problems)
    : total_(problems), terminal_(is_terminal(stderr)) {}

SearchProgress::~SearchProgress() { clear(); }

void SearchProgress::begin(std::size_t number, const std::string& problem) {
  number_ = number;
  problem_ = problem;
  best_.clear();
}

void SearchProgress::doing(const std::string& what) const {
  if (!terminal_) return;
  const std::string line =
      fmt::format("{}  {} …{}{}", place(), what, best_.empty() ? "" : "  best so far ", best_);
  print(stderr, fmt::format("{}{}", clear_line, cut(line, columns(stderr) - 1)));
}

void SearchProgress::finished(const std::string& what, const std::string& outcome) const {
  if (terminal_) return;
  print(stderr, fmt::format("{} {}: {}{}{}\n", place(), what, outcome,
                            best_.empty() ? "" : "; best so far ", best_));
}

void SearchProgress::clear() const {
  if (terminal_) print(stderr, clear_line);
}

std::string SearchProgress::place() const {
  return fmt::format("[{}/{}] {}", number_, total_, problem_);
}

}  // namespace gdn
