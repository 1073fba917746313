// The instances of CUDA variants as parameters of tests on the emulator.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <vector>

#include "kernels/prepare/preparation.hpp"
#include "kernels/variant.hpp"
#include "tests/support.hpp"

namespace gdn::test {

struct Rung {
  std::string id;
  Instance instance;
  bool folded = false;  // behind a preparation that folds A

  // Behind `preparation`, or that of any device where that folds no A.
  void run(HostCase& c, const Instance& preparation) const {
    c.folded = folded;
    c.forget_preparation();
    c.run_on_cpu(folded ? portable_preparation() : preparation);
    c.run_on_cpu(instance);
  }
};

inline void PrintTo(const Rung& rung, std::ostream* out) { *out << rung.id; }

// Those that can be had, and of which `is_tried`; for a folded A as well where they take it.
inline std::vector<Rung> rungs_of(
    std::initializer_list<Variant (*)()> variants,
    const std::function<bool(const Instance&)>& is_tried = [](const Instance&) { return true; }) {
  std::vector<Rung> all;
  for (const auto& make : variants) {
    const Variant variant = make();
    for (const Instance& instance : variant.instances)
      if (instance.obstacle.empty() && is_tried(instance)) {
        all.push_back({variant_id(variant, instance), instance});
        if (!instance.folded_stages.empty())
          all.push_back({variant_id(variant, instance) + ":folded", instance, true});
      }
  }
  return all;
}

// "register_state_form_w_stages_2_value_width_128"
inline std::string rung_name(const testing::TestParamInfo<Rung>& info) {
  std::string name;
  for (const char c : info.param.id)
    name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
}

// Within the health gate, and both errors within `limit`.
inline void expect_right(HostCase& c, const std::string& what, double limit) {
  const Finding finding = c.finding();
  EXPECT_EQ(finding.reason, "") << what;
  EXPECT_LE(finding.error.output_rms, limit) << what;
  EXPECT_LE(finding.error.state_rms, limit) << what;
}

// Chunks whose gates come to this much, each behind each and behind its like, so that S is kept as
// a multiple for one chunk and for many, and chunks are steep or not, with γ that does or does not.
inline HostCase gates_of_any_pace() {
  constexpr float paces[] = {0, -3, -23, -25, -47, -50, -130};
  std::vector<float> sums;
  for (const float* one = std::begin(paces); one != std::end(paces); ++one) {
    sums.insert(sums.end(), {*one, *one});
    for (const float* other = one + 1; other != std::end(paces); ++other)
      sums.insert(sums.end(), {*other, *one});
  }
  HostCase c(problem_of({static_cast<int>(sums.size()) * 64 + 9}, 1, 2, true), {.seed = 5});
  for (int token = 0; token < c.problem.tokens(); ++token) {
    const float sum = token / 64 < std::ssize(sums) ? sums[token / 64] : -1;
    c.raw_g[2 * token] = sum / 64;                        // bit by bit
    c.raw_g[2 * token + 1] = token % 64 == 40 ? sum : 0;  // and all at once
  }
  return c;
}

// Half a chunk that writes, and half a one that writes nothing and forgets: what is left of the
// state is small, and right by itself. Before it, a chunk that S is kept a multiple for.
template <class Run>
void expect_forgotten_writes_are_right(Run run) {
  for (const float forgotten : {-20.0F, -30.0F, -40.0F, -55.0F}) {
    HostCase c(problem_of({2 * 64}, 1, 1, false), {.seed = 9});
    for (int token = 0; token < 2 * 64; ++token) {
      c.raw_g[token] = token < 64 ? -23.0F / 64 : token < 96 ? 0 : forgotten / 32;
      if (token >= 96) c.beta[token] = 0;
    }
    run(c);
    expect_right(c, "forgotten " + std::to_string(forgotten), 1e-2);
  }
}

struct Betas {
  float least, most;
};
inline std::string text_of(const Betas& betas, float most_decay) {
  return "beta from " + std::to_string(betas.least) + ", decay " + std::to_string(most_decay);
}
// Where each 64 tokens `are_equal`, their keys are, and have these betas; log α is from 0 to
// −`most_decay` everywhere. There is one query head.
template <class Chunks>
HostCase equal_keys(const Problem& problem, const Betas& betas, float most_decay,
                    Chunks are_equal) {
  HostCase c(problem, {});
  for (int i = 0; i < head_dim * problem.tokens(); ++i) {
    if (are_equal(i / head_dim / 64)) c.k[i] = c.k[i % head_dim];
  }
  for (int i = 0; i < problem.value_heads * problem.tokens(); ++i) {
    if (are_equal(i / problem.value_heads / 64)) {
      c.beta[i] = betas.least + (betas.most - betas.least) * c.beta[i];
    }
    c.raw_g[i] = -most_decay * static_cast<float>(i % 7) / 6;
  }
  return c;
}
// The same but for the chunk in the middle of the first sequence.
inline HostCase equal_keys(const Betas& betas, float most_decay) {
  return equal_keys(problem_of({5 * 64 + 17, 2 * 64, 1}, 1, 2, false), betas, most_decay,
                    [](int chunk) { return chunk != 2; });
}

// With any betas, and gates that forget nothing, a little and much. `run(c, seed)` runs a kernel.
template <class Run>
void expect_equal_keys_are_right(Run run) {
  int seed = 0;
  for (const Betas betas : {Betas{0, 1}, {0.9F, 1}, {1.4F, 1.5F}, {1.9F, 2}, {1.99F, 2}})
    for (const float decay : {0.0F, 0.002F, 2.0F}) {
      HostCase c = equal_keys(betas, decay);
      run(c, ++seed);
      expect_right(c, text_of(betas, decay), betas.least > 0 ? 5e-3 : 1e-2);
    }
}

// Whatever the order of its events, a kernel's result has the bits that it had with seed 0, of
// which `c` holds the results. `run(seed)` runs it on `c`.
template <class Run>
void expect_same_in_any_order(HostCase& c, int seeds, Run run) {
  const HostCase first = c;
  for (int seed = 1; seed < seeds; ++seed) {
    c.output.assign(c.output.size(), {0xFFFF});
    c.final_state.assign(c.final_state.size(), NAN);
    run(seed);
    for (std::size_t i = 0; i < c.output.size(); ++i)
      ASSERT_EQ(c.output[i].bits, first.output[i].bits) << "seed " << seed << ", element " << i;
    for (std::size_t i = 0; i + HostCase::padding < c.final_state.size(); ++i)
      ASSERT_EQ(c.final_state[i], first.final_state[i]) << "seed " << seed << ", element " << i;
  }
}

}  // namespace gdn::test
