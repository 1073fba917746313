// How long CTAs take side by side: the host's model of a launch, for what is planned by its time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gdn {

// Processors that do one CTA at a time, by when each is free.
class Processors {
 public:
  explicit Processors(int count) : free_at_(count) {}

  // That many CTAs more, equal ones, each to the processor that is free first.
  void add(std::int64_t ctas, std::int64_t time) {
    const auto first = free_at_.begin(), end = free_at_.end();
    const std::int64_t all = end - first;
    while (ctas > 0) {
      // Those that are free before the first one has its second CTA have one each; and if these are
      // all, it is like that round after round.
      const std::int64_t in_round = std::upper_bound(first, end, *first + time) - first;
      const std::int64_t rounds = in_round == all ? std::max<std::int64_t>(ctas / all, 1) : 1;
      const std::int64_t busy = std::min(ctas, in_round);
      for (auto it = first; it != first + busy; ++it) *it += rounds * time;
      std::inplace_merge(first, first + busy, end);
      ctas -= rounds * busy;
    }
  }
  std::int64_t all_free() const { return free_at_.back(); }

 private:
  std::vector<std::int64_t> free_at_;  // in ascending order
};

// Until when `processors` are busy, if `ctas(item)` go through each item for `time(item)`, in this
// order.
template <class Item, class Count, class Time>
std::int64_t makespan(const std::vector<Item>& items, int processors, Count ctas, Time time) {
  Processors all(processors);
  for (const Item& item : items) all.add(ctas(item), time(item));
  return all.all_free();
}

}  // namespace gdn
