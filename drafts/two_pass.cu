// Rung 10: segments side by side whatever the gates, by their transitions and a scan
// (two_pass_chain.cuh, form 6 of kernels/README.md). Rung 9 waits until the gates have forgotten
// what was before a segment; with weak gates that takes it back to the sequence's beginning.
#include <cuda_runtime.h>

#include "drafts/drafts.hpp"
#include "drafts/two_pass_chain.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::gpu {
namespace {

using sm90::Boundary, sm90::Join, sm90::KeptState, sm90::TwoPassScan;

int processors() {
  int device = 0, count = 0;
  throw_on_error(cudaGetDevice(&device), "cudaGetDevice");
  throw_on_error(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                 "cudaDeviceGetAttribute");
  return count;
}

// The plan's lists and what the launches hand to each other, one behind the other in the workspace.
class Room {
 public:
  Room(const Plan& plan, int heads, void* workspace) : next_(static_cast<std::byte*>(workspace)) {
    const std::size_t boundaries = std::size_t{1} * plan.boundaries * heads;
    take(outputs, plan.outputs.size());
    take(transitions, plan.transitions.size());
    take(scans, plan.scans.size());
    take(boundary.states, 2 * boundaries);
    take(boundary.M, boundaries * Boundary::matrix);
    take(boundary.joins, boundaries);
    boundary.heads = heads;
  }
  std::size_t bytes() const { return bytes_; }

  Part *outputs, *transitions;
  Boundaries* scans;
  Boundary boundary;

 private:
  template <class T>
  void take(T*& place, std::size_t count) {
    constexpr std::size_t alignment = 16;
    place = reinterpret_cast<T*>(next_ + bytes_);
    bytes_ += (count * sizeof(T) + alignment - 1) / alignment * alignment;
  }

  std::byte* next_;
  std::size_t bytes_ = 0;
};

template <class T>
void copy_in(T* to, const std::vector<T>& from) {
  throw_on_error(cudaMemcpy(to, from.data(), from.size() * sizeof(T), cudaMemcpyHostToDevice),
                 "two_pass");
}

// `segments` a sequence; 0: what takes the least time. `threshold` 0: nothing is dropped.
template <int width, int stages>
Instance instance(int segments, int threshold) {
  using Transitions = sm90::Transitions<stages>;
  using Scan = TwoPassScan;
  using Outputs = sm90::Outputs<width, stages>;
  const auto plan_of = [segments](const Problem& problem) {
    return segments > 0 ? plan(problem, segments)
                        : plan_for(problem, processors(), Outputs::Chain::slices);
  };
  return {
      .knobs = {{"segments", segments > 0 ? std::to_string(segments) : "auto"},
                {"stages", std::to_string(stages)},
                {"threshold", threshold < 0 ? std::to_string(threshold) : "none"},
                {"value_width", std::to_string(width)}},
      .stages = {stage_of<Transitions>(), stage_of<Scan>(), stage_of<Outputs>()},
      .workspace_bytes =
          [=](const Problem& problem) {
            return Room(plan_of(problem), problem.value_heads, nullptr).bytes();
          },
      .setup =
          [=](const Problem& problem, const Tensors& x, void* workspace) {
            const Plan plan = plan_of(problem);
            const std::int64_t heads = problem.value_heads;
            const Room room(plan, problem.value_heads, workspace);
            copy_in(room.outputs, plan.outputs);
            copy_in(room.transitions, plan.transitions);
            copy_in(room.scans, plan.scans);
            throw_on_error(cudaDeviceSynchronize(), "two_pass");  // it may still be copying

            // What transitions of a segment take is what a warm-up may take at most; where
            // segments are short, so is that of the launches and the scan.
            const int reach = threshold < 0 ? std::max(plan.longest(), 8) : 0;
            const auto bound = static_cast<float>(threshold);
            const auto count = [](const auto& list) {
              return static_cast<std::int64_t>(list.size());
            };
            const Launch make_transitions =
                launcher<Transitions>(count(plan.transitions) * heads * Transitions::ctas_a_head,
                                      {Transitions::Base::arguments(problem, x), room.transitions,
                                       room.boundary, reach, bound});
            const Launch scan = launcher<Scan>(
                count(plan.scans) * heads * Scan::ctas_a_head,
                {sm90::tensor_map(room.boundary.M,
                                  heads * plan.boundaries * Boundary::halves * head_dim, 1,
                                  head_dim, head_dim),
                 room.scans, room.boundary});
            const Launch make_outputs = launcher<Outputs>(
                count(plan.outputs) * heads * Outputs::Chain::slices,
                {Outputs::Base::arguments(problem, x), room.outputs, room.boundary, reach, bound});
            return [=](Stream stream) {
              make_transitions(stream);
              scan(stream);
              make_outputs(stream);
            };
          },
      .obstacle = "",
      .bound = threshold < 0 ? "drops at most e^" + std::to_string(threshold) +
                                   " of the state before a segment's warm-up"
                             : ""};
}

}  // namespace

Variant two_pass() {
  return {.name = "two_pass",
          .idea =
              "Segments go side by side whatever the gates: what each makes of a state is found "
              "first, and a scan hands the states on.",
          .target = Target::cuda,
          .scopes = {Scope::core},
          .needs = needs_hopper,
          .accepts = nullptr,
          .instances = {instance<128, 2>(0, 0), instance<128, 3>(0, 0), instance<64, 2>(0, 0),
                        instance<64, 3>(0, 0), instance<128, 2>(0, -12), instance<128, 3>(0, -12),
                        instance<64, 2>(0, -12), instance<64, 3>(0, -12), instance<128, 2>(2, 0),
                        instance<128, 2>(4, 0), instance<128, 2>(8, 0), instance<64, 3>(2, 0),
                        instance<64, 3>(4, 0), instance<64, 3>(8, 0), instance<64, 3>(8, -12)}};
}

}  // namespace gdn::gpu
