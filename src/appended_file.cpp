#include "src/appended_file.hpp"

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

AppendedFile::AppendedFile(const std::string& path, bool create, std::string option)
    // Not blocking: a FIFO would hold us up before fstat could tell that it is none of ours.
    : path_(path),
      file_(open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NONBLOCK | (create ? O_CREAT : 0),
                 0666)) {
  if (file_.get() < 0) fail_writing(path, errno);
  struct stat status {};
  if (fstat(file_.get(), &status) != 0 || !S_ISREG(status.st_mode))
    throw UserError(fmt::format("{}: not a regular file, so it cannot keep rows; choose another {}",
                                path, option));
  if (another_holds(file_.get()))
    throw UserError(fmt::format(
        "{}: another run is writing it; wait for its end, or choose another {}", path, option));
}

std::uintmax_t AppendedFile::size() const {
  struct stat status {};
  return fstat(file_.get(), &status) == 0 ? static_cast<std::uintmax_t>(status.st_size) : 0;
}

void AppendedFile::cut(std::uintmax_t bytes) {
  if (ftruncate(file_.get(), static_cast<off_t>(bytes)) != 0) fail_writing(path_, errno);
}

void AppendedFile::append(const std::string& line) {
  const std::uintmax_t whole = size();
  try {
    write_all(file_.get(), line, path_);
    sync_to_disk(file_.get(), path_);
  } catch (...) {  // what the next line follows must be a whole one
    [[maybe_unused]] const int result = ftruncate(file_.get(), static_cast<off_t>(whole));
    throw;
  }
}

std::string first_difference(const json& before, const json& now, const std::string& name) {
  if (before.is_object() && now.is_object()) {
    std::set<std::string> keys;
    for (const json* side : {&before, &now})
      for (const auto& [key, value] : side->items()) keys.insert(key);
    for (const std::string& key : keys) {
      const std::string place = fmt::format("{}: {}", name, key);
      if (!before.contains(key)) return changed(place, "absent", now[key].dump());
      if (!now.contains(key)) return changed(place, before[key].dump(), "absent");
      if (std::string found = first_difference(before[key], now[key], place); !found.empty())
        return found;
    }
    return "";
  }
  if (before == now) return "";
  if (!before.is_string() || !now.is_string()) return changed(name, before.dump(), now.dump());
  const auto [then, since] =
      differing_lines(before.get_ref<const std::string&>(), now.get_ref<const std::string&>());
  return changed(name, then, since);
}

}  // namespace gdn
