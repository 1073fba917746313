// What is said of a row that was compared with another.
#pragma once

#include <array>
#include <string_view>

namespace gdn {

// same, faster, slower: the whole interval of the ratio lies within, below or above a threshold.
// missing: not skipped in BASE, but skipped or absent in HEAD. added: passes, and did not in BASE.
enum class Verdict {
  same,
  faster,
  slower,
  inconclusive,
  incorrect,
  failed,
  missing,
  added,
  skipped
};

inline constexpr std::array verdicts = {  // worst first
    Verdict::incorrect, Verdict::failed, Verdict::missing, Verdict::slower, Verdict::inconclusive,
    Verdict::faster,    Verdict::same,   Verdict::added,   Verdict::skipped};

std::string_view name_of(Verdict verdict);

}  // namespace gdn
