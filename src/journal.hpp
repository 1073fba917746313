// The journal of a run while it is written: F.jsonl beside F (result.hpp has its form).
#pragma once

#include <string>

#include "src/result.hpp"

namespace gdn {

class JournalFile {
 public:
  // Starts a new journal. Throws UserError when `path` cannot be written or holds the rows of an
  // unfinished run, which would be lost.
  static JournalFile create(const std::string& path, const Report& head);

  // Goes on with a journal, whose rows are put into `report`; a last line that a kill has torn is
  // cut off. Throws UserError when it is not the journal of the same run: another build, device or
  // other options.
  static JournalFile resume(const std::string& path, Report& report);

  JournalFile(JournalFile&& other) noexcept;
  JournalFile(const JournalFile&) = delete;
  ~JournalFile();

  void append(const Row& row);  // on disk when it returns
  void finish();

 private:
  explicit JournalFile(int file, std::string path) : file_(file), path_(std::move(path)) {}
  void write_line(const std::string& line);

  int file_ = -1;
  std::string path_;
};

// Writes a whole file or nothing: a temporary file beside it, then a rename. Throws UserError.
void write_file(const std::string& path, const std::string& text);

}  // namespace gdn
