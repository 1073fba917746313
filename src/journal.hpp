// The journal of a run while it is written: F.jsonl beside F (result.hpp has its form).
#pragma once

#include <string>

#include "src/appended_file.hpp"
#include "src/result.hpp"

namespace gdn {

// Locked as long as it is open: a second run that would write it is refused.
class JournalFile {
 public:
  // Starts a new journal. Throws UserError when `path` cannot be written or holds the rows of an
  // unfinished run, which would be lost.
  static JournalFile create(const std::string& path, const Report& head);

  // Opens the journal of an earlier run: what it was asked for, and its rows, are in before().
  static JournalFile reopen(const std::string& path);
  const Report& before() const { return before_.report; }
  // Goes on with it: its rows are put into `report`; a last line that a kill has torn is cut off.
  // Throws UserError when it is not the journal of the same run: another build, device, other
  // options or cases.
  void go_on(Report& report);

  void append(const Row& row);  // on disk when it returns
  void finish();

 private:
  JournalFile(const std::string& path, bool create);

  AppendedFile file_;
  Journal before_;
  bool finished_ = false;
};

}  // namespace gdn
