#include "kernels/cuda/two_pass_plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <queue>

namespace gdn {
namespace {

// In tenths of a microsecond, from what an H200 took: of a chunk with output in a CTA of 128 and of
// 64 values, and of one without; of a step of the scan, or of one that outputs begin with; and of
// two launches more.
constexpr int wide_output = 19, narrow_output = 13, transition = 12, scan_step = 12,
              two_launches = 50;
// Chunks that the beginning and the end of a CTA take as long as.
constexpr int chunks_around = 2;

int chunks_in(const Part& part) { return part.end - part.first; }
int ceiling(int a, int b) { return (a + b - 1) / b; }
int root(int x) {
  int root = 1;
  while (root * root < x) ++root;
  return root;
}

template <class Count>
Plan plan_into(const Problem& problem, Count segments_of, bool in_groups) {
  Plan plan;
  for (int s = 0; s < problem.sequences(); ++s) {
    const int length = problem.length(s), chunks = chunks_of(length);
    const std::int64_t count = std::clamp(segments_of(chunks), 1, std::max(chunks, 1));
    const int inner = static_cast<int>(count) - 1, group = in_groups ? root(inner) : inner;
    for (int i = inner; i >= 0; --i) {
      const Part part = {.sequence = s,
                         .token = problem.offsets[s],
                         .length = length,
                         .first = static_cast<std::int32_t>(chunks * i / count),
                         .end = static_cast<std::int32_t>(chunks * (i + 1) / count),
                         .boundary = plan.boundaries + i,
                         .first_boundary = plan.boundaries,
                         .group = group};
      plan.outputs.push_back(part);
      if (i < inner) plan.transitions.push_back(part);
    }
    for (int first = 0; first + 1 < inner; first += group) {
      const int size = std::min(group, inner - first);
      if (size == 1) continue;
      plan.scans.push_back({plan.boundaries + first, size, false});
      if (first > 0) plan.scans.push_back({plan.boundaries + first, size, true});
    }
    plan.boundaries += inner;
  }
  for (auto* parts : {&plan.outputs, &plan.transitions}) {
    std::ranges::stable_sort(*parts, std::greater(), chunks_in);
  }
  return plan;
}

// Until when `processors` are busy, if `ctas(item)` go through each item for `time(item)`, in this
// order.
template <class Item, class Count, class Time>
int makespan(const std::vector<Item>& items, int processors, Count ctas, Time time) {
  std::priority_queue<int, std::vector<int>, std::greater<>> free_at;
  for (int i = 0; i < processors; ++i) free_at.push(0);
  int end = 0;
  for (const Item& item : items) {
    for (int i = 0; i < ctas(item); ++i) {
      const int done = free_at.top() + time(item);
      free_at.pop();
      free_at.push(done);
      end = std::max(end, done);
    }
  }
  return end;
}

int cost(const Plan& plan, const Problem& problem, int processors, int slices) {
  const int heads = problem.value_heads;
  const int output = slices == 1 ? wide_output : narrow_output;
  const int outputs = makespan(
      plan.outputs, processors, [&](const Part&) { return heads * slices; },
      [&](const Part& part) {
        return (chunks_in(part) + chunks_around) * output + part.groups_before() * scan_step;
      });
  if (plan.boundaries == 0) return outputs;
  const int transitions = makespan(
      plan.transitions, processors,
      [&](const Part& part) {
        return part.first == 0 ? heads : 2 * heads;  // the first segment of a sequence needs no M
      },
      [](const Part& part) { return (chunks_in(part) + chunks_around) * transition; });
  const int scans = makespan(
      plan.scans, processors, [&](const Boundaries&) { return 2 * heads; },
      [](const Boundaries& group) { return (group.count - 1) * scan_step; });
  return transitions + scans + outputs + two_launches;
}

struct Timed {
  Plan plan;
  int time;
};

// In one group a sequence, or in more where that takes less time.
template <class Count>
Timed best_into(const Problem& problem, Count segments_of, int processors, int slices) {
  Timed best = {plan_into(problem, segments_of, false), 0};
  best.time = cost(best.plan, problem, processors, slices);
  Timed other = {plan_into(problem, segments_of, true), 0};
  other.time = cost(other.plan, problem, processors, slices);
  return other.time < best.time ? other : best;
}

}  // namespace

int Plan::longest() const { return outputs.empty() ? 0 : chunks_in(outputs.front()); }

int Plan::reach() const { return std::max(longest() / 4, 6); }

int Plan::steps() const {
  int scan = 0, output = 0;
  for (const Boundaries& group : scans) scan = std::max(scan, group.count - 1);
  for (const Part& part : outputs) output = std::max(output, part.groups_before());
  return scan + output;
}

Plan plan(const Problem& problem, int segments, int processors, int slices) {
  return best_into(
             problem, [=](int) { return segments; }, processors, slices)
      .plan;
}

Plan plan_for(const Problem& problem, int processors, int slices) {
  const int longest = static_cast<int>(problem.chain_chunks());
  Timed best = {{}, std::numeric_limits<int>::max()};
  for (int segments = 1; segments <= std::max(1, std::min(longest, processors)); ++segments) {
    const int own = std::max(1, ceiling(longest, segments));
    Timed next = best_into(
        problem, [=](int chunks) { return ceiling(chunks, own); }, processors, slices);
    if (next.time < best.time) best = std::move(next);
  }
  return best.plan;
}

}  // namespace gdn
