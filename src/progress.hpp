// What is seen while a run goes on: one changing line on a terminal, a line a row when piped.
#pragma once

#include <cstddef>
#include <string>

#include "src/result.hpp"

namespace gdn {

class Progress {
 public:
  Progress(std::size_t rows, int rounds);
  ~Progress();

  void begin_round(int round);
  void doing(const std::string& case_name, const std::string& variant, Scope scope, Timing timing);
  void skip();  // a row that needs no more of this round
  void finished(const Row& row);
  void clear() const;  // before something else is printed

 private:
  std::string place(std::size_t number) const;

  std::size_t total_;
  std::size_t done_ = 0;
  int rounds_;
  int round_ = 1;
  bool terminal_;
};

// The same of searches: what is asked now, and the best so far. One of these for each device.
class SearchProgress {
 public:
  explicit SearchProgress(std::size_t problems);
  ~SearchProgress();

  // The problem's number, from 1 on, and its name: "short_tail_state core cold".
  void begin(std::size_t number, const std::string& problem);
  void doing(const std::string& what) const;
  void finished(const std::string& what, const std::string& outcome) const;
  void best(const std::string& what) { best_ = what; }
  void clear() const;

 private:
  std::string place() const;

  std::size_t total_;
  std::size_t number_ = 0;
  std::string problem_, best_;
  bool terminal_;
};

}  // namespace gdn
