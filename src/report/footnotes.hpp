// Notes to a table, numbered as they come.
#pragma once

#include <string>
#include <vector>

namespace gdn {

class Footnotes {
 public:
  // " ¹ ²": the marks of these notes, to stand behind a cell.
  std::string mark(const std::vector<std::string>& notes);

  // "¹ noisy: what it means": all of them, flags with their meaning.
  std::vector<std::string> notes() const;

 private:
  std::vector<std::string> notes_;
};

}  // namespace gdn
