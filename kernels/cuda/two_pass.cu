// Rung 10: segments side by side whatever the gates, by their transitions and a scan
// (two_pass_chain.cuh). Over any run of chunks S_out = M S_in + N, where M and N know nothing of S,
// and a chunk is M = γ_C I − Xᵀ Γ K, N = Xᵀ V with the X of form 5. Rung 9 goes back from a segment
// to where the gates have forgotten, which with weak gates is the sequence's beginning.
//
// Knobs: segments a sequence, or auto: as many as take least by the plan's table of costs
// (two_pass_plan.cpp), maybe one; value_width and stages as in rung 8, value_width of the last
// launch alone, as transitions always have 128 columns a CTA; threshold, `none`: nothing is ever
// dropped, −12: a segment warms up as in rung 9 where that takes few chunks (Plan::reach).
//
// Bytes, beside those of rung 8: for transitions K and A, 22 KiB a chunk and head for each of N and
// M, and V once; for a boundary and head 32 KiB of M, written once and read by two CTAs, and 34 of
// N, then S. Behind the first group M is read by two CTAs more, and what they make of it is written
// once; outputs then read 32 KiB of M and 17 of N for each step.
//
// Measured on an H200 (CUPTI, gates `zero`, 64 values in outputs) when M had two halves of bf16, N
// and S were fp32 in plain loads and stores, and each launch waited before it did anything, in µs:
//                                       transitions           scan       outputs            all
//   long_low_gva    8 segments of 64    78 (112 CTAs), 1.22   11, 1.6    85 (128), 1.33     178
//   chain_equal    16 segments of 8     18 (116), 1.2 and 8   20, 1.37   14 (128), 1.3 and 4  56
//                                       a chunk               a step     a chunk
// where rung 8 takes 581 and 148, and rung 9, which goes all the way back, 400 and 100. A step
// brought 96 KiB into one multiprocessor and 32 out, at 64 bytes a cycle, and multiplied for 1,200
// cycles; and M went out of the transitions in 128 stores a thread of 4 bytes, eight rows a warp.
//
// Then a step brought 49 KiB and took 17 out, M went out by the copy engine, and outputs had their
// first inputs and P' before S was there. With M in two halves of bf16 and plain loads in the step
// long_low_gva took 174.6 and chain_equal 57.2; with fp16 and the copy engine 165.8 and 47.9, of
// which a step took 1.1–1.2 where 0.55 was predicted. It found S's unit and rounded S with it on
// its chain, the eight parts of its product waited for what was computed between them, and M's unit
// was a load of its own.
//
// Then the chain of a step was its product, 8 times 74 cycles in one go, 64 additions and 32
// roundings a thread, and the way into the next: 800–850 cycles by the SASS, beside which 49 KiB
// come, in 784 at best. Those CTAs of outputs that do not fit beside the scan (4 and 12 of 128)
// begin with its end. Predicted: a step 0.47 µs, and 39 and 162 in all. Measured 46.6 and 165.3:
// S goes out in 17 KiB of stores, which take 500 cycles, and a register that had their address was
// wanted again at once. By way of shared memory and the copy engine instead it was worse, 53 and
// 169: the fence alone takes 450. Now the address is carried from step to step: 47.1 and 166.0, so
// nothing was won. By the fit of `auto` to all cases a step takes about 2 µs.
//
// So there are fewer steps one behind the other: boundaries in groups of about the root of their
// number, and outputs that go from group to group. chain_equal had 14 steps; now it has 3 within
// groups of 4, in 56 CTAs, and up to 3 in outputs. long_low_gva had 6, and has 2 and up to 2. Those
// CTAs of outputs that begin with the scan's end are those of the first segments, which take no
// step. Predicted: a step in outputs 0.8 µs, 0.5 for inputs that wait for the last, 37 and 162.5 in
// all. Measured, in a graph: 43.0 and 163.8 (weak-gates.json; 155.9 with 128).
// What would help further: a third place for M in outputs, of 64 values; more CTAs a head, of 32
// values, with M as left operand.
//
// Errors of output and state on the emulator, gates `zero`, one sequence, against rung 8's on the
// same inputs:
//                                   rung 8               8 segments           auto
//   1536 tokens                     3.71e-3  3.16e-3     3.71e-3  3.16e-3     3.66e-3  3.14e-3
//   8192 tokens                     3.89e-3  3.19e-3     3.90e-3  3.23e-3     3.88e-3  3.21e-3
//   8192 tokens, β up to 2          5.07e-3  4.58e-3     5.07e-3  4.51e-3     5.03e-3  4.59e-3
// With M in one half of bf16 they were up to 4.2e-3.
#include "kernels/cuda/processors.cuh"
#include "kernels/cuda/rungs.hpp"
#include "kernels/cuda/two_pass_chain.cuh"

namespace gdn::gpu {
namespace {

using sm90::Boundary, sm90::TwoPassScan;

// The plan's lists and what the launches hand to each other, one behind the other in the workspace.
class Room {
 public:
  Room(const Plan& plan, int heads, void* workspace)
      : start_(reinterpret_cast<std::uintptr_t>(workspace)) {
    const std::size_t boundaries = std::size_t{1} * plan.boundaries * heads;
    take(outputs, plan.outputs.size());
    take(transitions, plan.transitions.size());
    take(scans, plan.scans.size());
    take(boundary.states, 2 * boundaries);
    take(boundary.M, boundaries);
    take(boundary.M_before, boundaries);
    take(boundary.joins, boundaries);
    boundary.heads = heads;
    boundary.count = plan.boundaries;
  }
  std::size_t bytes() const { return bytes_; }

  Part *outputs, *transitions;
  Boundaries* scans;
  Boundary boundary;

 private:
  template <class T>
  void take(T*& place, std::size_t count) {
    constexpr std::size_t alignment = 16;
    place = reinterpret_cast<T*>(start_ + bytes_);
    bytes_ += (count * sizeof(T) + alignment - 1) / alignment * alignment;
  }

  std::uintptr_t start_;
  std::size_t bytes_ = 0;
};

template <class T>
void copy_in(T* to, const std::vector<T>& from) {
  if (from.empty()) return;
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
    constexpr int slices = Outputs::Chain::slices;
    return segments > 0 ? plan(problem, segments, processors(), slices)
                        : plan_for(problem, processors(), slices);
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

            const int reach = threshold < 0 ? plan.reach() : 0;
            const auto bound = static_cast<float>(threshold);
            const auto count = [](const auto& list) {
              return static_cast<std::int64_t>(list.size());
            };
            const Launch make_transitions =
                launcher<Transitions>(count(plan.transitions) * heads * Transitions::ctas_a_head,
                                      {Transitions::Base::arguments(problem, x), room.transitions,
                                       room.boundary, reach, bound});
            const Launch scan = launcher<Scan>(count(plan.scans) * heads * Scan::ctas_a_head,
                                               {room.scans, room.boundary});
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
          .instances = {instance<128, 3>(0, 0), instance<128, 3>(2, 0), instance<128, 3>(4, 0),
                        instance<128, 3>(8, 0), instance<128, 3>(0, -12), instance<64, 3>(0, 0),
                        instance<64, 3>(2, 0), instance<64, 3>(4, 0), instance<64, 3>(8, 0),
                        instance<64, 3>(0, -12), instance<64, 3>(8, -12)}};
}

}  // namespace gdn::gpu
