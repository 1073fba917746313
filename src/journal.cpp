#include "src/journal.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <thread>
#include <tuple>

#include "src/error.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

using nlohmann::json;

// The first line that two texts do not share, of each of them.
std::pair<std::string, std::string> differing_lines(std::string_view a, std::string_view b) {
  const auto begin_of_line = [](std::string_view text, std::size_t at) {
    const std::size_t newline = at == 0 ? std::string_view::npos : text.rfind('\n', at - 1);
    return newline == std::string_view::npos ? 0 : newline + 1;
  };
  const auto shared = static_cast<std::size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  const std::size_t begin = begin_of_line(a, shared);
  const auto line = [begin](std::string_view text) {
    return excerpt(text.substr(begin, text.find('\n', begin) - begin));
  };
  return {line(a), line(b)};
}

std::string changed(const std::string& what, const std::string& then, const std::string& now) {
  return fmt::format("{} was {} and is {}", what, then, now);
}

// What differs first, by its path, with both values; "" when nothing does.
std::string difference(const json& before, const json& now, const std::string& path) {
  if (before.is_object() && now.is_object()) {
    std::set<std::string> keys;
    for (const json* side : {&before, &now})
      for (const auto& [key, value] : side->items()) keys.insert(key);
    for (const std::string& key : keys) {
      const std::string place = fmt::format("{}: {}", path, key);
      if (!before.contains(key)) return changed(place, "absent", now[key].dump());
      if (!now.contains(key)) return changed(place, before[key].dump(), "absent");
      if (std::string found = difference(before[key], now[key], place); !found.empty())
        return found;
    }
    return "";
  }
  if (before == now) return "";
  if (!before.is_string() || !now.is_string()) return changed(path, before.dump(), now.dump());
  const auto [then, since] =
      differing_lines(before.get_ref<const std::string&>(), now.get_ref<const std::string&>());
  return changed(path, then, since);
}

// Whether another process has the file's lock; else it is ours. A child of a run that was killed
// has it until it is gone too, a moment later. Where a file system has no locks, one goes on
// without.
bool another_holds(int file) {
  for (int attempt = 0; attempt < 40; ++attempt) {
    if (flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
  }
  return true;
}

}  // namespace

JournalFile::JournalFile(const std::string& path, int more_flags)
    // Not blocking: a FIFO would hold us up before fstat could tell that it is none of ours.
    : path_(path),
      file_(open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | more_flags, 0666)) {
  if (file_.get() < 0) fail_writing(path, errno);
  struct stat status {};
  if (fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw UserError(path + ": not a regular file, so it cannot keep rows; choose another --json");
  if (another_holds(file_.get()))
    throw UserError(path +
                    ": another run is writing it; wait for its end, or choose another --json");
}

JournalFile JournalFile::create(const std::string& path, const Report& head) {
  JournalFile journal(path, O_CREAT);
  struct stat status {};
  if (fstat(journal.file_.get(), &status) == 0 && status.st_size > 0) {
    Journal before;
    try {
      before = read_journal(path);
    } catch (const UserError& e) {
      throw UserError(fmt::format(
          "{}: is there and is no whole journal of a run; remove it, or choose another --json ({})",
          path, e.what()));
    }
    if (!before.finished && !before.report.rows.empty())
      throw UserError(
          fmt::format("{0}: holds {1} rows of an unfinished run; go on with --resume "
                      "{0}, or remove it",
                      path, before.report.rows.size()));
  }
  journal.cut(0);
  journal.write_line(journal_header(head));
  return journal;
}

JournalFile JournalFile::reopen(const std::string& path) {
  JournalFile journal(path, 0);
  journal.before_ = read_journal(path);
  journal.finished_ = journal.before_.finished;
  return journal;
}

void JournalFile::go_on(Report& report) {
  const Report& then = before_.report;
  std::string changed = difference(then.fingerprint, report.fingerprint, "fingerprint");
  if (changed.empty()) changed = difference(then.options, report.options, "options");
  if (!changed.empty())
    throw UserError(fmt::format(
        "--resume {}: it belongs to another run: {}; use the build, device and inputs it was "
        "started with, or start anew",
        path_, changed));
  cut(before_.whole_bytes);
  report.rows = then.rows;
}

void JournalFile::cut(std::uintmax_t bytes) {
  if (ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) fail_writing(path_, errno);
}

void JournalFile::write_line(const std::string& line) {
  write_all(file_.get(), line, path_);
  sync_to_disk(file_.get(), path_);
}

void JournalFile::append(const Row& row) {
  write_line(journal_line(row));
  finished_ = false;
}

void JournalFile::finish() {
  if (!finished_) write_line(journal_end);
  finished_ = true;
}

}  // namespace gdn
