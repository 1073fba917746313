// Finds case files, and the cases in them that selectors mean.

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>

#include "src/case.hpp"
#include "src/case_file.hpp"
#include "src/error.hpp"
#include "src/folder.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

namespace fs = std::filesystem;

// Case files, read when they are first needed. A deque: the drafts point into them.
class Library {
 public:
  const CaseFile& file(const fs::path& path) {
    const std::string source = path.string();
    const auto known = std::ranges::find(files_, source, &CaseFile::source);
    if (known != files_.end()) return *known;
    return files_.emplace_back(read_case_file(read_yaml_file(source), source));
  }

  // Every draft of the folder, in the order of the file names.
  const std::vector<Draft>& folder() {
    if (folder_) return *folder_;
    const std::vector<fs::path> paths = yaml_files_in(case_folder());
    folder_.emplace();
    for (const fs::path& path : paths) {
      for (Draft& draft : expand(file(path))) folder_->push_back(std::move(draft));
    }
    return *folder_;
  }

  // What one selector means, before --set.
  std::vector<Draft> meant_by(const std::string& selector) {
    if (is_case_file(selector)) return expand(file(selector));
    std::vector<Draft> meant;
    for (const Draft& draft : folder())
      if (draft.file->name == selector || matches_glob(selector, draft.id)) meant.push_back(draft);
    return meant;
  }

 private:
  std::deque<CaseFile> files_;
  std::optional<std::vector<Draft>> folder_;
};

[[noreturn]] void fail_unknown(const std::string& selector, const std::vector<Draft>& drafts) {
  std::vector<std::string> known;
  for (const Draft& draft : drafts) {
    if (known.empty() || known.back() != draft.file->name) known.push_back(draft.file->name);
  }
  for (const Draft& draft : drafts) known.push_back(draft.id);
  if (known.empty())
    throw UserError(
        fmt::format("{}: has no case in it; put case files there, or set "
                    "GDNBENCH_CASES to the folder of them",
                    case_folder().string()));
  const std::string guess = did_you_mean(selector, known);
  throw UserError(fmt::format("--case {}: no case of that name in {}{}", selector,
                              case_folder().string(),
                              guess.empty() ? "; `gdnbench list cases` shows them" : guess));
}

}  // namespace

bool is_case_file(const std::string& selector) {
  return selector.find('/') != std::string::npos || is_yaml(selector);
}

std::vector<fs::path> case_files(const std::vector<std::string>& selectors) {
  std::vector<fs::path> files;
  bool by_name = selectors.empty();
  for (const std::string& selector : selectors) {
    if (is_case_file(selector)) {
      files.emplace_back(selector);
    } else {
      by_name = true;
    }
  }
  if (by_name) std::ranges::copy(yaml_files_in(case_folder()), std::back_inserter(files));
  return files;
}

fs::path case_folder() { return folder_named("cases", "GDNBENCH_CASES", "case files"); }

std::vector<Case> select_cases(const std::vector<std::string>& selectors,
                               const std::vector<Override>& overrides, std::size_t memory_bytes) {
  const std::vector<Setting> settings = read_overrides(overrides);
  Library library;
  std::vector<Draft> selected;
  for (const std::string& selector :
       selectors.empty() ? std::vector<std::string>{"*"} : selectors) {
    const std::vector<Draft> meant = library.meant_by(selector);
    if (meant.empty()) fail_unknown(selector, library.folder());
    for (const Draft& draft : meant) selected.push_back(with_settings(draft, settings));
  }
  return to_cases(selected, memory_bytes);
}

std::optional<std::string> selector_of(const std::string& name, const std::string& selector,
                                       const std::vector<Override>& overrides) {
  const std::vector<Setting> settings = read_overrides(overrides);
  Library library;
  for (const Draft& draft : library.meant_by(selector))
    if (with_settings(draft, settings).id == name)
      return is_case_file(selector) ? selector : draft.id;
  return std::nullopt;
}

}  // namespace gdn
