// How much slower a case may get, in per cent: one number, or a YAML file with globs over cases.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gdn {

class Thresholds {
 public:
  explicit Thresholds(double percent) : default_percent_(percent) {}

  // `default: 3` (optional: else `percent`) and `cases: {"wide_*": 5}`. Throws UserError
  // "file:line:column: what; remedy".
  static Thresholds read(const std::string& path, double percent);

  // Of the first glob, in the order of the file, that matches the case.
  double percent_for(std::string_view case_name) const;

  // "thresholds.yaml:3:3: "wide_*" matches no case compared", for each such glob.
  std::vector<std::string> unused(const std::vector<std::string>& case_names) const;

 private:
  struct Entry {
    std::string glob;
    double percent;
    std::string place;
  };

  double default_percent_;
  std::vector<Entry> entries_;
};

}  // namespace gdn
