#include "kernels/cuda/two_pass_plan.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "kernels/cuda/makespan.hpp"

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
int output_time(int slices) { return slices == 1 ? wide_output : narrow_output; }
// As many as wanted, but no empty ones, and at least one.
std::int64_t segments_in(int chunks, int wanted) {
  return std::clamp(wanted, 1, std::max(chunks, 1));
}
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
    const std::int64_t count = segments_in(chunks, segments_of(chunks));
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

std::int64_t cost(const Plan& plan, const Problem& problem, int processors, int slices) {
  const int heads = problem.value_heads;
  const std::int64_t outputs = makespan(
      plan.outputs, processors, [&](const Part&) { return heads * slices; },
      [&](const Part& part) {
        return (chunks_in(part) + chunks_around) * output_time(slices) +
               part.groups_before() * scan_step;
      });
  if (plan.boundaries == 0) return outputs;
  const std::int64_t transitions = makespan(
      plan.transitions, processors,
      [&](const Part& part) {
        return part.first == 0 ? heads : 2 * heads;  // the first segment of a sequence needs no M
      },
      [](const Part& part) { return (chunks_in(part) + chunks_around) * transition; });
  const std::int64_t scans = makespan(
      plan.scans, processors, [&](const Boundaries&) { return 2 * heads; },
      [](const Boundaries& group) { return (group.count - 1) * scan_step; });
  return transitions + scans + outputs + two_launches;
}

// What no plan of these segments costs less than: no processor is ever idle, and no step is taken.
template <class Count>
std::int64_t least_cost(const Problem& problem, Count segments_of, int processors, int slices) {
  std::int64_t outputs = 0, transitions = 0;  // chunks
  for (int s = 0; s < problem.sequences(); ++s) {
    const int chunks = chunks_of(problem.length(s));
    const std::int64_t inner = segments_in(chunks, segments_of(chunks)) - 1;
    outputs += chunks + (inner + 1) * chunks_around;
    if (inner == 0) continue;
    transitions += 2 * (chunks * inner / (inner + 1) + inner * chunks_around) -
                   (chunks / (inner + 1) + chunks_around);
  }
  return problem.value_heads * (slices * output_time(slices) * outputs + transition * transitions) /
             processors +
         (transitions > 0 ? two_launches : 0);
}

// The plan that takes the least time of those that were tried; of equal ones the first.
class Cheapest {
 public:
  Cheapest(const Problem& problem, int processors, int slices)
      : problem_(problem), processors_(processors), slices_(slices) {}

  // In one group a sequence, and in more.
  template <class Count>
  void try_into(Count segments_of) {
    if (least_cost(problem_, segments_of, processors_, slices_) >= time_) return;
    for (const bool in_groups : {false, true}) {
      Plan next = plan_into(problem_, segments_of, in_groups);
      const std::int64_t time = cost(next, problem_, processors_, slices_);
      if (time < time_) plan = std::move(next), time_ = time;
    }
  }

  Plan plan;

 private:
  const Problem& problem_;
  int processors_, slices_;
  std::int64_t time_ = std::numeric_limits<std::int64_t>::max();
};

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
  Cheapest cheapest(problem, processors, slices);
  cheapest.try_into([=](int) { return segments; });
  return std::move(cheapest.plan);
}

Plan plan_for(const Problem& problem, int processors, int slices) {
  Cheapest cheapest(problem, processors, slices);
  const int longest = std::max(1, static_cast<int>(problem.chain_chunks()));
  int before = 0;
  for (int segments = 1; segments <= std::min(longest, processors); ++segments) {
    const int own = ceiling(longest, segments);
    if (own == before) continue;  // the same segments again
    before = own;
    cheapest.try_into([=](int chunks) { return ceiling(chunks, own); });
  }
  return std::move(cheapest.plan);
}

}  // namespace gdn
