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

constexpr double pipeline_chunks = 1;  // of each CTA, beside its own
constexpr double warm_up_share = 0.7;  // of a chunk that stores its output
constexpr double measured_warm_up =
    8;  // chunks; of those beyond nobody knows that they are cheaper

// Non-negative least squares of (predicted - median)/median in the core scope, where kinds that
// differ in `stages` alone have one start; preparation likewise from what forward takes longer.
// cuda: reports/h200/tune-record.jsonl. cpu: reports/cpu/xeon.json, which has steps of 64 tokens
// alone: of fewer nothing is known, and they are not chosen.
// `gdnbench_tests --gtest_filter='DispatchFit.*'` fits them anew and shows lines that differ.
constexpr Cost all_costs[] = {
    // clang-format off
    //                                                          values  start   chunk   share  (µs)
    {"baseline:stages=2",                                           64,  5.733,  1.299,  3.095},
    {"baseline:stages=3",                                           64,  5.733,  1.305,  2.972},
    {"residual:stages=2",                                           64,  4.723,  1.493,  1.948},
    {"residual:stages=3",                                           64,  4.723,  1.481,  1.781},
    {"fused:stages=2",                                              64,  1.563,  2.638,  0.315},
    {"fused:stages=3",                                              64,  1.563,  2.626,  0.317},
    {"wide:stages=1:threads=256",                                  128,  0.000,  4.918,  1.232},
    {"wide:stages=2:threads=256",                                  128,  0.000,  4.360,  0.135},
    {"wide:stages=1:threads=512",                                  128,  0.000,  6.135,  0.745},
    {"wide:stages=2:threads=512",                                  128,  0.000,  5.698,  0.027},
    {"wide:stages=1:threads=1024",                                 128,  0.000,  7.301,  0.787},
    {"warp_specialized:beta_in_a=true:stages=2:value_width=128",   128,  4.100,  3.144,  0.124},
    {"warp_specialized:beta_in_a=false:stages=2:value_width=128",  128,  4.139,  3.120,  0.177},
    {"warp_specialized:beta_in_a=true:stages=2:value_width=64",     64,  3.910,  2.000,  0.022},
    {"warp_specialized:beta_in_a=false:stages=2:value_width=64",    64,  3.981,  1.946,  0.027},
    {"warp_specialized:beta_in_a=false:stages=3:value_width=64",    64,  3.981,  1.851,  0.023},
    {"warp_specialized:beta_in_a=true:stages=2:value_width=32",     32,  3.559,  1.593,  0.023},
    {"warp_specialized:beta_in_a=false:stages=2:value_width=32",    32,  3.425,  1.571,  0.022},
    {"warp_specialized:beta_in_a=false:stages=3:value_width=32",    32,  3.425,  1.497,  0.021},
    {"split_barrier:stages=2:value_width=128",                     128,  5.633,  2.620,  0.195},
    {"split_barrier:stages=2:value_width=64",                       64,  3.631,  1.848,  0.059},
    {"split_barrier:stages=3:value_width=64",                       64,  3.631,  1.769,  0.037},
    {"split_barrier:stages=2:value_width=32",                       32,  3.500,  1.503,  0.004},
    {"split_barrier:stages=3:value_width=32",                       32,  3.500,  1.448,  0.045},
    {"register_state:stages=2:value_width=128",                     128,  5.262,  1.889,  0.415},
    {"register_state:stages=3:value_width=128",                     128,  5.262,  1.982,  0.141},
    {"register_state:stages=2:value_width=64",                       64,  3.363,  1.411,  0.338},
    {"register_state:stages=3:value_width=64",                       64,  3.363,  1.289,  0.136},
    {"cuda:preparation",                                           128,  4.890,  0.000,  1.179},
    {"recurrent",                                                  128, 1675.7,  284.7,  237.6},
    {"chunked:chunk=64",                                           128,  442.6,  150.1,   56.5},
    {"xform:chunk=64",                                             128,  337.2,  158.7,   55.9},
    {"cpu:preparation",                                            128,  174.6,    0.0,   36.3},
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

// How an instance deals a problem out: each piece is a CTA a head and slice of values.
struct Deal {
  std::vector<Piece> pieces;
  int ctas;           // a piece
  int slots;          // CTAs side by side
  double warm_up;     // chunks that a segment goes back at most
  double before = 0;  // what launches before take, in chunks

  double warm_up_of(const Piece& piece) const { return std::min<double>(piece.first, warm_up); }
  double chunks(const Piece& piece) const {
    const double warm_up = warm_up_of(piece);
    const double saved = (1 - warm_up_share) * std::min(warm_up, measured_warm_up);
    return pipeline_chunks + piece.end - piece.first + warm_up - saved;
  }
};

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

// As two_pass.cu has it. Where the gates forget, a segment finds its state by a warm-up; else
// behind transitions and a scan, for which the plan has its own costs.
void deal_in_two_passes(Deal& deal, const Cost& cost, const Instance& instance,
                        const Problem& problem, int processors) {
  const int slices = head_dim / cost.values, segments = number(knob(instance, "segments"));
  const Plan cuts = segments > 0 ? plan(problem, segments) : plan_for(problem, processors, slices);
  for (const Part& part : cuts.outputs)
    deal.pieces.push_back({part.sequence, part.token, part.length, part.first, part.end});
  if (deal.warm_up <= cuts.reach()) return;
  deal.warm_up = 0;
  deal.before = chunks_before_outputs(cuts, problem, processors, slices);
}

Deal deal(const Cost& cost, const Variant& variant, const Instance& instance,
          const Problem& problem, const Device& device, const KnownInputs& inputs) {
  const int processors = std::max(1, device.processors);
  const bool half = knob(instance, "threads") == "half";
  const int ctas = problem.value_heads * head_dim / cost.values;
  Deal deal{.pieces = {},
            .ctas = ctas,
            .slots = std::max(1, half ? processors / 2 : processors),
            .warm_up = warm_up_chunks(instance, inputs.chunk_gates)};
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

Load load_of(const Deal& deal, const Device& device) {
  using Times = std::vector<double>;
  std::priority_queue<double, Times, std::greater<>> free_at(std::greater<>(),
                                                             Times(deal.slots, 0.0));
  Load load;
  for (const Piece& piece : deal.pieces)
    for (int cta = 0; cta < deal.ctas; ++cta) {
      const double done = free_at.top() + deal.chunks(piece);
      free_at.pop();
      free_at.push(done);
      load.longest = std::max(load.longest, done);
      load.load += deal.chunks(piece) / std::max(1, device.processors);
    }
  load.longest += deal.before;
  return load;
}

double predicted_us(const Cost& cost, const Load& load) {
  return cost.start_us + cost.chunk_us * load.longest + cost.share_us * load.load;
}

const Cost& preparation_cost(Target target) {
  return *std::ranges::find(
      all_costs, target == Target::cuda ? "cuda:preparation" : "cpu:preparation", &Cost::kind);
}

bool serves(const Variant& variant, Scope scope) {
  return std::ranges::find(variant.scopes, scope) != variant.scopes.end();
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
    return fmt::format("{} {}: {} segments of about {} {}", ctas(whole),
                       whole < deal.slots
                           ? fmt::format("leave {} of {} idle", deal.slots - whole, slots)
                           : fmt::format("on {} wait for the longest", slots),
                       segments, counted(piece.end - piece.first, "chunk", "chunks"),
                       deal.before > 0 ? "behind their transitions"
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

const Cost* cost_of(const Variant& variant, const Instance& instance) {
  const std::string name = variant.name == "segmented" ? "register_state" : variant.name;
  const auto is_of = [&](std::string_view kind) {
    if (kind.substr(0, kind.find(':')) != name) return false;
    for (std::size_t at = kind.find(':'); at != kind.npos; at = kind.find(':', at + 1)) {
      const std::string_view knob = kind.substr(at + 1, kind.find(':', at + 1) - at - 1);
      if (std::ranges::none_of(instance.knobs,
                               [&](const Knob& own) { return own.name + "=" + own.value == knob; }))
        return false;
    }
    return true;
  };
  const auto* found = std::ranges::find_if(all_costs, is_of, &Cost::kind);
  return found == std::end(all_costs) ? nullptr : found;
}

Load load_of(const Cost& cost, const Variant& variant, const Instance& instance,
             const Problem& problem, const Device& device, const KnownInputs& inputs) {
  return load_of(deal(cost, variant, instance, problem, device, inputs), device);
}

Load load_of_preparation(const Problem& problem, const Device& device) {
  double chunks = 0;
  for (int s = 0; s < problem.sequences(); ++s) chunks += chunks_of(problem.length(s));
  return {.longest = 0, .load = chunks * problem.value_heads / std::max(1, device.processors)};
}

std::optional<Dispatch> dispatch(std::span<const Variant> rungs, const Problem& problem,
                                 Scope scope, const Device& device, const KnownInputs& inputs) {
  const double preparation_us =
      predicted_us(preparation_cost(device.target), load_of_preparation(problem, device));
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
      double us = predicted_us(*cost, load_of(dealt, device));
      if (!serves(variant, scope)) us += preparation_us;
      if (!best || 1e-6 * us < best->predicted_s)
        best = {&variant, &instance, 1e-6 * us, reason_for(*cost, dealt, problem, device)};
    }
  }
  return best;
}

}  // namespace gdn
