// BASE against HEAD: two reports, matched row by row, without a device.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/error.hpp"
#include "src/result.hpp"
#include "src/statistics.hpp"

namespace gdn {

enum class Verdict { same, faster, slower, inconclusive, incorrect, missing, added, skipped };

struct CompareOptions {
  double threshold_percent = 2;
  std::string thresholds_file;  // YAML: `default: 2`, `cases: {glob: percent, …}`; "" for none
  bool force = false;           // compare although device, driver, inputs or schema differ
};

struct ComparedRow {
  std::string case_name, variant;
  Scope scope;
  Timing timing;
  double base_s = 0, head_s = 0;  // medians; 0 where there is none
  Ratio ratio;                    // head / base
  double threshold_percent = 0;
  Verdict verdict = Verdict::same;
  std::string reason;
};

struct Comparison {
  std::vector<ComparedRow> rows;
  double geomean = 1;      // of head / base over rows with both times
  int timed_rows = 0;
  std::vector<std::string> warnings;  // what --force let pass
  Exit exit = Exit::fine;
};

// Throws UserError (exit 4) when the two may not be compared.
Comparison compare(const Report& base, const Report& head, const CompareOptions& options);

std::string_view name_of(Verdict verdict);

}  // namespace gdn
