// Search spaces: what they span, and what is refused where.
#include "src/search_space.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "src/error.hpp"
#include "tests/process.hpp"

namespace gdn {
namespace {

Instance with(std::vector<Knob> knobs, const std::string& obstacle = "") {
  return {.knobs = std::move(knobs),
          .stages = {},
          .workspace_bytes = nullptr,
          .setup = nullptr,
          .obstacle = obstacle};
}

Variant rung(const std::string& name, Target target, std::vector<Instance> instances) {
  return {.name = name,
          .idea = "",
          .target = target,
          .scopes = {Scope::core},
          .needs = nullptr,
          .accepts = nullptr,
          .instances = std::move(instances)};
}

Instance wide(const char* stages, const char* threads, const char* obstacle = "") {
  return with({{"stages", stages}, {"threads", threads}}, obstacle);
}

Instance specialized(const char* beta_in_a, const char* stages, const char* width) {
  return with({{"beta_in_a", beta_in_a}, {"stages", stages}, {"value_width", width}});
}

Instance split(const char* stages, const char* width) {
  return with({{"stages", stages}, {"value_width", width}});
}

Instance registers(const std::string& form, const std::string& stages,
                   const std::string& value_width) {
  return with({{"form", form}, {"stages", stages}, {"value_width", value_width}});
}

Instance segments(const std::string& number, const std::string& stages,
                  const std::string& value_width) {
  return with({{"segments", number},
               {"stages", stages},
               {"threshold", "-12"},
               {"value_width", value_width}});
}

Instance two_passes(const std::string& number, const std::string& stages,
                    const std::string& threshold, const std::string& value_width) {
  return with({{"segments", number},
               {"stages", stages},
               {"threshold", threshold},
               {"value_width", value_width}});
}

Instance whole_forward(const std::string& number, const std::string& value_width) {
  return with({{"segments", number}, {"threshold", "-12"}, {"value_width", value_width}});
}

// The knobs of the CUDA ladder, which a build without CUDA does not have.
std::vector<Variant> cuda_ladder() {
  const std::vector<Instance> two_or_three = {with({{"stages", "2"}}), with({{"stages", "3"}})};
  return {
      rung("chunked", Target::cpu, {with({})}),
      rung("baseline", Target::cuda, two_or_three),
      rung("residual", Target::cuda, two_or_three),
      rung("fused", Target::cuda, two_or_three),
      rung("wide", Target::cuda,
           {wide("1", "128", "it spills"), wide("1", "256"), wide("1", "512"), wide("1", "1024"),
            wide("2", "256"), wide("2", "512"), wide("2", "1024", "it spills too")}),
      rung("warp_specialized", Target::cuda,
           {specialized("true", "2", "128"), specialized("false", "2", "128"),
            specialized("true", "2", "64"), specialized("false", "2", "64"),
            specialized("false", "3", "64"), specialized("true", "2", "32"),
            specialized("false", "2", "32"), specialized("false", "3", "32")}),
      rung("split_barrier", Target::cuda,
           {split("2", "128"), split("2", "64"), split("3", "64"), split("2", "32"),
            split("3", "32")}),
      rung("register_state", Target::cuda,
           {registers("w", "2", "128"), registers("w", "3", "128"), registers("w", "2", "64"),
            registers("w", "3", "64"), registers("x", "3", "64")}),
      rung("segmented", Target::cuda,
           {segments("auto", "3", "128"), segments("2", "3", "128"), segments("4", "3", "128"),
            segments("8", "3", "128"), segments("16", "3", "128"), segments("auto", "3", "64"),
            segments("2", "3", "64"), segments("4", "3", "64"), segments("8", "3", "64"),
            segments("16", "3", "64")}),
      rung("two_pass", Target::cuda,
           {two_passes("auto", "3", "none", "128"), two_passes("2", "3", "none", "128"),
            two_passes("4", "3", "none", "128"), two_passes("8", "3", "none", "128"),
            two_passes("auto", "3", "-12", "128"), two_passes("auto", "3", "none", "64"),
            two_passes("2", "3", "none", "64"), two_passes("4", "3", "none", "64"),
            two_passes("8", "3", "none", "64"), two_passes("auto", "3", "-12", "64"),
            two_passes("8", "3", "-12", "64")}),
      rung("forward", Target::cuda,
           {whole_forward("auto", "128"), whole_forward("1", "128"), whole_forward("auto", "64"),
            whole_forward("1", "64")})};
}

std::vector<std::string> ids_of(const std::vector<SelectedVariant>& selected) {
  std::vector<std::string> ids;
  for (const SelectedVariant& s : selected) ids.push_back(variant_id(*s.variant, *s.instance));
  return ids;
}

using Ids = std::vector<std::string>;

TEST(SearchSpace, OfTheProjectIsEveryInstanceThatCanBeHad) {
  const std::vector<Variant> ladder = cuda_ladder();
  const std::string yaml = test::read_file(GDNBENCH_SOURCE_DIR "/tuning/cuda.yaml");
  Ids expected;
  for (const Variant& variant : ladder)
    for (const Instance& instance : variant.instances)
      if (variant.target == Target::cuda && instance.obstacle.empty())
        expected.push_back(variant_id(variant, instance));
  EXPECT_EQ(expected.size(), 54U);
  EXPECT_EQ(ids_of(*parse_space(yaml, "cuda.yaml", Target::cuda, ladder)), expected);
  EXPECT_FALSE(parse_space(yaml, "cuda.yaml", Target::cpu, ladder));
  for (const Target target : {Target::cpu, Target::cuda})
    if (std::ranges::find(gdn::ladder(), target, &Variant::target) != gdn::ladder().end()) {
      EXPECT_FALSE(search_space("", target).empty());
    }
}

TEST(SearchSpace, ConstraintsLeaveOut) {
  const std::vector<Variant> ladder = cuda_ladder();
  const auto ids = [&](const char* yaml) {
    return ids_of(*parse_space(yaml, "s", Target::cuda, ladder));
  };
  EXPECT_EQ(ids("target: cuda\nvariants: {wide: {knobs: {threads: [512, 256], stages: 2}}, "
                "fused: {knobs: {stages: 3}}}\n"),
            (Ids{"fused:stages=3", "wide:stages=2:threads=256", "wide:stages=2:threads=512"}));
  EXPECT_EQ(ids(R"(target: cuda
variants:
  wide:
    knobs: {stages: [1, 2], threads: [256, 512]}
    constraints:
      - {name: one, when: {stages: 2, threads: [256, 512]}, only: {threads: 512}, why: a test}
      - {name: two, when: {stages: 1}, only: {threads: 256}, why: a test}
)"),
            (Ids{"wide:stages=1:threads=256", "wide:stages=2:threads=512"}));
}

struct BadSpace {
  const char* yaml;
  const char* message;  // from the place on
};

TEST(SearchSpace, IsRefusedAtTheExactPlace) {
  const std::vector<BadSpace> bad = {
      {"- target\n", "s:1:1: not a map"},
      {"target: cuda\nvariant: {}\n",
       "s:2:1: unknown field \"variant\"; did you mean \"variants\""},
      {"variants: {}\n", "s:1:1: field `target` is missing; add for example `target: cuda`"},
      {"target: cuda\n", "s:1:1: field `variants` is missing"},
      {"target: cdua\nvariants: {}\n", "s:1:9: target \"cdua\" is none; did you mean \"cuda\"?"},
      {"target: [cuda]\nvariants: {}\n", "s:1:9: `target` is no word"},
      {"target: cuda\nvariants:\n", "s:2:1: `variants` is not a map"},
      {"target: cuda\nvariants: {}\n", "s:1:1: the space has no candidate"},
      {"target: cuda\nvariants:\n  chunked: {}\n",
       "s:3:3: the ladder has no cuda variant \"chunked\"; there is baseline, residual"},
      {"target: cuda\nvariants:\n  fuse: {}\n",
       "s:3:3: the ladder has no cuda variant \"fuse\"; "
       "did you mean \"fused\"?"},
      {"target: cuda\nvariants:\n  fused:\n", "s:3:3: `fused` is not a map"},
      {"target: cuda\nvariants:\n  fused: {knob: {}}\n",
       "s:3:11: unknown field \"knob\"; did you mean \"knobs\"?"},
      {"target: cuda\nvariants:\n  fused: {}\n",
       "s:3:3: knob `stages` of `fused` is missing; add `stages: [2, 3]` to its knobs"},
      {"target: cuda\nvariants:\n  fused: {knobs: [2, 3]}\n", "s:3:18: `knobs` is not a map"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stage: 2}}\n",
       "s:3:19: `fused` has no knob \"stage\"; did you mean \"stages\"?"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: [2, 4]}}\n",
       "s:3:31: fused has no stages=\"4\"; there is 2, 3"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: [2, 2]}}\n",
       "s:3:31: `stages` has the value \"2\" twice; remove one"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: []}}\n",
       "s:3:27: `stages` has no values"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: [[2]]}}\n",
       "s:3:28: `stages` has a value that is no word or number"},
      {"target: cpu\nvariants:\n  chunked: {knobs: {stages: 2}}\n",
       "s:3:21: `chunked` has no knobs; write `chunked: {}`"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: 2}, constraints: {}}\n",
       "s:3:44: `constraints` is not a list"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: 2}, constraints: [{name: a}]}\n",
       "s:3:45: field `why` is missing"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: [2, 3]}, constraints: [{name: a, why: "
       "b, "
       "only: {}}]}\n",
       "s:3:74: `only` is empty; name one of stages"},
      {"target: cuda\nvariants:\n  fused: {knobs: {stages: [2, 3]}, constraints: [{name: a, why: "
       "b, "
       "only: {stages: 4}}]}\n",
       "s:3:83: its knobs has no stages=\"4\"; there is 2, 3"},
      {"target: cuda\nvariants:\n  fused:\n    knobs: {stages: [2, 3]}\n    constraints:\n"
       "      - {name: a, why: b, only: {stages: 2}}\n"
       "      - {name: a, why: b, only: {stages: 2}}\n",
       "s:7:16: `fused` has two constraints \"a\"; rename one"},
      {"target: cuda\nvariants:\n  fused:\n    knobs: {stages: [2, 3]}\n    constraints:\n"
       "      - {name: a, why: b, iff: {stages: 2}, only: {stages: 2}}\n",
       "s:6:27: unknown field \"iff\""},
      // What was not compiled, and what cannot be had.
      {"target: cuda\nvariants:\n  split_barrier: {knobs: {stages: [2, 3], value_width: [64, "
       "128]}}\n",
       "s:3:3: `split_barrier` allows stages=3:value_width=128, which was not compiled; add the "
       "constraint `- {name: …, when: {stages: 3}, only: {value_width: [64]}, why: …}`"},
      {"target: cuda\nvariants:\n  wide: {knobs: {stages: 2, threads: [512, 1024]}}\n",
       "s:3:3: `wide` allows stages=2:threads=1024, which cannot be had (it spills too); add the "
       "constraint `- {name: …, when: {stages: 2}, only: {threads: [512]}, why: …}`"},
      {"target: cuda\nvariants:\n  wide: {knobs: {stages: [2], threads: [128]}}\n",
       "s:3:3: `wide` allows stages=2:threads=128, which was not compiled; take one of these "
       "values out"},
  };
  const std::vector<Variant> ladder = cuda_ladder();
  for (const BadSpace& space : bad) {
    const bool cpu = std::string(space.yaml).starts_with("target: cpu");
    try {
      parse_space(space.yaml, "s", cpu ? Target::cpu : Target::cuda, ladder);
      ADD_FAILURE() << "let through:\n" << space.yaml;
    } catch (const UserError& e) {
      EXPECT_TRUE(std::string(e.what()).starts_with(space.message)) << e.what() << "\ninstead of\n"
                                                                    << space.message;
    }
  }
}

TEST(SearchSpace, GlobsSelectCandidates) {
  const Ids all = {"fused:stages=2", "wide:stages=1:threads=256", "wide:stages=2:threads=256"};
  EXPECT_EQ(meant_by({}, all), all);
  EXPECT_EQ(meant_by({"wide"}, all), (Ids{all[1], all[2]}));
  EXPECT_EQ(meant_by({"*stages=2*"}, all), (Ids{all[0], all[2]}));
  EXPECT_EQ(meant_by({"wide:stages=1*", "fused"}, all), (Ids{all[0], all[1]}));
  try {
    meant_by({"fused:stage=2"}, all);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_TRUE(std::string(e.what()).find("did you mean \"fused:stages=2\"?") != std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace gdn
