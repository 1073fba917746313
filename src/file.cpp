#include "src/file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <tuple>

#include "src/error.hpp"
#include "src/streams.hpp"

namespace gdn {
namespace {

namespace fs = std::filesystem;

void close_whole(Descriptor& file, const std::string& path) {
  if (::close(file.release()) != 0 && errno != EINTR) fail_writing(path, errno);
}

// A file in a folder that becomes another one when it is whole. Until then it has no name, so that
// no end of the process leaves it there; where a file system has no such files, it has one.
class Temporary {
 public:
  // Not named after what it becomes, because that name may be as long as names can be.
  explicit Temporary(const fs::path& folder)
      : path_(folder / fmt::format(".gdnbench.{}.partial", ::getpid())),
        file_(::open(folder.c_str(), O_WRONLY | O_TMPFILE | O_CLOEXEC, 0666)) {
    if (file_.get() >= 0 && ::access(own_link().c_str(), F_OK) == 0) return;
    has_name_ = true;
    file_ = Descriptor(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666));
  }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (has_name_) ::unlink(path_.c_str());
  }
  int file() const { return file_.get(); }
  void become(const fs::path& target, const std::string& named) {
    if (!has_name_) take_name(named);
    close_whole(file_, named);
    if (::rename(path_.c_str(), target.c_str()) != 0) fail_writing(named, errno);
    has_name_ = false;
  }

 private:
  std::string own_link() const { return fmt::format("/proc/self/fd/{}", file_.get()); }
  void take_name(const std::string& named) {
    ::unlink(path_.c_str());  // what another process of this number may have left
    if (::linkat(AT_FDCWD, own_link().c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0)
      fail_writing(named, errno);
    has_name_ = true;
  }

  std::string path_;
  Descriptor file_;
  bool has_name_ = false;
};

// Nothing where there is no such file. Throws where it cannot be known.
std::optional<struct stat> status_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return status;
  if (errno != ENOENT) fail_writing(path, errno);
  return std::nullopt;
}

// Where a path leads, also to a file that is not there yet.
fs::path resolved(const std::string& path) {
  constexpr int most_links = 40;  // as many as the kernel follows
  std::error_code error;
  fs::path place = absolute_path(path);
  for (int links = 0; links < most_links && fs::is_symlink(place, error); ++links) {
    const fs::path target = fs::read_symlink(place, error);
    place = target.is_absolute() ? target : place.parent_path() / target;
  }
  const fs::path canonical = fs::weakly_canonical(place, error);
  return error ? place : canonical;
}

// Not what access() says alone: to root everything is writable, and a file without any permission
// to write was protected on purpose.
void require_permission(const std::string& path, const struct stat& status) {
  if ((status.st_mode & (S_IWUSR | S_IWGRP | S_IWOTH)) == 0 || ::access(path.c_str(), W_OK) != 0)
    throw UserError(path + ": is read-only; remove it, or choose another file");
}

void require_writable(const std::string& path) {
  const std::optional<struct stat> status = status_of(path);
  if (status && S_ISDIR(status->st_mode)) throw UserError(path + ": is a folder; give a file");
  if (status) require_permission(path, *status);
  if (status && !S_ISREG(status->st_mode)) return;
  const fs::path folder = resolved(path).parent_path();
  std::error_code error;
  if (!fs::is_directory(folder, error))
    throw UserError(
        fmt::format("{}: there is no folder {}; create it first", path, folder.string()));
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    throw UserError(fmt::format("{}: the folder {} cannot be written to ({}); choose another", path,
                                folder.string(), std::strerror(errno)));
}

bool is_same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return resolved(a) == resolved(b) || fs::equivalent(a, b, error);
}

}  // namespace

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

void fail_writing(const std::string& path, int reason) {
  throw UserError(fmt::format(
      "{}: cannot be written ({}); choose a place that you may write to, with space left", path,
      std::strerror(reason)));
}

void write_all(int file, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail_writing(path, errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void sync_to_disk(int file, const std::string& path) {
  if (::fdatasync(file) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
    fail_writing(path, errno);
}

void write_file(const std::string& path, std::span<const std::string_view> parts) {
  const std::optional<struct stat> status = status_of(path);
  if (status && !S_ISREG(status->st_mode)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail_writing(path, errno);
    for (const std::string_view part : parts) write_all(file.get(), part, path);
    close_whole(file, path);
    return;
  }
  if (status) require_permission(path, *status);
  const fs::path target = resolved(path);
  Temporary temporary(target.parent_path());  // renaming cannot cross file systems
  if (temporary.file() < 0) fail_writing(path, errno);
  // Who could not read the old file shall not read the new one; where modes mean nothing, so be it.
  if (status) std::ignore = ::fchmod(temporary.file(), status->st_mode & 0777);
  for (const std::string_view part : parts) write_all(temporary.file(), part, path);
  sync_to_disk(temporary.file(), path);
  temporary.become(target, path);
}

void write_file(const std::string& path, std::string_view text) {
  write_file(path, std::span(&text, 1));
}

bool is_standard_output(const std::string& path) {
  if (path == "-") return true;
  struct stat named {
  }, standard{};
  if (::stat(path.c_str(), &named) != 0 || ::fstat(STDOUT_FILENO, &standard) != 0) return false;
  // /dev/null is everywhere, and takes any number of files.
  const bool keeps_nothing = S_ISCHR(standard.st_mode) && ::isatty(STDOUT_FILENO) == 0;
  return !keeps_nothing && named.st_dev == standard.st_dev && named.st_ino == standard.st_ino;
}

bool keeps_bytes(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode);
}

void deliver(const std::string& path, std::string_view text) {
  if (path.empty()) return;
  if (is_standard_output(path))
    print(stdout, text);
  else
    write_file(path, text);
}

void try_each(std::initializer_list<std::function<void()>> deliveries) {
  std::string wrong;
  for (const std::function<void()>& delivery : deliveries) {
    try {
      delivery();
    } catch (const UserError& error) {
      if (!wrong.empty()) wrong += '\n';
      wrong += error.what();
    }
  }
  if (!wrong.empty()) throw UserError(wrong);
}

std::string read_text(const std::string& path, std::size_t most_bytes, const std::string& wanted) {
  const auto fail = [&](const std::string& what) {
    throw UserError(fmt::format("{}: {}", path, what));
  };
  const auto fail_reading = [&] {
    fail(fmt::format("cannot be read ({}); check its permissions", std::strerror(errno)));
  };
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) fail("no such file; give " + wanted);
    fail_reading();
  }
  if (S_ISDIR(status.st_mode)) fail("a folder; give " + wanted);
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail_reading();
  std::string text;
  std::array<char, 1 << 16> block;
  while (true) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_reading();
    if (got == 0) return text;
    text.append(block.data(), static_cast<std::size_t>(got));
    if (text.size() > most_bytes)
      fail(fmt::format("larger than {} MiB; is this {}?", most_bytes >> 20, wanted));
  }
}

std::string absolute_path(const std::string& path) {
  std::error_code error;
  const fs::path whole = fs::absolute(path, error);
  if (error)
    throw UserError(fmt::format("{}: the current folder cannot be found ({}); change to another",
                                path, error.message()));
  return whole;
}

void make_folder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && !fs::is_directory(path, error) && !error)
    error = std::make_error_code(std::errc::not_a_directory);
  if (!error && ::access(path.c_str(), W_OK | X_OK) != 0)
    error.assign(errno, std::system_category());
  if (error)
    throw UserError(fmt::format("{}: no folder that can be written to ({}); choose another", path,
                                error.message()));
}

void require_outputs(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs) {
  const NamedPath* standard = nullptr;
  std::vector<const NamedPath*> files;
  for (const NamedPath& output : outputs) {
    if (output.path.empty()) continue;
    if (is_standard_output(output.path)) {
      if (standard != nullptr)
        throw UserError(
            fmt::format("{} and {} both go to standard output; give a file to one of them",
                        standard->name, output.name));
      standard = &output;
      continue;
    }
    require_writable(output.path);
    if (!keeps_bytes(output.path)) continue;
    for (const NamedPath& input : inputs)
      if (!input.path.empty() && keeps_bytes(input.path) && is_same_file(input.path, output.path))
        throw UserError(fmt::format("{} {} would overwrite {}, which is read; choose another file",
                                    output.name, output.path, input.name));
    for (const NamedPath* other : files)
      if (is_same_file(other->path, output.path))
        throw UserError(fmt::format("{} and {} are the same file, {}; choose another for one",
                                    other->name, output.name, output.path));
    files.push_back(&output);
  }
}

}  // namespace gdn
