#include "src/suggest.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <vector>

namespace gdn {
namespace {

constexpr std::size_t longest_word = 128;  // beyond this nobody mistyped a name of ours

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Insertions, deletions, substitutions and swaps of neighbours (optimal string alignment), without
// regard to case.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before_last.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                           lower(a[i - 2]) == lower(b[j - 1]);
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[b.size()];
}

}  // namespace

std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 48;
  std::string shown(text.substr(0, longest));
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return "\"" + shown + (text.size() > longest ? "...\"" : "\"");
}

std::optional<std::string> closest(std::string_view word, std::span<const std::string> known) {
  if (word.empty() || word.size() > longest_word) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = std::numeric_limits<std::size_t>::max();
  for (const std::string& name : known) {
    // A third of the letters may be wrong; more would suggest names that merely are as long.
    const std::size_t allowed = std::max<std::size_t>(1, std::max(word.size(), name.size()) / 3);
    const std::size_t distance = edit_distance(word, name);
    const bool related = distance <= allowed && distance < std::max(word.size(), name.size());
    if (related && distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> known) {
  const auto name = closest(word, known);
  return name ? "; did you mean \"" + *name + "\"?" : "";
}

bool matches_glob(std::string_view glob, std::string_view id) {
  return fnmatch(std::string(glob).c_str(), std::string(id).c_str(), 0) == 0;
}

}  // namespace gdn
