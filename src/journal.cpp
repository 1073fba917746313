#include "src/journal.hpp"

#include <fmt/format.h>

#include "src/error.hpp"

namespace gdn {

JournalFile::JournalFile(const std::string& path, bool create) : file_(path, create, "--json") {}

JournalFile JournalFile::create(const std::string& path, const Report& head) {
  JournalFile journal(path, true);
  if (journal.file_.size() > 0) {
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
  journal.file_.cut(0);
  journal.file_.append(journal_header(head));
  return journal;
}

JournalFile JournalFile::reopen(const std::string& path) {
  JournalFile journal(path, false);
  journal.before_ = read_journal(path);
  journal.finished_ = journal.before_.finished;
  return journal;
}

void JournalFile::go_on(Report& report) {
  const Report& then = before_.report;
  std::string changed = first_difference(then.fingerprint, report.fingerprint, "fingerprint");
  if (changed.empty()) changed = first_difference(then.options, report.options, "options");
  if (!changed.empty())
    throw UserError(fmt::format(
        "--resume {}: it belongs to another run: {}; use the build, device and inputs it was "
        "started with, or start anew",
        file_.path(), changed));
  file_.cut(before_.whole_bytes);
  report.rows = then.rows;
}

void JournalFile::append(const Row& row) {
  file_.append(journal_line(row));
  finished_ = false;
}

void JournalFile::finish() {
  if (!finished_) file_.append(journal_end);
  finished_ = true;
}

}  // namespace gdn
