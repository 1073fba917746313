// Wisdom as a table: what won where, how sure that is, and whether it still holds.
#include <fmt/format.h>

#include <algorithm>

#include "src/report/footnotes.hpp"
#include "src/report/render.hpp"
#include "src/report/table.hpp"
#include "src/report/text.hpp"

namespace gdn {
namespace {

// "1 seq, 8192 tokens, 4/4 heads, random_decay"
std::string shape_of(const WisdomEntry& entry) {
  const Problem& problem = entry.problem;
  std::int32_t longest = 0;
  for (int s = 0; s < problem.sequences(); ++s) longest = std::max(longest, problem.length(s));
  return fmt::format(
      "{} seq, {} tokens{}, {}/{} heads{}, {}{}", problem.sequences(), problem.tokens(),
      problem.sequences() > 1 ? fmt::format(" (longest {})", longest) : "", problem.query_heads,
      problem.value_heads, problem.initial_state ? ", state" : "", name_of(entry.gates),
      entry.beta_max != 1 ? fmt::format(", beta to {}", entry.beta_max) : "");
}

// "racing, 24 of 24 tried, 4 fully"
std::string completeness(const WisdomEntry::Search& search) {
  return fmt::format("{}, {} of {} tried, {} fully{}", printable(search.strategy), search.evaluated,
                     search.candidates, search.evaluated_fully,
                     search.limited ? ", ended by a limit" : "");
}

Line line(const WisdomEntry& entry, const nlohmann::json& now, Footnotes& footnotes) {
  const std::vector<std::string> stale = staleness(entry, now);
  std::vector<std::string> doubts = stale;
  doubts.insert(doubts.end(), entry.flags.begin(), entry.flags.end());
  return {{printable(entry.case_name), shape_of(entry), std::string(name_of(entry.scope)),
           std::string(name_of(entry.timing)), printable(entry.winner.variant),
           format_time(entry.winner.median_s), half_width(entry.winner.median_s, entry.winner.ci95),
           std::to_string(entry.tied.size()), completeness(entry.search),
           entry.tuned_at.substr(0, entry.tuned_at.find('T')),
           (stale.empty() ? "holds" : "stale") + footnotes.mark(doubts)},
          doubts.empty() ? Tone::good : Tone::warning};
}

}  // namespace

Table table(const Wisdom& wisdom, const nlohmann::json& now) {
  Table table{.title = printable(wisdom.device),
              .subtitle = fmt::format("{} problem{}", wisdom.entries.size(),
                                      wisdom.entries.size() == 1 ? "" : "s"),
              .columns = {{"tuned as"},
                          {"shape"},
                          {"scope"},
                          {"timing"},
                          {"winner"},
                          {"median", true},
                          {"±", true},
                          {"tied", true},
                          {"search"},
                          {"tuned on"},
                          {"today"}},
              .groups = {{}},
              .notes = {}};
  Footnotes footnotes;
  for (const WisdomEntry& entry : wisdom.entries)
    table.groups[0].lines.push_back(line(entry, now, footnotes));
  table.notes = footnotes.notes();
  return table;
}

}  // namespace gdn
