// Numbers and foreign words as the reports print them.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "src/result.hpp"

namespace gdn {

// Columns that a terminal needs for the text: its code points, as every character of ours is one.
std::size_t width(std::string_view utf8);

// On one line and harmless to a terminal or an XML file: control characters become spaces, bytes
// that are not UTF-8 become U+FFFD. Names and reasons may come from a file or a driver.
std::string printable(std::string_view text);

// `digits` significant ones, never an exponent: "0.05123", "56.70", "1234". "—" if not finite.
std::string significant(double value, int digits);

std::string percent(double share);  // of 1, two significant digits: "0.42 %"

// From the median to the farther end of its interval: "±0.42 %"; "—" where there is none.
std::string half_width(double median, const std::optional<std::pair<double, double>>& ci95);

// The text at a key, printable; `absent` where there is none.
std::string text_at(const nlohmann::json& object, const char* key, std::string_view absent);

// "tuned: as for chain_equal, distance 0.80".
std::string note_on(const TunedAs& tuned);
std::string note_on(const ChosenAs& chosen);

// What a flag of a row means, in a sentence; "" for one that is not known.
std::string_view meaning_of_flag(std::string_view flag);

}  // namespace gdn
