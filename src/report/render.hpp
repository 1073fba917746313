// A report, a comparison or wisdom as text. Pure functions: one file each beside this header.
#pragma once

#include <string>
#include <vector>

#include "src/compare.hpp"
#include "src/result.hpp"
#include "src/wisdom.hpp"

namespace gdn {

// Tables for people, one per case: variant, median, interval, gain over the first row of the same
// scope and timing, step over the fastest instance of the rung before, TFLOP/s, GB/s, µs per chunk
// of the serial chain, error, verdict; the flags explained below. `options["shapes"][case]`, where
// a run wrote it, describes the case.
std::string console(const Report& report, bool colour);
std::string console(const Comparison& comparison, bool colour);
// Whether an entry still holds is judged by `now`, a fingerprint of today.
std::string console(const Wisdom& wisdom, const nlohmann::json& now, bool colour);

std::string json(const Report& report);
std::string csv(const Report& report);  // RFC 4180, one row a line, units in the column names

std::string csv(const Wisdom& wisdom);

// A header for C++17 that stands alone: a table of the winners, and a lookup of the nearest.
std::string cpp_header(const Wisdom& wisdom);

std::string markdown(const Report& report);
std::string markdown(const Comparison& comparison);  // for a pull request

// For CI. Throws UserError in a build without pugixml.
std::string junit(const Comparison& comparison);

// One table of medians, a row a variant and a column a case, for a document; "" when there is none.
std::string ladder(const Report& report, Scope scope, Timing timing);

// A page on what each knob and each rung is worth, as ratios of medians; "" when there is no row.
// `beside`: reports of the same rows that differ in --schedule or --batch.
std::string knobs(const Report& report, const std::vector<Report>& beside, Scope scope,
                  Timing timing);

// "1.234 ms", "56.70 µs": four significant digits.
std::string format_time(double seconds);

}  // namespace gdn
