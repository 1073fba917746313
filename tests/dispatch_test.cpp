// What `--variant auto` picks, replayed on committed measurements; where its constants come from;
// and that it stays sane on shapes and devices that nobody has measured.
#include "src/dispatch.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <sstream>

#include "src/auto_variant.hpp"
#include "src/statistics.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::problem_of;

const std::string reports = GDNBENCH_SOURCE_DIR "/reports/";

Device h200(int processors = 132) {
  return {.target = Target::cuda,
          .name = "NVIDIA H200",
          .processors = processors,
          .capability = 90,
          .shared_bytes_per_block = 232448};
}

// Of segments that warm up: not of whole sequences, and not where nothing is dropped.
bool has_bound(const std::string& id) {
  return id.find(":threshold=-12") != id.npos && id.find(":segments=1:") == id.npos;
}

// The rungs that ids tell of, so that a report of any build and backend can be replayed in any.
std::vector<Variant> rungs_of(const std::vector<std::string>& ids, Target target) {
  const std::set<std::string> hopper = {"warp_specialized", "split_barrier", "register_state",
                                        "segmented",        "two_pass",      "forward"};
  std::vector<Variant> rungs;
  for (const std::string& id : ids) {
    std::istringstream words(id);
    std::string name, word;
    std::getline(words, name, ':');
    Instance instance;
    while (std::getline(words, word, ':'))
      instance.knobs.push_back({word.substr(0, word.find('=')), word.substr(word.find('=') + 1)});
    if (has_bound(id)) instance.bound = "drops a little";
    instance.stages.resize(name == "baseline" || name == "two_pass" ? 3
                           : name == "residual"                     ? 2
                                                                    : 1);
    if (rungs.empty() || rungs.back().name != name) {
      const Scope scope = name == "forward" ? Scope::forward : Scope::core;
      rungs.push_back({.name = name, .target = target, .scopes = {scope}});
      if (hopper.contains(name))
        rungs.back().needs = [](const Device& device) {
          return device.capability == 90 ? "" : "needs compute capability 9.0";
        };
    }
    rungs.back().instances.push_back(instance);
  }
  return rungs;
}

// One problem with the median of each candidate, in seconds.
struct Measured {
  std::string name;
  Scope scope;
  Case c;
  std::map<std::string, double> medians;

  double best_s(bool exact) const {
    double best = HUGE_VAL;
    for (const auto& [id, median_s] : medians)
      if (!exact || !has_bound(id)) best = std::min(best, median_s);
    return best;
  }
};

struct Campaign {
  Device device;
  std::vector<std::string> ids;
  std::vector<Variant> rungs;
  std::vector<Measured> problems;
};

// Of the id that reports have: fields that were set stand behind the name.
Case case_of(const std::string& id) {
  std::istringstream words(id);
  std::string name, word;
  std::getline(words, name, ':');
  std::vector<Override> overrides;
  while (std::getline(words, word, ':'))
    overrides.push_back({word.substr(0, word.find('=')), word.substr(word.find('=') + 1)});
  const std::vector<Case> cases = select_cases({name}, overrides, SIZE_MAX);
  const auto found = std::ranges::find(cases, id, &Case::name);
  if (found == cases.end()) throw std::runtime_error("no case " + id);
  return *found;
}

// What the constants are fitted to: the ladder, replayed as graphs.
const Campaign& h200_ladder() {
  static const Campaign campaign = [] {
    const Report report = read_report(reports + "h200/ladder.json");
    const json& device = report.fingerprint.at("device");
    Campaign ladder{
        .device = h200(device.at("processors")), .ids = {}, .rungs = {}, .problems = {}};
    std::map<std::pair<std::string, Scope>, Measured> problems;
    for (const Row& row : report.rows) {
      if (row.timing != Timing::graph || !row.time_s) continue;
      Measured& m = problems[{row.case_name, row.scope}];
      if (m.name.empty()) m = {row.case_name, row.scope, case_of(row.case_name), {}};
      m.medians[row.variant] = row.time_s->median;
      if (std::ranges::find(ladder.ids, row.variant) == ladder.ids.end())
        ladder.ids.push_back(row.variant);
    }
    for (const auto& [where, measured] : problems) ladder.problems.push_back(measured);
    ladder.rungs = rungs_of(ladder.ids, Target::cuda);
    return ladder;
  }();
  return campaign;
}

// The CPU's report, of a build that had one configuration a variant: 64 tokens a step, all threads.
const Campaign& cpu_report() {
  static const Campaign campaign = [] {
    const Report report = read_report(reports + "cpu/xeon.json");
    Campaign cpu{
        .device = {.target = Target::cpu,
                   .name = "a CPU",
                   .processors = report.fingerprint.at("device").at("processors")},
        .ids = {"recurrent:threads=all", "recurrent:threads=half", "chunked:chunk=64:threads=all",
                "chunked:chunk=64:threads=half", "chunked:chunk=16:threads=all",
                "xform:chunk=64:threads=all", "xform:chunk=64:threads=half"},
        .rungs = {},
        .problems = {}};
    cpu.rungs = rungs_of(cpu.ids, Target::cpu);
    for (const Measured& like : h200_ladder().problems) {
      Measured measured{like.name, like.scope, like.c, {}};
      for (const Row& row : report.rows)
        if (row.case_name == like.name && row.scope == like.scope)
          measured.medians[row.variant + (row.variant == "recurrent" ? "" : ":chunk=64") +
                           ":threads=all"] = row.time_s->median;
      cpu.problems.push_back(measured);
    }
    return cpu;
  }();
  return campaign;
}

std::string id_of(const Dispatch& choice) { return variant_id(*choice.variant, *choice.instance); }

// Those that the model deals out as `id`, it among them: they make the same launches, as
// segments=auto does where it comes to a number, and two_pass where it cuts nothing. Between them
// there is the card alone, which comes to its power cap: on wide_gva_state segments=auto and 2 of
// rung 9, of 128 values, are 134.9 and 136.1 µs in ladder.json, and both are throttled.
std::vector<std::string> alike(const std::vector<Variant>& rungs, const std::string& id,
                               const Case& c, Scope scope) {
  std::map<std::string, std::vector<std::tuple<const Cost*, double, double>>> works;
  for (const Variant& variant : rungs)
    for (const Instance& instance : variant.instances)
      for (const auto& [cost, longest, load] :
           work_of(variant, instance, scope, c.problem, h200(), {}))
        works[variant_id(variant, instance)].emplace_back(cost, longest, load);
  std::vector<std::string> same;
  for (const auto& [other, work] : works)
    if (work == works.at(id)) same.push_back(other);
  return same;
}

// Its time over the best one of those that it might have chosen.
double regret(const Measured& measured, const std::string& id, bool exact) {
  // Who is alike takes time.
  static std::map<std::pair<const Measured*, std::string>, double> known;
  const auto [found, is_new] = known.try_emplace({&measured, id}, HUGE_VAL);
  if (is_new)
    for (const std::string& same : alike(h200_ladder().rungs, id, measured.c, measured.scope))
      if (measured.medians.contains(same))
        found->second = std::min(found->second, measured.medians.at(same));
  return found->second / measured.best_s(exact) - 1;
}

constexpr double allowed_regret = 0.03;

TEST(Dispatch, IsWithinThreePercentOfTheBestOfTheLadder) {
  ASSERT_EQ(h200_ladder().problems.size(), 16U);
  for (const Measured& m : h200_ladder().problems)
    for (const bool exact : {false, true}) {
      const auto choice =
          dispatch(h200_ladder().rungs, m.c.problem, m.scope, h200(), known_inputs(m.c, "", exact));
      ASSERT_TRUE(choice);
      EXPECT_LE(regret(m, id_of(*choice), exact), allowed_regret)
          << m.name << " " << id_of(*choice);
      EXPECT_NEAR(choice->predicted_s / m.medians.at(id_of(*choice)), 1, 0.13)
          << m.name << " " << name_of(m.scope);
      // The gates are no condition: with those of the public cases taken for granted it is as good.
      const auto blind =
          dispatch(h200_ladder().rungs, m.c.problem, m.scope, h200(), {.exact = exact});
      EXPECT_LE(regret(m, id_of(*blind), exact), allowed_regret) << m.name;
    }
}

// What is chosen for the cases of a report, of the instances that are in it. `fitted`: in a timing
// that the constants were fitted to, which says nothing new.
void expect_choices_within(double allowed, const std::string& file, std::size_t least_groups,
                           std::optional<Timing> fitted = {}) {
  const Report report = read_report(reports + file);
  std::map<std::tuple<std::string, Scope, Timing>, std::map<std::string, TimeSummary>> groups;
  for (const Row& row : report.rows)
    if (row.time_s && row.timing != fitted)
      groups[{row.case_name, row.scope, row.timing}][row.variant] = *row.time_s;
  ASSERT_GE(groups.size(), least_groups) << file;
  for (const auto& [where, times] : groups) {
    const auto& [name, scope, timing] = where;
    std::vector<std::string> ids;
    std::ranges::copy_if(h200_ladder().ids, std::back_inserter(ids),
                         [&](const std::string& id) { return times.contains(id); });
    const std::vector<Variant> rungs = rungs_of(ids, Target::cuda);
    const Case c = case_of(name);
    for (const bool exact : {false, true}) {
      const auto choice = dispatch(rungs, c.problem, scope, h200(), known_inputs(c, "", exact));
      ASSERT_TRUE(choice);
      double least_s = HUGE_VAL;
      for (const std::string& same : alike(rungs, id_of(*choice), c, scope))
        least_s = std::min(least_s, times.at(same).median);
      for (const std::string& id : ids) {
        if (exact && has_bound(id)) continue;
        EXPECT_LE(least_s / times.at(id).median - 1, allowed)
            << file << " " << name << " " << name_of(scope) << " " << name_of(timing) << " "
            << id_of(*choice) << " and " << id;
      }
    }
  }
}

// What the constants were not fitted to: other timings, gates that forget nothing, other shapes.
TEST(Dispatch, IsWithinThreePercentOfTheBestInOtherReports) {
  expect_choices_within(allowed_regret, "h200/ladder.json", 32, Timing::graph);
  expect_choices_within(allowed_regret, "h200/weak-gates.json", 8);
  expect_choices_within(allowed_regret, "h200/published.json", 8);
}

// One of these is beyond 3 %, at 3.7: between one and another value_width of two_pass. What a chunk
// of warm-up takes was found with these in view.
TEST(Dispatch, IsWithinFourPercentOfTheBestOnHeadsOfModels) {
  expect_choices_within(0.04, "h200/models.json", 30);
}

// ---- where the constants come from ----

using Vector = std::vector<double>;

// The symmetric system of a least-squares problem: of x with |rows · x − 1| least, m · x = right.
struct Normal {
  std::vector<Vector> m;
  Vector right;

  explicit Normal(const std::vector<Vector>& rows)
      : m(rows.front().size(), Vector(rows.front().size(), 0)), right(rows.front().size(), 0) {
    for (const Vector& row : rows)
      for (std::size_t i = 0; i < row.size(); ++i) {
        for (std::size_t j = 0; j < row.size(); ++j) m[i][j] += row[i] * row[j];
        right[i] += row[i];
      }
  }

  // Where only the columns of `used` are not 0.
  Vector solve(const std::vector<std::size_t>& used) const {
    const std::size_t n = used.size();
    std::vector<Vector> a(n, Vector(n + 1));
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i][j] = m[used[i]][used[j]];
      a[i][n] = right[used[i]];
    }
    for (std::size_t i = 0; i < n; ++i) {
      const auto from = a.begin() + static_cast<std::ptrdiff_t>(i);
      std::iter_swap(from, std::max_element(from, a.end(), [i](const Vector& x, const Vector& y) {
                       return std::abs(x[i]) < std::abs(y[i]);
                     }));
      for (std::size_t k = 0; k < n; ++k) {
        if (k == i || a[k][i] == 0) continue;
        const double factor = a[k][i] / a[i][i];
        for (std::size_t j = i; j <= n; ++j) a[k][j] -= factor * a[i][j];
      }
    }
    Vector x(right.size(), 0);
    for (std::size_t i = 0; i < n; ++i) x[used[i]] = a[i][n] / a[i][i];
    return x;
  }
};

// x of rows · x ≈ 1 with the least squares and no x below 0, by Lawson and Hanson: a column comes
// in where that makes the squares smaller, and goes out where it would come below 0.
Vector non_negative(const std::vector<Vector>& rows) {
  const Normal normal(rows);
  Vector x(normal.right.size(), 0);
  std::vector<std::size_t> used;
  for (;;) {
    std::size_t next = x.size();
    double steepest = 1e-9;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double size = std::sqrt(normal.m[i][i]);
      const double slope =
          normal.right[i] - std::inner_product(x.begin(), x.end(), normal.m[i].begin(), 0.0);
      if (std::ranges::find(used, i) == used.end() && slope > steepest * size) {
        steepest = slope / size;
        next = i;
      }
    }
    if (next == x.size()) return x;
    used.push_back(next);
    for (;;) {
      const Vector to = normal.solve(used);
      double step = 1;  // until the first one is 0
      for (const std::size_t i : used)
        if (to[i] <= 0) step = std::min(step, x[i] / (x[i] - to[i]));
      for (const std::size_t i : used) x[i] += step * (to[i] - x[i]);
      if (step == 1) break;
      std::erase_if(used, [&](std::size_t i) {
        const bool out = to[i] <= 0 && x[i] < 1e-12;
        if (out) x[i] = 0;
        return out;
      });
    }
  }
}

// One measured time.
struct Sample {
  std::vector<Work> work;
  double us;
};

struct Constants {
  double chunk_us = 0, share_us = 0;
};
using Fitted = std::map<std::string_view, Constants>;

double predicted_us(const Fitted& fitted, const std::vector<Work>& work) {
  double us = 0;
  for (const Work& one : work) {
    const Constants& cost = fitted.at(one.cost->kind);
    us += cost.chunk_us * one.longest + cost.share_us * one.load;
  }
  return us;
}

Fitted fit(const std::vector<Sample>& samples) {
  std::map<std::string_view, std::size_t> columns;  // of chunk; share's is behind it
  for (const Sample& sample : samples)
    for (const Work& work : sample.work) columns.emplace(work.cost->kind, 2 * columns.size());
  std::vector<Vector> rows;
  for (const Sample& sample : samples) {
    Vector& row = rows.emplace_back(2 * columns.size(), 0);
    for (const Work& work : sample.work) {
      const std::size_t column = columns[work.cost->kind];
      row[column] += work.longest / sample.us;
      row[column + 1] += work.load / sample.us;
    }
  }
  const Vector x = non_negative(rows);
  Fitted fitted;
  for (const auto& [kind, column] : columns) fitted[kind] = {x[column], x[column + 1]};
  return fitted;
}

// Of each candidate in one problem.
std::map<std::string, Sample> samples_of(const Campaign& campaign, const Measured& m) {
  std::map<std::string, Sample> samples;
  const KnownInputs inputs = known_inputs(m.c, "", false);
  for (const Variant& variant : campaign.rungs)
    for (const Instance& instance : variant.instances) {
      const std::string id = variant_id(variant, instance);
      if (!m.medians.contains(id)) continue;
      samples[id] = {work_of(variant, instance, m.scope, m.c.problem, campaign.device, inputs),
                     1e6 * m.medians.at(id)};
      EXPECT_FALSE(samples[id].work.empty()) << id << " has no line of costs";
    }
  return samples;
}

// All constants that a campaign has something to say about.
Fitted fit(const Campaign& campaign) {
  std::vector<Sample> samples;
  for (const Measured& m : campaign.problems)
    for (const auto& [id, sample] : samples_of(campaign, m)) samples.push_back(sample);
  return fit(samples);
}

// A line that differs is shown as it should be.
void expect_fits(const Campaign& campaign) {
  const int digits = campaign.device.target == Target::cuda ? 3 : 1;
  const double least = std::pow(10, -digits);
  for (const auto& [kind, constants] : fit(campaign)) {
    const Cost& cost = *std::ranges::find(costs(), kind, &Cost::kind);
    EXPECT_TRUE(std::abs(cost.chunk_us - constants.chunk_us) < least &&
                std::abs(cost.share_us - constants.share_us) < least)
        << fmt::format("    {{{:<63}{:>3}, {:>6.{}f}, {:>6.{}f}}},", fmt::format("\"{}\",", kind),
                       cost.values, constants.chunk_us, digits, constants.share_us, digits);
  }
}

TEST(DispatchFit, TheConstantsAreThoseOfTheLadderOfAnH200) { expect_fits(h200_ladder()); }

TEST(DispatchFit, TheConstantsOfTheCpuAreThoseOfItsReport) { expect_fits(cpu_report()); }

TEST(DispatchFit, EveryCostIsOfSomethingMeasured) {
  Fitted all = fit(h200_ladder());
  all.merge(fit(cpu_report()));
  for (const Cost& cost : costs()) EXPECT_TRUE(all.contains(cost.kind)) << cost.kind;
}

// Fitted on any four of the eight cases, the model is within 3 % on the other four; but for two
// halves of the 70, of which that of the four largest cases, which say little of what a launch
// costs, is at 10 % on the shortest.
TEST(DispatchFit, ConstantsOfAnyHalfOfTheCasesDoForTheOtherHalf) {
  std::map<std::string, std::vector<std::pair<const Measured*, std::map<std::string, Sample>>>>
      cases;
  for (const Measured& m : h200_ladder().problems)
    cases[m.name].emplace_back(&m, samples_of(h200_ladder(), m));
  ASSERT_EQ(cases.size(), 8U);
  constexpr unsigned four_largest = 141;  // a bit a case, in the order of their names
  double worst = 0;
  int halves = 0;
  std::set<unsigned> beyond;
  for (unsigned half = 0; half < 256; ++half) {
    if (std::popcount(half) != 4) continue;
    ++halves;
    std::vector<Sample> known;
    unsigned bit = 0;
    for (const auto& [name, problems] : cases)
      if (half >> bit++ & 1U)
        for (const auto& [m, all] : problems)
          for (const auto& [id, sample] : all) known.push_back(sample);
    const Fitted fitted = fit(known);
    bit = 0;
    for (const auto& [name, problems] : cases) {
      if (half >> bit++ & 1U) continue;
      for (const auto& [m, all] : problems)
        for (const bool exact : {false, true}) {
          std::pair<double, std::string> choice = {HUGE_VAL, ""};
          for (const std::string& id : h200_ladder().ids) {  // of equal ones the first, as ever
            if (!all.contains(id) || (exact && has_bound(id))) continue;
            const double us = predicted_us(fitted, all.at(id).work);
            if (us < choice.first) choice = {us, id};
          }
          worst = std::max(worst, regret(*m, choice.second, exact));
          if (regret(*m, choice.second, exact) > allowed_regret) beyond.insert(half);
          EXPECT_LE(regret(*m, choice.second, exact), half == four_largest ? 0.13 : 0.07)
              << name << " " << name_of(m->scope) << " by half " << half << ": " << choice.second;
        }
    }
  }
  EXPECT_EQ(halves, 70);
  EXPECT_LE(beyond.size(), 2U);
  RecordProperty("worst_regret", std::to_string(worst));
}

// ---- sanity ----

std::vector<Problem> shapes() {
  std::vector<int> ragged(1024);
  for (int i = 0; i < 1024; ++i) ragged[i] = 1 + 37 * i % 200;
  std::vector<int> one_long(64, 100);
  one_long.push_back(100'000);
  return {problem_of({}, 4, 8, false),       problem_of({0}, 1, 1, true),
          problem_of({0, 0, 0}, 4, 8, true), problem_of({1}, 1, 1, false),
          problem_of({64}, 16, 32, false),   problem_of({300}, 4, 8, true),
          problem_of({8192}, 4, 4, false),   problem_of({8192, 8192}, 4, 16, false),
          problem_of({65536}, 16, 64, true), problem_of({4096, 0, 17, 900}, 2, 12, true),
          problem_of(ragged, 4, 8, false),   problem_of(one_long, 2, 8, false)};
}

constexpr int device_sizes[] = {1, 2, 16, 78, 108, 114, 128, 132, 144, 160, 264, 500};

TEST(Dispatch, AlwaysChoosesAndSaysWhy) {
  for (const Problem& problem : shapes())
    for (const Scope scope : all_scopes)
      for (const int processors : device_sizes)
        for (const double chunk_gates : {0.0, -0.1, -3.2, -1e4}) {
          const auto choice = dispatch(h200_ladder().rungs, problem, scope, h200(processors),
                                       {.chunk_gates = chunk_gates});
          ASSERT_TRUE(choice);
          EXPECT_TRUE(std::isfinite(choice->predicted_s) && choice->predicted_s >= 0);
          EXPECT_FALSE(choice->reason.empty());
        }
}

// The most by which one device more is predicted slower than a smaller one.
double worst_of_more_processors(const std::vector<Variant>& rungs, const Problem& problem,
                                bool exact) {
  double worst = 1, fewer_s = HUGE_VAL;
  for (int processors = 1; processors <= 300; processors += processors < 16 ? 1 : 7) {
    const auto choice = dispatch(rungs, problem, Scope::core, h200(processors), {.exact = exact});
    worst = std::max(worst, choice->predicted_s / fewer_s);
    fewer_s = choice->predicted_s;
  }
  return worst;
}

TEST(Dispatch, MoreProcessorsAreNeverPredictedSlower) {
  std::vector<std::string> ids = h200_ladder().ids;
  std::erase_if(ids, [](const std::string& id) { return id.find(":segments=auto") != id.npos; });
  for (const Problem& problem : shapes())
    for (const bool exact : {false, true})
      EXPECT_LE(worst_of_more_processors(rungs_of(ids, Target::cuda), problem, exact), 1 + 1e-12)
          << problem.sequences() << " sequences of " << problem.tokens() << " tokens";
}

// What is cut for the device is cut otherwise for one processor more, maybe with more warm-ups or a
// worse last wave, and it is no use to predict that away. The plan of two_pass takes the least by
// its own table of costs, where a transition's CTA ends at once: here it takes 4 chunks for that,
// so that more of shorter ones may be slower than the plan thinks.
TEST(Dispatch, MoreProcessorsArePredictedLittleSlowerWhereTheCutIsAnother) {
  for (const Problem& problem : shapes())
    for (const auto& [exact, most] : {std::pair{false, 1.08}, {true, 1.1}})
      EXPECT_LE(worst_of_more_processors(h200_ladder().rungs, problem, exact), most)
          << problem.sequences() << " sequences of " << problem.tokens() << " tokens";
}

TEST(Dispatch, MoreWorkIsNeverPredictedFaster) {
  for (const bool exact : {false, true}) {
    double shorter_s = 0;
    for (int tokens = 64; tokens <= 1 << 18; tokens *= 2) {
      const auto choice = dispatch(h200_ladder().rungs, problem_of({tokens}, 4, 8, false),
                                   Scope::core, h200(), {.exact = exact});
      EXPECT_GE(choice->predicted_s, shorter_s) << tokens;
      shorter_s = choice->predicted_s;
    }
  }
}

TEST(Dispatch, AShortSequenceIsNotCut) {
  for (const int tokens : {1, 64, 200, 256}) {
    const Problem problem = problem_of({tokens}, 4, 4, false);
    const auto choice = dispatch(h200_ladder().rungs, problem, Scope::core, h200(), {});
    EXPECT_EQ(choice->reason.find("segments"), std::string::npos) << choice->reason;
  }
}

TEST(Dispatch, WhatHasABoundIsLeftOutWhereItMustBe) {
  const Problem problem = problem_of({8192}, 4, 4, false);
  const auto name = [&](const KnownInputs& inputs) {
    return dispatch(h200_ladder().rungs, problem, Scope::core, h200(), inputs)->variant->name;
  };
  EXPECT_EQ(name({}), "segmented");
  EXPECT_EQ(name({.exact = true}), "two_pass");
  EXPECT_EQ(name({.unit_keys = false}), "two_pass");
  EXPECT_EQ(name({.chunk_gates = 0}), "two_pass");  // nothing is forgotten: no warm-up would end
}

// An A100: the rungs that are left, and of these the one that was fastest where all could run.
TEST(Dispatch, OlderDevicesGetWhatTheyCanRun) {
  Device a100 = h200(108);
  a100.capability = 80;
  const std::set<std::string> rungs = {"baseline", "residual", "fused", "wide"};
  for (const Problem& problem : shapes()) {
    const auto choice = dispatch(h200_ladder().rungs, problem, Scope::core, a100, {});
    ASSERT_TRUE(choice);
    EXPECT_TRUE(rungs.contains(choice->variant->name)) << choice->variant->name;
  }
  std::vector<std::string> ids;
  for (const std::string& id : h200_ladder().ids)
    if (rungs.contains(id.substr(0, id.find(':')))) ids.push_back(id);
  for (const Measured& m : h200_ladder().problems) {
    double best_s = HUGE_VAL;
    for (const std::string& id : ids) best_s = std::min(best_s, m.medians.at(id));
    const std::vector<Variant> portable = rungs_of(ids, Target::cuda);
    const auto choice = dispatch(portable, m.c.problem, m.scope, h200(), {});
    EXPECT_LE(m.medians.at(id_of(*choice)) / best_s - 1, allowed_regret)
        << m.name << " " << id_of(*choice);
  }
  // Heads enough to fill any device: then 128 values a CTA read the inputs once.
  const auto full =
      dispatch(h200_ladder().rungs, problem_of(std::vector<int>(64, 8192), 16, 64, false),
               Scope::core, a100, {});
  EXPECT_EQ(id_of(*full), "wide:stages=2:threads=256");
}

TEST(Dispatch, WhatAProblemOrADeviceRulesOutIsNotChosen) {
  std::vector<Variant> rungs = h200_ladder().rungs;
  const Problem problem = problem_of({8192}, 4, 4, false);
  const auto rung = [&](const char* name) -> Variant& {
    return *std::ranges::find(rungs, name, &Variant::name);
  };
  rung("segmented").accepts = [](const Problem&) { return std::string("not this one"); };
  EXPECT_EQ(dispatch(rungs, problem, Scope::core, h200(), {})->variant->name, "two_pass");
  for (Instance& instance : rung("two_pass").instances) instance.obstacle = "not compiled";
  EXPECT_EQ(dispatch(rungs, problem, Scope::core, h200(), {})->variant->name, "register_state");
  for (Variant& variant : rungs) variant.needs = [](const Device&) { return std::string("more"); };
  EXPECT_FALSE(dispatch(rungs, problem, Scope::core, h200(), {}));
  EXPECT_FALSE(dispatch(rungs_of({"a_rung_of_mine:threads=1"}, Target::cuda), problem, Scope::core,
                        h200(), {}));
}

TEST(Dispatch, TheReasonCountsWhatItSpeaksOf) {
  const auto reason = [](const Problem& problem, const KnownInputs& inputs = {}) {
    return dispatch(h200_ladder().rungs, problem, Scope::core, h200(), inputs)->reason;
  };
  // By hand: 4 heads in halves are 8 CTAs; 16 segments of the 124 chunks behind the warm-up.
  EXPECT_EQ(reason(problem_of({8192}, 4, 4, false)),
            "8 CTAs of 64 values leave 124 of 132 multiprocessors idle: 16 segments of about 8 "
            "chunks with 4 of warm-up");
  EXPECT_EQ(reason(problem_of({8192}, 4, 4, false), {.exact = true}),
            "8 CTAs of 64 values leave 124 of 132 multiprocessors idle: 16 segments of about 8 "
            "chunks behind their transitions");
  EXPECT_EQ(reason(problem_of({256}, 4, 4, false), {.exact = true}),
            "8 CTAs of 64 values go side by side on 132 multiprocessors, and the longest chain "
            "decides: 4 chunks");
  EXPECT_EQ(reason(problem_of(std::vector<int>(33, 64), 4, 16, false), {.exact = true}),
            "528 CTAs of 128 values are 4.0 waves on 132 multiprocessors, and the work decides");
  EXPECT_EQ(reason(problem_of({0}, 1, 1, false)), "there is no token to go through");
}

// How problems are dealt out, in chunks.
std::vector<Work> work_of(const std::string& id, const Problem& problem, double chunk_gates,
                          Scope scope = Scope::core) {
  const std::vector<Variant> rungs = rungs_of({id}, Target::cuda);
  return work_of(rungs[0], rungs[0].instances[0], scope, problem, h200(),
                 {.chunk_gates = chunk_gates});
}

TEST(Dispatch, TheWholeForwardIsDealtOutAsItsSegmentsAre) {
  const Problem problem = problem_of({8192}, 4, 4, false);
  // Whole: 8 CTAs of 128 chunks and 1.3 for the pipeline, whatever the gates.
  for (const double gates : {0.0, -3.2}) {
    const std::vector<Work> whole =
        work_of("forward:segments=1:threshold=-12:value_width=64", problem, gates, Scope::forward);
    ASSERT_EQ(whole.size(), 2U);
    EXPECT_DOUBLE_EQ(whole[0].longest, 129.3);
    EXPECT_NEAR(whole[0].load, 8 * 129.3 / 132, 1e-9);
    EXPECT_EQ(whole[1].longest, 1);
  }
  const auto cut =
      work_of("forward:segments=auto:threshold=-12:value_width=64", problem, -3.2, Scope::forward);
  const auto core =
      work_of("segmented:segments=auto:stages=3:threshold=-12:value_width=64", problem, -3.2);
  EXPECT_EQ(cut.at(0).longest, core.at(0).longest);
  EXPECT_EQ(cut[0].load, core[0].load);
}

TEST(Dispatch, WhoDoesNotServeForwardIsPreparedFor) {
  const auto work =
      work_of("fused:stages=2", problem_of({64, 100}, 2, 4, false), 0, Scope::forward);
  ASSERT_EQ(work.size(), 3U);
  EXPECT_EQ(work[1].longest, 2);
  EXPECT_EQ(work[2].cost->kind, "cuda:preparation");
  EXPECT_DOUBLE_EQ(work[2].load, 3 * (4 + 1.6 * 2) / 132);  // of 3 chunks
  EXPECT_EQ(work[2].longest, 1);                            // one behind the other
}

// By hand, of 4 heads and 8 segments of 16 chunks: 4 · (1 + 2 · 6) = 52 CTAs make 7 transitions of
// 16 and 7 chunks. With groups of three boundaries 2 steps are the scan, and 2 lead from the first
// group to the last segment. Then 16 chunks with output, whose CTAs begin beside them.
TEST(Dispatch, TwoPassesAreTransitionsAScanAndOutputs) {
  const Problem problem = problem_of({8192}, 4, 4, false);
  const auto expect_transitions = [](const std::vector<Work>& work) {
    ASSERT_EQ(work.size(), 5U);
    EXPECT_EQ(work[0].cost->kind, "cuda:start");
    EXPECT_EQ(work[0].longest, 3);
    EXPECT_EQ(work[1].cost->kind, "two_pass:transitions");
    EXPECT_DOUBLE_EQ(work[1].longest, 23);
    EXPECT_NEAR(work[1].load, 52 * 23 / 132.0, 1e-9);
    EXPECT_EQ(work[2].longest, 4);
    EXPECT_DOUBLE_EQ(work[3].longest, 16);
    EXPECT_EQ(work[4].longest, 1);
  };
  const char* exact = "two_pass:segments=8:stages=3:threshold=none:value_width=64";
  for (const double gates : {0.0, -3.2, -1e4}) expect_transitions(work_of(exact, problem, gates));
  // A warm-up of 4 chunks saves them, and so does one of 6. One that is longer does not. A chunk of
  // it takes less where heads share their keys.
  const char* bounded = "two_pass:segments=8:stages=3:threshold=-12:value_width=64";
  for (const auto& [gates, warm_up] : {std::pair{-3.0, 4}, {-2.0, 6}}) {
    const std::vector<Work> work = work_of(bounded, problem, gates);
    ASSERT_EQ(work.size(), 3U);
    EXPECT_EQ(work[0].cost->kind, "cuda:start");
    EXPECT_DOUBLE_EQ(work[1].longest, 18.3 + 0.78 * warm_up);
    EXPECT_DOUBLE_EQ(work_of(bounded, problem_of({8192}, 2, 4, false), gates)[1].longest,
                     18.3 + 0.7 * warm_up);
    EXPECT_EQ(work[2].longest, 1);
  }
  expect_transitions(work_of(bounded, problem, -1.9));
  expect_transitions(work_of(bounded, problem, 0));
  // Where nothing is cut it is rung 8.
  EXPECT_EQ(work_of(exact, problem_of({64}, 4, 4, false), 0).back().longest, 1);
}

TEST(Dispatch, TheGatesOfACaseAreLookedAt) {
  Case c{.name = "x", .problem = problem_of({100, 4000}, 1, 8, false), .recipe = {}};
  const auto gates = [&](Gates profile) {
    c.recipe.gates = profile;
    return known_inputs(c, "", false).chunk_gates;
  };
  // E softplus(normal) = 0.8060 (scipy: quad(lambda x: log1p(exp(x)) * norm.pdf(x), -40, 40)), of
  // which 64/16 a chunk; the head that forgets least of eight is a little above.
  EXPECT_NEAR(gates(Gates::random_decay), -3.224, 0.2);
  EXPECT_NEAR(gates(Gates::mixed), -1.612, 0.15);
  EXPECT_EQ(gates(Gates::zero), 0);
  EXPECT_NEAR(gates(Gates::strong), -6.5 * 64, 15);
  EXPECT_LT(gates(Gates::reset), -100);
  EXPECT_LT(gates(Gates::infinite), -50);
}

TEST(Dispatch, OnTheCpuThreadsAreFilled) {
  for (const int threads : {1, 2, 16, 192}) {
    const Device device{.target = Target::cpu, .name = "a CPU", .processors = threads};
    for (const Problem& problem : shapes()) {
      const auto choice = dispatch(cpu_report().rungs, problem, Scope::forward, device, {});
      ASSERT_TRUE(choice);
      EXPECT_TRUE(std::ranges::find(choice->instance->knobs, Knob{"threads", "all"}) !=
                  choice->instance->knobs.end());
    }
  }
  const Device sixteen{.target = Target::cpu, .name = "a CPU", .processors = 16};
  EXPECT_EQ(dispatch(cpu_report().rungs, problem_of({640}, 4, 8, false), Scope::core, sixteen, {})
                ->reason,
            "8 chains go side by side on 16 threads, and the longest chain decides: 10 chunks");
}

}  // namespace
}  // namespace gdn
