#include "kernels/cuda/two_pass_plan.hpp"

#include <algorithm>
#include <functional>
#include <queue>

namespace gdn {
namespace {

// In tenths of a microsecond. From what rungs 8 and 9 took on an H200: of a chunk with output in a
// CTA of 128 and of 64 values, and of one without. As predicted (two_pass.cu): of a step of the
// scan, and of two launches more.
constexpr int wide_output = 19, narrow_output = 13, transition = 12, scan_step = 6,
              two_launches = 50;
// Chunks that the beginning and the end of a CTA take as long as.
constexpr int chunks_around = 2;

int chunks_in(const Part& part) { return part.end - part.first; }
int ceiling(int a, int b) { return (a + b - 1) / b; }

template <class Count>
Plan plan_into(const Problem& problem, Count segments_of) {
  Plan plan;
  for (int s = 0; s < problem.sequences(); ++s) {
    const int length = problem.length(s), chunks = chunks_of(length);
    const std::int64_t count = std::clamp(segments_of(chunks), 1, std::max(chunks, 1));
    for (int i = 0; i < count; ++i) {
      const Part part = {.sequence = s,
                         .token = problem.offsets[s],
                         .length = length,
                         .first = static_cast<std::int32_t>(chunks * i / count),
                         .end = static_cast<std::int32_t>(chunks * (i + 1) / count),
                         .boundary = plan.boundaries + i};
      plan.outputs.push_back(part);
      if (i + 1 < count) plan.transitions.push_back(part);
    }
    const int inner = static_cast<int>(count) - 1;
    if (inner > 0) plan.scans.push_back({plan.boundaries, inner});
    plan.boundaries += inner;
  }
  for (auto* parts : {&plan.outputs, &plan.transitions}) {
    std::ranges::stable_sort(*parts, std::greater(), [](const Part& p) { return chunks_in(p); });
  }
  return plan;
}

// Until when `processors` are busy, in chunks, if `ctas(part)` go through each part, in this order.
template <class Count>
int makespan(const std::vector<Part>& parts, int processors, Count ctas) {
  std::priority_queue<int, std::vector<int>, std::greater<>> free_at;
  for (int i = 0; i < processors; ++i) free_at.push(0);
  int end = 0;
  for (const Part& part : parts) {
    for (int i = 0; i < ctas(part); ++i) {
      const int done = free_at.top() + chunks_in(part) + chunks_around;
      free_at.pop();
      free_at.push(done);
      end = std::max(end, done);
    }
  }
  return end;
}

int cost_of_output(int slices) { return slices == 1 ? wide_output : narrow_output; }

int cost_before_outputs(const Plan& plan, const Problem& problem, int processors) {
  if (plan.boundaries == 0) return 0;
  const int heads = problem.value_heads;
  const int transitions = makespan(plan.transitions, processors, [&](const Part& part) {
    return part.first == 0 ? heads : 2 * heads;  // the first segment of a sequence needs no M
  });
  const int steps = std::ranges::max(plan.scans, {}, &Boundaries::count).count - 1;
  return transitions * transition + steps * scan_step + two_launches;
}

int cost(const Plan& plan, const Problem& problem, int processors, int slices) {
  const int outputs =
      makespan(plan.outputs, processors, [&](const Part&) { return problem.value_heads * slices; });
  return outputs * cost_of_output(slices) + cost_before_outputs(plan, problem, processors);
}

}  // namespace

int Plan::longest() const { return outputs.empty() ? 0 : chunks_in(outputs.front()); }

int Plan::reach() const { return std::max(longest(), 8); }

Plan plan(const Problem& problem, int segments) {
  return plan_into(problem, [=](int) { return segments; });
}

Plan plan_for(const Problem& problem, int processors, int slices) {
  const int longest = static_cast<int>(problem.chain_chunks());
  Plan best = plan(problem, 1);
  int least = cost(best, problem, processors, slices);
  for (int segments = 2; segments <= std::min(longest, processors); ++segments) {
    const int own = ceiling(longest, segments);
    Plan next = plan_into(problem, [=](int chunks) { return ceiling(chunks, own); });
    const int time = cost(next, problem, processors, slices);
    if (time < least) best = std::move(next), least = time;
  }
  return best;
}

double chunks_before_outputs(const Plan& plan, const Problem& problem, int processors, int slices) {
  return static_cast<double>(cost_before_outputs(plan, problem, processors)) /
         cost_of_output(slices);
}

}  // namespace gdn
