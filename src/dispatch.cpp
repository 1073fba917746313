#include "src/dispatch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <queue>
#include <vector>

#include "kernels/cuda/segments.hpp"
#include "kernels/cuda/two_pass_plan.hpp"

namespace gdn {
namespace {

// In chunks that store their output, found where reports/h200/ladder.json, weak-gates.json and
// models.json are predicted best.
constexpr double pipeline_chunks = 1.3;  // of each CTA, beside its own
constexpr double without_output = 0.7;
constexpr double alone_without_output = 0.78;  // where no other head has the same keys: their bytes
constexpr double warm_up_begins = 1;           // a segment looks for its first chunk
constexpr double reads_state = 3;              // a chain begins with a given state: 64 KiB a head
constexpr double overlapped_starts = 3;        // of two launches more, which begin early
constexpr double transition_ends = 7;          // M or N is written; in place of the pipeline's

// Of a preparation: what a chunk and query head takes of what a chunk and value head takes.
constexpr double query_share = 1.6;

// Non-negative least squares of (predicted - measured)/measured, in both scopes at once. `start` is
// of each launch. cuda: reports/h200/ladder.json. cpu: reports/cpu/xeon.json, which has steps
// of 64 tokens alone: of fewer nothing is known, and they are not chosen. `scripts/refit-dispatch`
// writes these lines from the two.
constexpr Cost all_costs[] = {
    // clang-format off
    //                                                          values  chunk   share  (µs)
    {"baseline:stages=2",                                            64,  1.224,  3.071},
    {"baseline:stages=3",                                            64,  1.226,  2.978},
    {"residual:stages=2",                                            64,  1.417,  1.964},
    {"residual:stages=3",                                            64,  1.405,  1.832},
    {"fused:stages=2",                                               64,  2.498,  0.430},
    {"fused:stages=3",                                               64,  2.485,  0.434},
    {"wide:stages=1:threads=256",                                   128,  4.614,  1.807},
    {"wide:stages=2:threads=256",                                   128,  4.106,  0.642},
    {"wide:stages=1:threads=512",                                   128,  5.814,  1.267},
    {"wide:stages=2:threads=512",                                   128,  5.384,  0.644},
    {"wide:stages=1:threads=1024",                                  128,  6.938,  1.427},
    {"warp_specialized:beta_in_a=true:stages=2:value_width=128",    128,  3.183,  0.000},
    {"warp_specialized:beta_in_a=false:stages=2:value_width=128",   128,  3.136,  0.000},
    {"warp_specialized:beta_in_a=true:stages=2:value_width=64",      64,  1.946,  0.063},
    {"warp_specialized:beta_in_a=false:stages=2:value_width=64",     64,  1.890,  0.058},
    {"warp_specialized:beta_in_a=false:stages=3:value_width=64",     64,  1.803,  0.052},
    {"warp_specialized:beta_in_a=true:stages=2:value_width=32",      32,  1.546,  0.046},
    {"warp_specialized:beta_in_a=false:stages=2:value_width=32",     32,  1.473,  0.043},
    {"warp_specialized:beta_in_a=false:stages=3:value_width=32",     32,  1.414,  0.025},
    {"split_barrier:stages=2:value_width=128",                      128,  2.566,  0.210},
    {"split_barrier:stages=2:value_width=64",                        64,  1.776,  0.052},
    {"split_barrier:stages=3:value_width=64",                        64,  1.732,  0.093},
    {"split_barrier:stages=2:value_width=32",                        32,  1.422,  0.035},
    {"split_barrier:stages=3:value_width=32",                        32,  1.367,  0.036},
    {"register_state:form=x:stages=3:value_width=64",                64,  1.312,  0.108},
    {"register_state:stages=2:value_width=128",                     128,  2.366,  0.000},
    {"register_state:stages=3:value_width=128",                     128,  1.588,  0.270},
    {"register_state:stages=2:value_width=64",                       64,  1.520,  0.186},
    {"register_state:stages=3:value_width=64",                       64,  1.143,  0.092},
    {"two_pass:transitions",                                          0,  0.926,  0.213},
    {"two_pass:step",                                                 0,  1.968,  0.000},
    {"forward:value_width=128",                                     128,  3.105,  0.525},
    {"forward:value_width=64",                                       64,  2.291,  1.004},
    {"cuda:start",                                                    0,  1.915,  0.000},
    {"cuda:preparation",                                              0,  2.058,  0.325},
    {"recurrent",                                                   128,  290.4,  224.9},
    {"chunked:chunk=64",                                            128,  156.2,   53.5},
    {"xform:chunk=64",                                              128,  161.7,   58.0},
    {"cpu:start",                                                     0,  269.1,    0.0},
    {"cpu:preparation",                                               0,    0.0,   19.7},
    // clang-format on
};

// "" where there is none of the name.
std::string_view knob(const Instance& instance, std::string_view name) {
  const auto found = std::ranges::find(instance.knobs, name, &Knob::name);
  return found == instance.knobs.end() ? "" : std::string_view(found->value);
}

// 0 where the value is no number.
int number(std::string_view value) {
  int result = 0;
  std::from_chars(value.data(), value.data() + value.size(), result);
  return result;
}

// CTAs in their order, each to the processor that is free first.
class Queue {
 public:
  Queue(int slots, int processors)
      : free_at_(std::greater<>(), std::vector<double>(slots, 0.0)), processors_(processors) {}

  void add(int ctas, double chunks) {
    for (int i = 0; i < ctas; ++i) {
      const double done = free_at_.top() + chunks;
      free_at_.pop();
      free_at_.push(done);
      longest_ = std::max(longest_, done);
    }
    load_ += ctas * chunks / processors_;
  }
  Work work(const Cost& cost) const { return {&cost, longest_, load_}; }

 private:
  std::priority_queue<double, std::vector<double>, std::greater<>> free_at_;
  int processors_;
  double longest_ = 0, load_ = 0;
};

// How an instance deals a problem out: each piece is a CTA a head and slice of values.
struct Deal {
  std::vector<Piece> pieces;
  int ctas;           // a piece
  int slots;          // CTAs side by side
  double warm_up;     // chunks that a segment goes back at most
  double begins;      // chunks' time that a sequence's beginning takes
  double of_warm_up;  // what a chunk of it takes
  double pipeline = pipeline_chunks;
  double starts = 1;         // of launches one behind the other
  std::vector<Work> before;  // of launches before

  double warm_up_of(const Piece& piece) const { return std::min<double>(piece.first, warm_up); }
  double chunks(const Piece& piece) const {
    const double warm_up = warm_up_of(piece);
    const double begins_late = warm_up > 0 ? warm_up_begins : 0;
    return pipeline + piece.end - piece.first + (piece.first == 0 ? begins : begins_late) +
           of_warm_up * warm_up;
  }
};

const Cost& cost_named(std::string_view kind) {
  return *std::ranges::find(all_costs, kind, &Cost::kind);
}

// Null: not known.
const Cost* cost_of(std::string_view variant, const std::vector<Knob>& knobs) {
  const auto is_of = [&](std::string_view kind) {
    if (kind.substr(0, kind.find(':')) != variant) return false;
    for (std::size_t at = kind.find(':'); at != kind.npos; at = kind.find(':', at + 1)) {
      const std::string_view knob = kind.substr(at + 1, kind.find(':', at + 1) - at - 1);
      if (std::ranges::none_of(knobs,
                               [&](const Knob& own) { return own.name + "=" + own.value == knob; }))
        return false;
    }
    return true;
  };
  const auto* found = std::ranges::find_if(all_costs, is_of, &Cost::kind);
  return found == std::end(all_costs) ? nullptr : found;
}

const Cost* cost_of(const Variant& variant, const Instance& instance) {
  const bool on_segments = variant.name == "segmented" || variant.name == "two_pass";
  return cost_of(on_segments ? "register_state" : variant.name, instance.knobs);
}

std::vector<Piece> whole_sequences(const Problem& problem) {
  std::vector<Piece> pieces;
  for (int s = 0; s < problem.sequences(); ++s)
    pieces.push_back({s, problem.offsets[s], problem.length(s), 0, chunks_of(problem.length(s))});
  return pieces;
}

// Chunks until the gates come to the threshold; no end to them where nothing is forgotten, or may
// be.
double warm_up_chunks(const Instance& instance, double chunk_gates) {
  const int threshold = number(knob(instance, "threshold"));
  if (threshold == 0 || chunk_gates >= 0) return HUGE_VAL;
  return std::max(1.0, std::ceil(threshold / chunk_gates));
}

// As two_pass.cu has it. Where the gates forget, a segment finds its state by a warm-up, and two
// launches are over at once; else behind transitions and a scan.
void deal_in_two_passes(Deal& deal, const Cost& cost, const Instance& instance,
                        const Problem& problem, int processors) {
  deal.starts = 1;  // of the last launch; of two more see below
  const int slices = head_dim / cost.values, segments = number(knob(instance, "segments"));
  const Plan cuts = segments > 0 ? plan(problem, segments, processors, slices)
                                 : plan_for(problem, processors, slices);
  for (const Part& part : cuts.outputs)
    deal.pieces.push_back({part.sequence, part.token, part.length, part.first, part.end});
  if (cuts.boundaries == 0) return;
  deal.before = {{&cost_named("cuda:start"), overlapped_starts, 0}};
  if (deal.warm_up > cuts.reach()) {
    deal.warm_up = deal.begins = deal.pipeline = 0;  // outputs begin beside what goes before them
    Queue transitions(processors, processors);
    for (const Part& part : cuts.transitions)  // the first one of a sequence needs no M
      transitions.add(problem.value_heads * (part.first > 0 ? 2 : 1),
                      transition_ends + part.end - part.first);
    deal.before.push_back(transitions.work(cost_named("two_pass:transitions")));
    deal.before.push_back({&cost_named("two_pass:step"), 1.0 * cuts.steps(), 0});
  }
}

Deal deal(const Cost& cost, const Variant& variant, const Instance& instance,
          const Problem& problem, const Device& device, const KnownInputs& inputs) {
  const int processors = std::max(1, device.processors);
  const bool half = knob(instance, "threads") == "half";
  const int ctas = problem.value_heads * head_dim / cost.values;
  Deal deal{.pieces = {},
            .ctas = ctas,
            .slots = std::max(1, half ? processors / 2 : processors),
            .warm_up = warm_up_chunks(instance, inputs.chunk_gates),
            .begins = device.target == Target::cuda && problem.initial_state ? reads_state : 0,
            .of_warm_up = problem.heads_per_query() > 1 ? without_output : alone_without_output,
            .starts = std::max(1.0, double(instance.stages.size())),
            .before = {}};
  const std::string_view segments = knob(instance, "segments");
  if (variant.name == "two_pass")
    deal_in_two_passes(deal, cost, instance, problem, processors);
  else if (segments.empty())
    deal.pieces = whole_sequences(problem);
  else if (segments == "auto")
    deal.pieces = cut_for(problem, processors, ctas);
  else
    deal.pieces = cut(problem, number(segments));
  return deal;
}

bool serves(const Variant& variant, Scope scope) {
  return std::ranges::find(variant.scopes, scope) != variant.scopes.end();
}

std::vector<Work> work_of(const Deal& deal, const Cost& cost, const Variant& variant, Scope scope,
                          const Problem& problem, const Device& device) {
  const bool cuda = device.target == Target::cuda, prepares = !serves(variant, scope);
  const int processors = std::max(1, device.processors);
  std::vector<Work> work = deal.before;
  Queue chain(deal.slots, processors);
  for (const Piece& piece : deal.pieces) chain.add(deal.ctas, deal.chunks(piece));
  work.push_back(chain.work(cost));
  work.push_back({&cost_named(cuda ? "cuda:start" : "cpu:start"), deal.starts + prepares, 0});
  if (!prepares) return work;
  double chunks = 0;
  for (int s = 0; s < problem.sequences(); ++s) chunks += chunks_of(problem.length(s));
  const double heads = problem.value_heads + query_share * problem.query_heads;
  work.push_back({&cost_named(cuda ? "cuda:preparation" : "cpu:preparation"),
                  cuda && chunks > 0 ? 1.0 : 0, chunks * heads / processors});
  return work;
}

double predicted_us(const std::vector<Work>& work) {
  double us = 0;
  for (const auto& [cost, longest, load] : work)
    us += cost->chunk_us * longest + cost->share_us * load;
  return us;
}

std::string counted(std::int64_t count, const char* one, const char* many) {
  return fmt::format("{} {}", count, count == 1 ? one : many);
}

std::string reason_for(const Cost& cost, const Deal& deal, const Problem& problem,
                       const Device& device) {
  const bool cuda = device.target == Target::cuda;
  const auto ctas = [&](std::int64_t count) {
    return cuda ? fmt::format("{} of {} values", counted(count, "CTA", "CTAs"), cost.values)
                : counted(count, "chain", "chains");
  };
  const std::string slots = cuda ? counted(deal.slots, "multiprocessor", "multiprocessors")
                                 : counted(deal.slots, "thread", "threads");
  std::int64_t sequences = 0;
  for (int s = 0; s < problem.sequences(); ++s) sequences += problem.length(s) > 0;
  if (sequences == 0) return "there is no token to go through";

  const auto segments = std::ranges::count_if(
      deal.pieces, [](const Piece& piece) { return piece.end > piece.first; });
  const std::int64_t whole = sequences * deal.ctas;
  if (segments > sequences) {
    const Piece& piece = *std::ranges::max_element(deal.pieces, {}, &Piece::first);
    return fmt::format(
        "{} {}: {} segments of about {} {}", ctas(whole),
        whole < deal.slots ? fmt::format("leave {} of {} idle", deal.slots - whole, slots)
                           : fmt::format("on {} wait for the longest", slots),
        segments, counted(piece.end - piece.first, "chunk", "chunks"),
        deal.warm_up == 0 ? "behind their transitions"
                          : fmt::format("with {} of warm-up", deal.warm_up_of(piece)));
  }
  if (whole <= deal.slots)
    return fmt::format("{} go side by side on {}, and the longest chain decides: {}", ctas(whole),
                       slots, counted(problem.chain_chunks(), "chunk", "chunks"));
  return fmt::format("{} are {:.1f} waves on {}, and the work decides", ctas(whole),
                     static_cast<double>(whole) / deal.slots, slots);
}

}  // namespace

std::span<const Cost> costs() { return all_costs; }

std::vector<Work> work_of(const Variant& variant, const Instance& instance, Scope scope,
                          const Problem& problem, const Device& device, const KnownInputs& inputs) {
  const Cost* const cost = cost_of(variant, instance);
  if (cost == nullptr) return {};
  return work_of(deal(*cost, variant, instance, problem, device, inputs), *cost, variant, scope,
                 problem, device);
}

std::optional<Dispatch> dispatch(std::span<const Variant> rungs, const Problem& problem,
                                 Scope scope, const Device& device, const KnownInputs& inputs) {
  std::optional<Dispatch> best;
  for (const Variant& variant : rungs) {
    if (variant.target != device.target) continue;
    if (variant.accepts && !variant.accepts(problem).empty()) continue;
    if (scope == Scope::core && !serves(variant, Scope::core)) continue;
    for (const Instance& instance : variant.instances) {
      const Cost* const cost = cost_of(variant, instance);
      if (cost == nullptr || !obstacle(variant, instance, device).empty()) continue;
      if (!instance.bound.empty() && (inputs.exact || !inputs.unit_keys)) continue;
      const Deal dealt = deal(*cost, variant, instance, problem, device, inputs);
      const double us = predicted_us(work_of(dealt, *cost, variant, scope, problem, device));
      if (!best || 1e-6 * us < best->predicted_s)
        best = {&variant, &instance, 1e-6 * us, reason_for(*cost, dealt, problem, device)};
    }
  }
  return best;
}

}  // namespace gdn
