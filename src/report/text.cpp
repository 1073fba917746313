#include "src/report/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "src/report/render.hpp"

namespace gdn {
namespace {

using Sentence = std::pair<std::string_view, std::string_view>;

constexpr std::array flag_meanings = {
    Sentence{"noisy", "the 95 % interval of the median is wider than --max-noise, or absent"},
    Sentence{"few_samples", "fewer than 6 samples: no interval, and no verdict in a comparison"},
    Sentence{"timeout", "--timeout ended the sampling before all wanted samples were taken"},
    Sentence{"keys_not_normalised", "the keys are not of unit length: the recurrence may grow"},
    Sentence{"throttled", "the device lowered its clocks while it was measured"},
    Sentence{"events_only", "no CUPTI here: device time is that between two events"},
    Sentence{"timers_disagree", "CUPTI and events differ by more than their resolution explains"},
    Sentence{"cupti_failed", "the CUPTI pass saw less than ran (telemetry.cupti): no kernel times"},
    Sentence{"unknown_kernel", "a kernel ran that is no stage of the variant: see kernels"},
    Sentence{"gate_expired", "launches were not queued in time: host cost is inside the times"},
    Sentence{"not_queued",
             "under a profiler or CUDA_LAUNCH_BLOCKING: host cost is inside the times"},
};

// The length of the UTF-8 sequence that starts `text`, 0 for none (RFC 3629, section 4).
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto continues = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      if ((byte(i) & 0xC0U) != 0x80U) return false;
    }
    return true;
  };
  const unsigned first = byte(0);
  const unsigned second = byte(1);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return continues(1, 2) ? 2 : 0;
  if (first == 0xE0 && second < 0xA0) return 0;  // overlong
  if (first == 0xED && second > 0x9F) return 0;  // a surrogate
  if (first >= 0xE0 && first <= 0xEF) return continues(1, 3) ? 3 : 0;
  if (first == 0xF0 && second < 0x90) return 0;  // overlong
  if (first == 0xF4 && second > 0x8F) return 0;  // past U+10FFFF
  if (first >= 0xF0 && first <= 0xF4) return continues(1, 4) ? 4 : 0;
  return 0;
}

// C0, DEL and C1: a terminal takes them for commands.
bool is_control(std::string_view sequence) {
  const auto first = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return first < 0x20 || first == 0x7F;
  return first == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
}

}  // namespace

std::size_t width(std::string_view utf8) {
  return static_cast<std::size_t>(std::count_if(utf8.begin(), utf8.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const std::string_view sequence = text.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0) {
      result += "\uFFFD";
    } else if (is_control(sequence)) {
      result += ' ';
    } else {
      result += sequence;
    }
    text.remove_prefix(sequence.size());
  }
  return result;
}

std::string significant(double value, int digits) {
  if (!std::isfinite(value)) return "—";
  if (value == 0) return "0";
  // The exponent after rounding: 999.96 has four digits before the point.
  const std::string rounded = fmt::format("{:.{}e}", value, digits - 1);
  const int exponent = std::stoi(rounded.substr(rounded.find('e') + 1));
  return fmt::format("{:.{}f}", value, std::clamp(digits - 1 - exponent, 0, 12));
}

std::string percent(double share) { return significant(100 * share, 2) + " %"; }

std::string half_width(double median, const std::optional<std::pair<double, double>>& ci95) {
  if (!ci95 || median <= 0) return "—";
  return "±" + percent(std::max(median - ci95->first, ci95->second - median) / median);
}

std::string format_time(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "—";
  if (seconds == 0) return "0 s";
  // The unit after rounding to four digits: 999.96 µs is 1.000 ms.
  const double rounded = std::strtod(fmt::format("{:.3e}", seconds).c_str(), nullptr);
  if (rounded >= 1) return significant(seconds, 4) + " s";
  if (rounded >= 1e-3) return significant(seconds * 1e3, 4) + " ms";
  if (rounded >= 1e-6) return significant(seconds * 1e6, 4) + " µs";
  return significant(seconds * 1e9, 4) + " ns";
}

std::string text_at(const nlohmann::json& object, const char* key, std::string_view absent) {
  const bool there = object.is_object() && object.contains(key) && object[key].is_string();
  return there ? printable(object[key].get_ref<const std::string&>()) : std::string(absent);
}

std::string note_on(const TunedAs& tuned) {
  const std::string name = printable(tuned.case_name);
  if (tuned.exact) return fmt::format("tuned: for this very problem, as {}", name);
  return fmt::format("tuned: as for {} in {} timing, distance {}", name, name_of(tuned.timing),
                     significant(tuned.distance, 2));
}

std::string note_on(const ChosenAs& chosen) {
  return fmt::format("auto: {}; {} by the model", printable(chosen.reason),
                     format_time(chosen.predicted_s));
}

std::string_view meaning_of_flag(std::string_view flag) {
  const auto* found = std::find_if(flag_meanings.begin(), flag_meanings.end(),
                                   [&](const Sentence& s) { return s.first == flag; });
  return found == flag_meanings.end() ? std::string_view() : found->second;
}

}  // namespace gdn
