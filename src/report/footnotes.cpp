#include "src/report/footnotes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "src/report/text.hpp"

namespace gdn {
namespace {

std::string superscript(std::size_t number) {
  constexpr std::array digits = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string text;
  for (const char c : std::to_string(number)) text += digits[static_cast<std::size_t>(c - '0')];
  return text;
}

}  // namespace

std::string Footnotes::mark(const std::vector<std::string>& notes) {
  std::string marks;
  for (const std::string& note : notes) {
    auto found = std::find(notes_.begin(), notes_.end(), note);
    if (found == notes_.end()) found = notes_.insert(notes_.end(), note);
    marks += " " + superscript(static_cast<std::size_t>(found - notes_.begin()) + 1);
  }
  return marks;
}

std::vector<std::string> Footnotes::notes() const {
  std::vector<std::string> notes;
  for (std::size_t i = 0; i < notes_.size(); ++i) {
    const std::string_view meaning = meaning_of_flag(notes_[i]);
    notes.push_back(fmt::format("{} {}{}{}", superscript(i + 1), printable(notes_[i]),
                                meaning.empty() ? "" : ": ", meaning));
  }
  return notes;
}

}  // namespace gdn
