// BASE against HEAD: two reports, matched row by row, without a device.
#pragma once

#include <string>
#include <vector>

#include "src/error.hpp"
#include "src/result.hpp"
#include "src/statistics.hpp"
#include "src/verdict.hpp"

namespace gdn {

struct CompareOptions {
  double threshold_percent = 2;
  // YAML: `default: 2`, which goes before threshold_percent, and `cases: {glob: percent, …}`, of
  // which the first that matches counts; "" for none.
  std::string thresholds_file;
  bool force = false;  // compare although device, driver, inputs, timer or flush differ
};

struct ComparedRow {
  std::string case_name, variant;
  Scope scope = Scope::core;
  Timing timing = Timing::cold;
  double base_s = 0, head_s = 0;  // medians of what is compared; 0 where there is nothing
  Ratio ratio;                    // head / base
  double threshold_percent = 0;
  Verdict verdict = Verdict::same;
  std::string reason;
};

struct Comparison {
  std::vector<ComparedRow> rows;      // in BASE's order, then what only HEAD has
  double geomean = 1;                 // of head / base over rows with both times
  int timed_rows = 0;                 // how many those are
  double confidence = 0.95;           // of each row's interval, so that all hold at 95 %
  std::vector<std::string> warnings;  // what --force let pass, thresholds that match no case
  Exit exit = Exit::fine;
};

// Throws UserError (exit 4) when the two may not be compared.
Comparison compare(const Report& base, const Report& head, const CompareOptions& options);

// What makes the times of two reports incomparable (device, driver, inputs, timer, flush), each in
// one sentence; none where they may be compared.
std::vector<std::string> differences(const Report& base, const Report& head);

// What the row alone makes of the exit code. An inconclusive row whose whole interval lies below 1
// is a gain of uncertain size, and gains never fail.
Exit exit_of(const ComparedRow& row);

}  // namespace gdn
