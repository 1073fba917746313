// What is seen while a run goes on: one changing line on a terminal, a line a row when piped.
#pragma once

#include <cstddef>
#include <string>

#include "src/result.hpp"

namespace gdn {

class Progress {
 public:
  explicit Progress(std::size_t total);
  ~Progress();

  void doing(const std::string& case_name, const std::string& variant, Scope scope, Timing timing);
  void skip();  // a row that an earlier run has measured
  void finished(const Row& row);
  void clear() const;  // before something else is printed

 private:
  std::size_t total_;
  std::size_t done_ = 0;
  bool terminal_;
};

}  // namespace gdn
