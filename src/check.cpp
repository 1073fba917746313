#include "src/check.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <vector>

namespace gdn {
namespace {

// One element, and how far off it is beside what the lab tolerates there.
struct Place {
  int sequence = -1, head = 0;
  std::int64_t token = -1;  // within the sequence; -1: of the state, at (key, dimension)
  int key = 0, dimension = 0;
  double excess = -1;  // |x − ref| / (5e-3 + 5e-3·|ref|); infinite for a NaN
  double got = 0, wanted = 0;
};

// The findings of one (sequence, head) of one tensor.
struct Part {
  double squared_error = 0, squared_reference = 0;
  std::int64_t elements = 0;
  double largest = 0;  // |x|
  bool finite = true;  // every x
  bool reference_finite = true;
  Place worst;
  double worst_token_rms = 0;  // of the output: see token_limit
  std::int64_t worst_token = -1;

  void add(double x, double reference, Place place) {
    if (!std::isfinite(reference)) reference_finite = false;
    if (!std::isfinite(x)) finite = false;
    const double difference = std::abs(x - reference);
    squared_error += difference * difference;
    squared_reference += reference * reference;
    ++elements;
    largest = std::max(largest, std::abs(x));
    place.excess = std::isfinite(x)
                       ? difference / (lab_tolerance + lab_tolerance * std::abs(reference))
                       : std::numeric_limits<double>::infinity();
    if (place.excess > worst.excess) {
      worst = place;
      worst.got = x;
      worst.wanted = reference;
    }
  }

  // 0, or so near to it that fp32 cannot hold it.
  bool reference_is_zero() const {
    return squared_reference <= 1e-60 * static_cast<double>(elements);
  }

  // Relative rms; where the reference is 0: the largest magnitude scaled so that the limit is the
  // same.
  double relative_rms() const {
    if (!finite) return std::numeric_limits<double>::quiet_NaN();
    if (reference_is_zero()) return largest / zero_limit * health_limit;
    return std::sqrt(squared_error / squared_reference);
  }
};

std::string describe(const char* tensor, const Place& place) {
  const std::string where =
      place.token >= 0 ? fmt::format("token {}, dimension {}", place.token, place.dimension)
                       : fmt::format("key {}, dimension {}", place.key, place.dimension);
  return fmt::format("{}: sequence {}, head {}, {}: {:.6g} instead of {:.6g}", tensor,
                     place.sequence, place.head, where, place.got, place.wanted);
}

// The parts of one tensor, folded into what a row says of it.
struct Tally {
  const char* tensor;
  double rms = 0;  // largest; NaN once any part is
  Part worst_part;
  Part worst_token_part;
  Place worst;
  bool reference_finite = true;

  void add(const Part& part) {
    reference_finite = reference_finite && part.reference_finite;
    if (part.worst.sequence < 0) return;  // an empty sequence has no output
    if (part.worst_token_rms > worst_token_part.worst_token_rms) worst_token_part = part;
    const double part_rms = part.relative_rms();
    if (std::isnan(part_rms) || part_rms > rms) {
      if (!std::isnan(rms)) {
        rms = part_rms;
        worst_part = part;
      }
    }
    if (part.worst.excess > worst.excess) worst = part.worst;
  }

  bool healthy() const {  // false for NaN
    return rms <= health_limit && worst_token_part.worst_token_rms <= token_limit;
  }

  std::string complaint() const {
    if (rms <= health_limit)
      return fmt::format(
          "{} of token {} off by {:.3g} relative rms (limit {:g}) in sequence {}, head {}", tensor,
          worst_token_part.worst_token, worst_token_part.worst_token_rms, token_limit,
          worst_token_part.worst.sequence, worst_token_part.worst.head);
    if (!worst_part.finite) return "not a finite number: " + describe(tensor, worst_part.worst);
    return fmt::format(
        "{} off by {:.3g} relative rms (limit {:g}) in sequence {}, head {}; worst {}", tensor, rms,
        health_limit, worst_part.worst.sequence, worst_part.worst.head,
        describe(tensor, worst_part.worst));
  }
};

Part output_part(const Problem& problem, const Results& results, const Truth& truth, int sequence,
                 int head) {
  Part part;
  struct Token {
    double squared_error, squared_reference;
  };
  std::vector<Token> tokens;
  tokens.reserve(problem.length(sequence));
  for (int token = 0; token < problem.length(sequence); ++token) {
    const Part before = part;
    const std::int64_t row =
        ((std::int64_t{problem.offsets[sequence]} + token) * problem.value_heads + head) * head_dim;
    for (int d = 0; d < head_dim; ++d)
      part.add(to_float(results.output[row + d]), truth.output[row + d],
               {.sequence = sequence, .head = head, .token = token, .dimension = d});
    tokens.push_back({part.squared_error - before.squared_error,
                      part.squared_reference - before.squared_reference});
  }
  if (!part.finite || part.reference_is_zero()) return part;
  const double of_head = part.squared_reference / problem.length(sequence);
  for (std::size_t token = 0; token < tokens.size(); ++token) {
    const double rms =
        std::sqrt(tokens[token].squared_error / std::max(tokens[token].squared_reference, of_head));
    if (rms > part.worst_token_rms) {
      part.worst_token_rms = rms;
      part.worst_token = static_cast<std::int64_t>(token);
    }
  }
  return part;
}

Part state_part(const Problem& problem, const Results& results, const Truth& truth, int sequence,
                int head) {
  Part part;
  const std::int64_t first =
      (std::int64_t{sequence} * problem.value_heads + head) * head_dim * head_dim;
  for (int key = 0; key < head_dim; ++key)
    for (int d = 0; d < head_dim; ++d) {
      const std::int64_t at = first + key * head_dim + d;
      part.add(results.state[at], truth.state[at],
               {.sequence = sequence, .head = head, .key = key, .dimension = d});
    }
  return part;
}

}  // namespace

bool lab_check_is_gate(const std::optional<Recipe>& recipe) {
  return recipe && recipe->beta_max == 1 &&
         (recipe->gates == Gates::random_decay || recipe->gates == Gates::mixed);
}

Finding check(const Problem& problem, const std::optional<Recipe>& recipe, const Results& results,
              const Truth& truth) {
  const int chains = problem.sequences() * problem.value_heads;
  std::vector<Part> outputs(chains);
  std::vector<Part> states(chains);
#pragma omp parallel for schedule(dynamic)
  for (int chain = 0; chain < chains; ++chain) {
    const int sequence = chain / problem.value_heads;
    const int head = chain % problem.value_heads;
    outputs[chain] = output_part(problem, results, truth, sequence, head);
    states[chain] = state_part(problem, results, truth, sequence, head);
  }
  Tally output{.tensor = "output"};
  Tally state{.tensor = "state"};
  for (const Part& part : outputs) output.add(part);
  for (const Part& part : states) state.add(part);

  Finding finding;
  const bool output_is_worst = output.worst.excess >= state.worst.excess;
  finding.error = {
      .output_rms = output.rms,
      .state_rms = state.rms,
      .worst = output_is_worst ? describe("output", output.worst) : describe("state", state.worst),
      .lab_passed = std::max(output.worst.excess, state.worst.excess) <= 1};
  if (!output.reference_finite || !state.reference_finite)
    finding.reason = "the fp64 reference itself overflows on this input: are the keys normalised?";
  else if (!output.healthy())
    finding.reason = output.complaint();
  else if (!state.healthy())
    finding.reason = state.complaint();
  else if (lab_check_is_gate(recipe) && !finding.error.lab_passed)
    finding.reason = "outside the lab's 5e-3 + 5e-3·|ref|: " + finding.error.worst;
  return finding;
}

}  // namespace gdn
