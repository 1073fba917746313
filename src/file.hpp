// Files as the tool reads and writes them: whole or not at all, and never one over another.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace gdn {

// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(Descriptor other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Everything below throws UserError "path: what; remedy".

[[noreturn]] void fail_writing(const std::string& path, int reason);  // of errno
void write_all(int file, std::string_view bytes, const std::string& path);
void sync_to_disk(int file, const std::string& path);  // what no disk stands behind is let through

// Replaces a regular file only when everything is on disk, through a temporary one in its folder
// and where symbolic links lead; a process that is killed leaves the old one, and, where the file
// system has files without a name, no other. A pipe or a device takes the bytes as they come.
void write_file(const std::string& path, std::span<const std::string_view> parts);
void write_file(const std::string& path, std::string_view text);

bool is_standard_output(const std::string& path);  // "-", /dev/stdout, and whatever it leads to
// A regular file, there or not yet. Pipes and devices keep nothing that could be overwritten.
bool keeps_bytes(const std::string& path);
// To a file or standard output; nowhere when the path is "".
void deliver(const std::string& path, std::string_view text);
// Of several deliveries, each is tried, whatever became of those before; then all that was wrong is
// thrown.
void try_each(std::initializer_list<std::function<void()>> deliveries);

// The bytes of a file or a pipe. `wanted` is what errors tell to give: "a result file".
std::string read_text(const std::string& path, std::size_t most_bytes, const std::string& wanted);

std::string absolute_path(const std::string& path);

// A folder that exists, is made where it does not, and can be written to.
void make_folder(const std::string& path);

struct NamedPath {
  std::string name;  // the option it was given to
  std::string path;  // "" for none
};
// Before anything is done: every output can be written and is neither an input nor another output,
// and standard output takes one at most.
void require_outputs(const std::vector<NamedPath>& inputs, const std::vector<NamedPath>& outputs);

}  // namespace gdn
