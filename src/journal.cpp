#include "src/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <tuple>
#include <utility>

#include "src/error.hpp"

namespace gdn {
namespace {

using nlohmann::json;

[[noreturn]] void cannot_write(const std::string& path) {
  throw UserError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

void write_all(int file, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = write(file, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) cannot_write(path);
    done += static_cast<std::size_t>(n);
  }
}

// The first top-level key whose value differs, with both values; "" when there is none.
std::string difference(const json& before, const json& now) {
  for (const auto& [key, value] : now.items())
    if (!before.contains(key) || !(before[key] == value))
      return fmt::format("{} was {} and is {}", key,
                         before.contains(key) ? before[key].dump() : "absent", value.dump());
  return "";
}

}  // namespace

JournalFile::JournalFile(JournalFile&& other) noexcept
    : file_(std::exchange(other.file_, -1)), path_(std::move(other.path_)) {}

JournalFile::~JournalFile() {
  if (file_ >= 0) close(file_);
}

JournalFile JournalFile::create(const std::string& path, const Report& head) {
  if (std::filesystem::is_regular_file(path) && std::filesystem::file_size(path) > 0) {
    const Journal before = read_journal(path);
    if (!before.finished && !before.report.rows.empty())
      throw UserError(
          fmt::format("{0}: holds {1} rows of an unfinished run; go on with --resume "
                      "{0}, or remove it",
                      path, before.report.rows.size()));
  }
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) cannot_write(path);
  JournalFile journal(file, path);
  journal.write_line(journal_header(head));
  return journal;
}

JournalFile JournalFile::resume(const std::string& path, Report& report) {
  const Journal before = read_journal(path);
  for (const auto& [what, then, now] :
       {std::tuple{"fingerprint", &before.report.fingerprint, &report.fingerprint},
        std::tuple{"options", &before.report.options, &report.options}})
    if (const std::string changed = difference(*then, *now); !changed.empty())
      throw UserError(
          fmt::format("--resume {}: it belongs to another run: {}: {}; use the build "
                      "and device it was started with, or start anew",
                      path, what, changed));
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  if (file < 0) cannot_write(path);
  JournalFile journal(file, path);
  if (ftruncate(file, static_cast<off_t>(before.whole_bytes)) != 0) cannot_write(path);
  report.rows = before.report.rows;
  return journal;
}

void JournalFile::write_line(const std::string& line) {
  write_all(file_, line, path_);
  if (fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS) cannot_write(path_);
}

void JournalFile::append(const Row& row) { write_line(journal_line(row)); }

void JournalFile::finish() { write_line(journal_end); }

void write_file(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp" + std::to_string(getpid());
  const int file = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) cannot_write(path);
  try {
    write_all(file, text, path);
  } catch (...) {
    close(file);
    unlink(temporary.c_str());
    throw;
  }
  fsync(file);
  close(file);
  if (rename(temporary.c_str(), path.c_str()) != 0) {
    unlink(temporary.c_str());
    cannot_write(path);
  }
}

}  // namespace gdn
