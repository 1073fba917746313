#include "src/case.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>

#include "src/error.hpp"

namespace gdn {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t plenty = std::size_t{1} << 40;

std::vector<Case> parse(const std::string& yaml, const std::vector<Override>& overrides = {},
                        std::size_t memory_bytes = plenty) {
  return parse_cases(yaml, "f.yaml", overrides, memory_bytes);
}

// The message of the refusal, "" where there is none.
template <typename Function>
std::string refusal(Function&& function) {
  try {
    function();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

std::string refusal_of(const std::string& yaml, const std::vector<Override>& overrides = {},
                       std::size_t memory_bytes = plenty) {
  return refusal([&] { parse(yaml, overrides, memory_bytes); });
}

// A whole case in seven lines; a test replaces or adds some.
const std::string start =
    "name: c\nquery_heads: 2\nvalue_heads: 4\ngates: zero\ninitial_state: true\n";
const std::string whole = start + "tokens: 100\n";

std::vector<std::string> ids(const std::vector<Case>& cases) {
  std::vector<std::string> ids;
  for (const Case& c : cases) ids.push_back(c.name);
  return ids;
}

using Ids = std::vector<std::string>;
using Offsets = std::vector<std::int32_t>;

void expect_round_trip(const Case& c) {
  const std::vector<Case> again = parse_cases(to_yaml(c), "printed", {}, plenty);
  ASSERT_EQ(again.size(), 1u) << to_yaml(c);
  EXPECT_EQ(again[0], c) << to_yaml(c);
}

TEST(Case, ReadsEveryField) {
  const Case c =
      parse(start + "batch: 3\ntokens: 65\nbeta_max: 2\nseed: 18446744073709551615\n")[0];
  EXPECT_EQ(c.name, "c");
  EXPECT_EQ(c.problem.offsets, (Offsets{0, 65, 130, 195}));
  EXPECT_EQ(c.problem.query_heads, 2);
  EXPECT_EQ(c.problem.value_heads, 4);
  EXPECT_TRUE(c.problem.initial_state);
  EXPECT_EQ(c.recipe, (Recipe{Gates::zero, 2, std::numeric_limits<std::uint64_t>::max()}));
  expect_round_trip(c);
}

TEST(Case, HasDefaults) {
  const Case c = parse(whole)[0];
  EXPECT_EQ(c.problem.offsets, (Offsets{0, 100}));
  EXPECT_EQ(c.recipe, (Recipe{Gates::zero, 1, 1}));
}

TEST(Case, ReadsSequencesEmptyOnesIncluded) {
  const Case c = parse(start + "sequences: [0, 64, 0, 7]\n")[0];
  EXPECT_EQ(c.problem.offsets, (Offsets{0, 0, 64, 64, 71}));
  expect_round_trip(c);
  EXPECT_EQ(parse(start + "sequences:\n  - 5\n  - 3x2\n")[0].problem.offsets,
            (Offsets{0, 5, 8, 11}));
  // A dense batch is the case of equal lengths.
  EXPECT_EQ(parse(start + "sequences: [9x2]")[0], parse(start + "batch: 2\ntokens: 9\n")[0]);
}

TEST(Case, TakesOrdinaryYaml) {
  const std::string flow =
      "{\"name\": 'c', query_heads: 2, value_heads: 4, gates: 'zero', initial_state: true, tokens: "
      "100}";
  EXPECT_EQ(parse(flow), parse(whole));
  EXPECT_EQ(parse("# caf\u00e9\n---\n" + whole + "...\n"), parse(whole));
  EXPECT_EQ(parse("\xEF\xBB\xBF" + whole), parse(whole));
  std::string dos = whole;
  for (std::size_t i = 0; (i = dos.find('\n', i)) != std::string::npos; i += 2) {
    dos.replace(i, 1, "\r\n");
  }
  EXPECT_EQ(parse(dos), parse(whole));
}

TEST(Case, ExpandsAxesInTheOrderOfTheFile) {
  const std::vector<Case> cases = parse(
      "axes: {tokens: [8, 9], value_heads: [2, 4]}\nname: models\nquery_heads: 2\n"
      "gates: zero\ninitial_state: false\n");
  EXPECT_EQ(ids(cases), (Ids{"models:tokens=8:value_heads=2", "models:tokens=8:value_heads=4",
                             "models:tokens=9:value_heads=2", "models:tokens=9:value_heads=4"}));
  EXPECT_EQ(cases[1].problem.value_heads, 4);
  EXPECT_EQ(cases[2].problem.offsets, (Offsets{0, 9}));
  for (const Case& c : cases) expect_round_trip(c);
}

TEST(Case, CompressesSequencesInIds) {
  const std::vector<Case> cases =
      parse(start +
            "axes:\n  sequences:\n    - [28672, 4096]\n    - [8192, 8192, 8192, 8192]\n"
            "    - [0, 0, 7, 7, 1]\n    - [65]\n");
  EXPECT_EQ(ids(cases), (Ids{"c:sequences=28672+4096", "c:sequences=8192x4",
                             "c:sequences=0+0+7x2+1", "c:sequences=65"}));
  for (const Case& c : cases) expect_round_trip(c);
}

TEST(Case, RoundTripsNamesThatYamlWouldMisread) {
  for (const char* name : {"null", "true", "a:", "a:b=1", "x-", "A+b.c_d"}) {
    Case c = parse(whole)[0];
    c.name = name;
    expect_round_trip(c);
  }
}

TEST(Case, OverridesFields) {
  const Case c = parse(whole, {{"tokens", "4096"}, {"gates", "model"}})[0];
  EXPECT_EQ(c.name, "c:tokens=4096:gates=model");
  EXPECT_EQ(c.problem.tokens(), 4096);
  EXPECT_EQ(c.recipe.gates, Gates::model);
  EXPECT_EQ(parse(whole, {{"seed", "7"}})[0].recipe.seed, 7u);  // a field that was not given
}

TEST(Case, OverridesAxes) {
  const std::string axes = start + "axes: {tokens: [8, 9], seed: [1, 2]}\n";
  const std::vector<Case> cases = parse(axes, {{"tokens", "7"}, {"beta_max", "2"}});
  EXPECT_EQ(ids(cases), (Ids{"c:tokens=7:seed=1:beta_max=2", "c:tokens=7:seed=2:beta_max=2"}));
}

TEST(Case, OverridesOneWayToGiveLengthsByTheOther) {
  const Case ragged = parse(start + "batch: 2\ntokens: 9\n", {{"sequences", "28672+4096x2"}})[0];
  EXPECT_EQ(ragged.name, "c:sequences=28672+4096x2");
  EXPECT_EQ(ragged.problem.offsets, (Offsets{0, 28672, 32768, 36864}));
  const std::vector<Case> dense =
      parse(start + "axes: {sequences: [[1], [2]]}\n", {{"tokens", "5"}});
  EXPECT_EQ(ids(dense), (Ids{"c:tokens=5"}));
  EXPECT_EQ(dense[0].problem.offsets, (Offsets{0, 5}));
}

TEST(Case, RefusesOverridesWithTheirColumn) {
  EXPECT_EQ(
      refusal_of(whole, {{"tokens", "4x"}}),
      "--set tokens=4x:1:8: `tokens` is \"4x\", not a whole number; write plain decimal digits, "
      "such as 4096");
  EXPECT_EQ(
      refusal_of(whole, {{"sequences", "5+x"}}),
      "--set sequences=5+x:1:13: `sequences` is \"\", not a whole number; write plain decimal "
      "digits, such as 4096");
  EXPECT_EQ(refusal_of(whole, {{"token", "4"}}),
            "--set token=4:1:1: unknown field \"token\"; did you mean \"tokens\"?");
  EXPECT_EQ(refusal_of(whole, {{"tokens", ""}}),
            "--set tokens=:1:8: `tokens` has no value; write 4096");
  EXPECT_EQ(
      refusal_of(whole, {{"query_heads", "3"}}),
      "--set query_heads=3:1:13: `value_heads` is 4, no multiple of `query_heads`, which is 3; "
      "every query head serves as many value heads");
  EXPECT_NE(refusal_of(whole, {{"name", "d"}}), "");
  EXPECT_NE(refusal_of(whole, {{"tokens", "4"}, {"tokens", "5"}}), "");
  EXPECT_NE(refusal_of(whole, {{"tokens", "4"}, {"sequences", "5"}}), "");
  EXPECT_NE(refusal_of(start + "sequences: [1]\n", {{"batch", "2"}}), "");
  EXPECT_NE(refusal_of(whole, {{"sequences", ""}}), "");
  EXPECT_NE(refusal_of(whole, {{"sequences", "[1, 2]"}}), "");
}

struct Refusal {
  std::string yaml;
  std::string starts;  // of the message
};

class CaseRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(CaseRefusal, NamesPlaceReasonAndRemedy) {
  const std::string message = refusal_of(GetParam().yaml);
  EXPECT_EQ(message.substr(0, GetParam().starts.size()), GetParam().starts) << "whole: " << message;
  EXPECT_NE(message.find_first_of(";?"), std::string::npos) << "no remedy: " << message;
}

const std::string axes_start = "name: c\nquery_heads: 1\ngates: zero\ninitial_state: true\n";

INSTANTIATE_TEST_SUITE_P(
    Number, CaseRefusal,
    testing::Values(
        Refusal{start + "tokens: 010\n",
                "f.yaml:6:9: `tokens` is \"010\", not a whole number; write 10"},
        Refusal{start + "tokens: +5\n",
                "f.yaml:6:9: `tokens` is \"+5\", not a whole number; write 5"},
        Refusal{start + "tokens: -5\n", "f.yaml:6:9: `tokens` is \"-5\", not a whole number"},
        Refusal{start + "tokens: 0x10\n", "f.yaml:6:9: `tokens` is \"0x10\", not a whole number"},
        Refusal{start + "tokens: 1_000\n",
                "f.yaml:6:9: `tokens` is \"1_000\", not a whole number; write 1000"},
        Refusal{start + "tokens: 1e3\n", "f.yaml:6:9: `tokens` is \"1e3\", not a whole number"},
        Refusal{start + "tokens: 4.0\n", "f.yaml:6:9: `tokens` is \"4.0\", not a whole number"},
        Refusal{start + "tokens: yes\n", "f.yaml:6:9: `tokens` is \"yes\", not a whole number"},
        Refusal{start + "tokens: 4 5\n", "f.yaml:6:9: `tokens` is \"4 5\", not a whole number"},
        Refusal{start + "tokens: 4\n  5\n", "f.yaml:6:9: `tokens` is \"4 5\", not a whole number"},
        Refusal{start + "tokens: '5'\n", "f.yaml:6:9: `tokens` is quoted text"},
        Refusal{start + "tokens: |\n  5\n", "f.yaml:6:9: `tokens` is quoted text"},
        Refusal{start + "tokens: [5]\n", "f.yaml:6:9: `tokens` is a list"},
        Refusal{start + "tokens: {a: 5}\n", "f.yaml:6:9: `tokens` holds fields of its own"},
        Refusal{start + "tokens:\n", "f.yaml:6:1: `tokens` has no value"},
        Refusal{start + "tokens: ~\n", "f.yaml:6:1: `tokens` has no value"},
        Refusal{start + "tokens: null\n", "f.yaml:6:1: `tokens` has no value"},
        Refusal{start + "tokens: 0\n", "f.yaml:6:9: `tokens` is 0, out of range; give 1 ... "},
        Refusal{start + "tokens: 16777217\n", "f.yaml:6:9: `tokens` is 16777217, out of range"},
        Refusal{start + "tokens: 18446744073709551616\n",
                "f.yaml:6:9: `tokens` is \"18446744073709551616\", beyond 64 bits"},
        Refusal{whole + "batch: 65537\n", "f.yaml:7:8: `batch` is 65537, out of range"},
        Refusal{start + "tokens: 16777216\nbatch: 65\n", "f.yaml:6:9: more than 1073741824 tokens"},
        Refusal{whole + "beta_max: 3\n",
                "f.yaml:7:11: `beta_max` is 3, out of range; give 1 ... 2"},
        Refusal{whole + "seed: 18446744073709551616\n", "f.yaml:7:7: `seed` is"},
        Refusal{"name: c\nquery_heads: 1025\n", "f.yaml:2:14: `query_heads` is 1025, out of range"},
        Refusal{"name: c\nvalue_heads: 0\n", "f.yaml:2:14: `value_heads` is 0, out of range"},
        Refusal{"tokens: 1\nname: c\nquery_heads: 4\nvalue_heads: 6\ngates: zero\n"
                "initial_state: true\n",
                "f.yaml:4:14: `value_heads` is 6, no multiple of `query_heads`, which is 4"}));

INSTANTIATE_TEST_SUITE_P(
    Word, CaseRefusal,
    testing::Values(
        Refusal{"name: c\ninitial_state: yes\n",
                "f.yaml:2:16: `initial_state` is \"yes\", not a truth value; write true or false"},
        Refusal{"name: c\ninitial_state: True\n", "f.yaml:2:16: `initial_state` is \"True\""},
        Refusal{"name: c\ninitial_state: 1\n", "f.yaml:2:16: `initial_state` is \"1\""},
        Refusal{"name: c\ninitial_state: \"true\"\n", "f.yaml:2:16: `initial_state` is quoted"},
        Refusal{"name: c\ngates: random\n", "f.yaml:2:8: `gates` is \"random\""},
        Refusal{
            "name: c\ngates: zeros\n",
            "f.yaml:2:8: `gates` is \"zeros\", which is no gate profile; did you mean \"zero\"?"},
        Refusal{"name: 1c\n", "f.yaml:1:7: `name` is \"1c\"; write a name of letters"},
        Refusal{"name: a/b\n", "f.yaml:1:7: `name` is \"a/b\""},
        Refusal{"name: a,b\n", "f.yaml:1:7: `name` is \"a,b\""},
        Refusal{"name: a@b\n", "f.yaml:1:7: `name` is \"a@b\""},
        Refusal{"name: a b\n", "f.yaml:1:7: `name` is \"a b\""},
        Refusal{"name: \"\"\n", "f.yaml:1:7: `name` is \"\""},
        Refusal{"name: \u00fc\n", "f.yaml:1:7: `name` is \"??\""},
        Refusal{"name:\n", "f.yaml:1:1: `name` has no value"},
        Refusal{"name: [c]\n", "f.yaml:1:7: `name` is a list or map"},
        Refusal{"name: " + std::string(129, 'a') + "\n", "f.yaml:1:7: `name` has 129 characters"}));

INSTANTIATE_TEST_SUITE_P(
    Structure, CaseRefusal,
    testing::Values(
        Refusal{"", "f.yaml:1:1: nothing but space and comments"},
        Refusal{"# nothing\n\n", "f.yaml:1:1: nothing but space and comments"},
        Refusal{"---\n", "f.yaml:1:1: nothing but space and comments"},
        Refusal{"tokens:4096\n", "f.yaml:1:1: not a map of fields"},
        Refusal{"- a\n", "f.yaml:1:1: not a map of fields"},
        Refusal{whole + "token: 5\n",
                "f.yaml:7:1: unknown field \"token\"; did you mean \"tokens\"?"},
        Refusal{whole + "dropout: 5\n", "f.yaml:7:1: unknown field \"dropout\"; write one of name"},
        Refusal{whole + "tokens: 100\n",
                "f.yaml:7:1: duplicate key \"tokens\"; it is given in line 6 already"},
        Refusal{whole + "'tokens': 7\n", "f.yaml:7:1: duplicate key \"tokens\""},
        Refusal{"tokens: 5\n", "f.yaml:1:1: field `name` is missing; add"},
        Refusal{"# c\nname: c\ntokens: 5\n", "f.yaml:2:1: field `query_heads` is missing"},
        Refusal{start, "f.yaml:1:1: field `tokens` is missing"},
        Refusal{whole + "sequences: [1]\n", "f.yaml:6:9: `tokens` beside `sequences`"},
        Refusal{start + "batch: 2\nsequences: [1]\n", "f.yaml:6:8: `batch` beside `sequences`"},
        Refusal{"name: c\n\ttokens: 5\n", "f.yaml:2:1: a tab; use spaces"},
        Refusal{"name: c # a\ttab\n", "f.yaml:1:12: a tab; use spaces"},
        Refusal{"name: &a c\n", "f.yaml:1:7: an anchor"},
        Refusal{"name: *a\n", "f.yaml:1:7: not valid YAML"},
        Refusal{"a: &x 1\nname: *x\n", "f.yaml:1:4: an anchor"},
        Refusal{"name: !!str c\n", "f.yaml:1:7: a tag"},
        Refusal{"name: ! c\n", "f.yaml:1:7: a tag"}, Refusal{"name: ! 'c'\n", "f.yaml:1:7: a tag"},
        Refusal{"!m {name: c}\n", "f.yaml:1:1: a tag"},
        Refusal{"<<: {tokens: 5}\n", "f.yaml:1:1: a merge key"},
        Refusal{"%YAML 1.2\n---\nname: c\n", "f.yaml:1:1: a YAML directive"},
        Refusal{whole + "---\nname: d\n", "f.yaml:7:1: a second YAML document"},
        Refusal{"? [a]\n: 5\n", "f.yaml:1:3: a list or map as a key"},
        Refusal{"{: 5}\n", "f.yaml:1:"}, Refusal{"name: [c\n", "f.yaml:2:1: not valid YAML"},
        Refusal{"name: \"c\n", "f.yaml:1:7: a quote without its end"},
        Refusal{"name: 'c''\n", "f.yaml:1:7: a quote without its end"},
        Refusal{"name: \"c\\\"\n", "f.yaml:1:7: a quote without its end"},
        Refusal{"name: c\n gates: zero\n", "f.yaml:2:7: not valid YAML"},
        Refusal{std::string("name: c\0\n", 9), "f.yaml:1:8: a control character (0x00)"},
        Refusal{"name: \x1b[31m\n", "f.yaml:1:7: a control character (0x1b)"},
        Refusal{"name: c\rgates: zero\n", "f.yaml:1:8: a control character (0x0d)"},
        Refusal{"name: \xff\n", "f.yaml:1:7: a byte that is not UTF-8"},
        Refusal{"name: \xc0\xaf\n", "f.yaml:1:7: a byte that is not UTF-8"},
        Refusal{"name: \xed\xa0\x80\n", "f.yaml:1:7: a byte that is not UTF-8"},
        Refusal{std::string(1 << 20, ' ') + "\n", "f.yaml:1:1: larger than 1 MiB"}));

INSTANTIATE_TEST_SUITE_P(
    Lists, CaseRefusal,
    testing::Values(
        Refusal{start + "sequences: 5\n", "f.yaml:6:12: `sequences` is not a list"},
        Refusal{start + "sequences: []\n", "f.yaml:6:12: `sequences` is not a list"},
        Refusal{start + "sequences: [1, [2]]\n", "f.yaml:6:16: `sequences` holds something"},
        Refusal{start + "sequences: [1, '2']\n", "f.yaml:6:16: `sequences` holds something"},
        Refusal{start + "sequences: [1, ~]\n", "f.yaml:6:16: `sequences` holds something"},
        Refusal{start + "sequences: [1, 010]\n", "f.yaml:6:16: `sequences` is \"010\""},
        Refusal{start + "sequences: [1, 0x10]\n", "f.yaml:6:16: `sequences` holds \"0x10\""},
        Refusal{start + "sequences: [1, 7x0]\n", "f.yaml:6:16: `sequences` holds \"7x0\""},
        Refusal{start + "sequences: [1, 7x02]\n", "f.yaml:6:16: `sequences` is \"02\""},
        Refusal{start + "sequences: [1, 7x65536]\n", "f.yaml:6:16: `sequences` lists more than"},
        Refusal{start + "sequences: [1, 7x2x2]\n", "f.yaml:6:16: `sequences` is \"2x2\""},
        Refusal{start + "sequences: [16777217]\n", "f.yaml:6:13: a length of `sequences` is"},
        Refusal{start + "sequences: [16777216x65]\n", "f.yaml:6:12: more than 1073741824 tokens"},
        Refusal{start + "sequences: [0, 0]\n", "f.yaml:6:12: no token at all"},
        Refusal{whole + "axes: 5\n", "f.yaml:7:7: `axes` is not a map"},
        Refusal{whole + "axes: {}\n", "f.yaml:7:7: `axes` is not a map"},
        Refusal{whole + "axes:\n", "f.yaml:7:1: `axes` is not a map"},
        Refusal{whole + "axes: [tokens]\n", "f.yaml:7:7: `axes` is not a map"},
        Refusal{whole + "axes: {seeds: [1]}\n",
                "f.yaml:7:8: unknown axis \"seeds\"; did you mean \"seed\"?"},
        Refusal{whole + "axes: {name: [a]}\n", "f.yaml:7:8: unknown axis \"name\""},
        Refusal{whole + "axes: {seed: 1}\n", "f.yaml:7:14: axis `seed` is not a list"},
        Refusal{whole + "axes: {seed: []}\n", "f.yaml:7:14: axis `seed` is not a list"},
        Refusal{whole + "axes: {seed: [1, 2, 1]}\n",
                "f.yaml:7:21: axis `seed` has the value \"1\""},
        Refusal{whole + "axes: {seed: [1, [2]]}\n", "f.yaml:7:18: `seed` is a list"},
        Refusal{whole + "axes: {seed: [1], seed: [2]}\n", "f.yaml:7:19: duplicate key \"seed\""},
        Refusal{whole + "axes: {tokens: [1]}\n", "f.yaml:7:8: `tokens` is a field and an axis"},
        Refusal{"axes: {tokens: [1]}\n" + whole, "f.yaml:1:8: `tokens` is a field and an axis"},
        Refusal{whole + "axes: {sequences: [[1]]}\n", "f.yaml:6:9: `tokens` beside `sequences`"},
        Refusal{start + "axes: {sequences: [1]}\n", "f.yaml:6:20: `sequences` is not a list"},
        Refusal{start + "axes: {sequences: [[7, 7], [7x2]]}\n",
                "f.yaml:6:28: axis `sequences` has"},
        Refusal{axes_start + "tokens: 1\naxes: {value_heads: [1, 0]}\n",
                "f.yaml:6:25: `value_heads` is 0"},
        Refusal{start + "axes: {tokens: [[[[[[[[[1]]]]]]]]]}\n",
                "f.yaml:6:22: nested too deeply"}));

TEST(Case, BlamesTheAxisValueThatDoesNotFit) {
  EXPECT_EQ(refusal_of("name: c\nquery_heads: 2\ngates: zero\ninitial_state: true\ntokens: 1\n"
                       "axes:\n  value_heads: [2, 4, 5]\n")
                .substr(0, 30),
            "f.yaml:7:23: `value_heads` is ");
}

TEST(Case, RefusesMoreCasesThanAnybodyRuns) {
  std::string hundred = "[0";
  for (int i = 1; i < 101; ++i) hundred += fmt::format(", {}", i);
  const std::string message =
      refusal_of(start + fmt::format("axes:\n  seed: {}]\n  tokens: [1{}]\n", hundred,
                                     hundred.substr(hundred.find(", 2"))));
  EXPECT_EQ(message, "f.yaml:8:3: `axes` expand into more than 10000 cases; give fewer values");
  // Few cases, but each of very many sequences: the offsets alone would fill the memory.
  EXPECT_NE(refusal_of(whole + fmt::format("batch: 65536\naxes: {{seed: {}]}}\n", hundred)), "");
}

TEST(Case, RefusesNamesTooLongToType) {
  std::string list = "[1";
  for (int i = 2; i < 60; ++i) list += fmt::format(", {}", i);
  EXPECT_EQ(refusal_of(start + "axes:\n  sequences: [[1], " + list + "]]\n").substr(0, 31),
            "f.yaml:7:20: the name of this c");
  EXPECT_EQ(refusal_of(start + "sequences: " + list + "]\n"), "");  // no name is made of this one
}

TEST(Case, RefusesWhatDoesNotFitIntoMemory) {
  const std::string message = refusal_of(start + "tokens: 65536\n", {}, std::size_t{1} << 28);
  EXPECT_EQ(
      message,
      "f.yaml:6:9: c needs 0.50 GiB for inputs, outputs and reference, and there are 0.25 GiB; "
      "give fewer tokens or heads");
  EXPECT_EQ(refusal_of(start + "tokens: 65536\n", {}, std::size_t{1} << 30), "");
}

TEST(Case, FootprintCountsEveryTensorOnce) {
  Problem problem;
  problem.offsets = {0, 10, 10};
  problem.query_heads = 2;
  problem.value_heads = 4;
  // q, k: 512 a query head; v, output: 512, gates: 12, A in two halves: 256, reference: 1024 a
  // value head. Final state: 16384 elements in 4 bytes and again in 8.
  EXPECT_EQ(footprint_bytes(problem), 10 * (512.0 * 2 + 1804 * 4) + 2 * 4 * 16384.0 * 12);
  problem.initial_state = true;
  EXPECT_EQ(footprint_bytes(problem), 10 * (512.0 * 2 + 1804 * 4) + 2 * 4 * 16384.0 * 16);
}

TEST(Case, SurvivesDeepNestingAndLongLines) {
  const auto expect_refused = [](const std::string& yaml) {
    EXPECT_EQ(refusal_of(yaml).substr(0, 7), "f.yaml:") << yaml.substr(0, 20);
  };
  for (const char* unit :
       {"[", "{", "[{", "- ", "? ", "a: ", "[a: ", "&a ", "!a ", "'", "\"", "|\n"}) {
    std::string yaml;
    while (yaml.size() < 100'000) yaml += unit;
    expect_refused(yaml);
  }
}

// A folder of its own for each test, removed with it.
class CaseFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gdnbench_case_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    setenv("GDNBENCH_CASES", pattern.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("GDNBENCH_CASES");
    fs::remove_all(folder_);
  }
  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
  }
  std::string refusal_of_selecting(const std::vector<std::string>& selectors) {
    return refusal([&] { select_cases(selectors, {}, plenty); });
  }
  Ids select(const std::vector<std::string>& selectors, const std::vector<Override>& set = {}) {
    return ids(select_cases(selectors, set, plenty));
  }
  void write_two_files() {
    write("one.yaml", "name: one\n" + whole.substr(8));
    write("many.yaml", "name: many\n" + start.substr(8) + "axes: {tokens: [1, 2]}\n");
    write("notes.txt", "not a case\n");
  }

  fs::path folder_;
};

TEST_F(CaseFiles, SelectsByNameFileGlobAndPath) {
  write_two_files();
  EXPECT_EQ(select({}), (Ids{"many:tokens=1", "many:tokens=2", "one"}));
  EXPECT_EQ(select({"one"}), (Ids{"one"}));
  EXPECT_EQ(select({"many"}), (Ids{"many:tokens=1", "many:tokens=2"}));
  EXPECT_EQ(select({"many:tokens=2"}), (Ids{"many:tokens=2"}));
  EXPECT_EQ(select({"*=2", "many*"}), (Ids{"many:tokens=2", "many:tokens=1"}));
  EXPECT_EQ(select({(folder_ / "one.yaml").string(), "*"}).size(), 3u);
}

TEST_F(CaseFiles, OverridesOnlyWhatIsSelected) {
  write_two_files();
  write("ragged.yaml", "name: ragged\n" + start.substr(8) + "sequences: [1, 2]\n");
  write("uneven.yaml",
        "name: uneven\nquery_heads: 4\nvalue_heads: 8\ngates: zero\n"
        "initial_state: true\ntokens: 1\n");
  EXPECT_EQ(select({"one"}, {{"batch", "2"}}), (Ids{"one:batch=2"}));
  EXPECT_EQ(select({"one"}, {{"value_heads", "2"}}), (Ids{"one:value_heads=2"}));
  EXPECT_EQ(select({"many"}, {{"tokens", "7"}}), (Ids{"many:tokens=7"}));
  // Memory is asked for by selected cases alone.
  write("huge.yaml", "name: huge\n" + start.substr(8) + "tokens: 16777216\n");
  EXPECT_EQ(ids(select_cases({"one"}, {}, 1 << 22)), (Ids{"one"}));
}

TEST_F(CaseFiles, RefusesSelectorsThatSelectNothing) {
  EXPECT_EQ(refusal_of_selecting({"*"}),
            folder_.string() +
                ": has no case in it; put case files there, or set GDNBENCH_CASES "
                "to the folder of them");
  write_two_files();
  EXPECT_EQ(refusal_of_selecting({"ome"}),
            "--case ome: no case of that name in " + folder_.string() + "; did you mean \"one\"?");
  EXPECT_NE(refusal_of_selecting({"many:tokens=3"}).find("did you mean \"many:tokens=1\"?"),
            std::string::npos);
  EXPECT_NE(refusal_of_selecting({"zzzzzzzz*"}).find("gdnbench list cases"), std::string::npos);
}

TEST_F(CaseFiles, RefusesTwoCasesOfOneName) {
  write("a.yaml", whole);
  write("b.yaml", whole);
  EXPECT_EQ(select({}), (Ids{"c"}));  // the same case: no harm
  write("b.yaml", whole + "seed: 2\n");
  EXPECT_EQ(refusal_of_selecting({}).substr(0, folder_.string().size() + 12),
            (folder_ / "b.yaml").string() + ":1:7:");
}

TEST_F(CaseFiles, RefusesWhatIsNoFile) {
  write("locked.yaml", whole);
  EXPECT_NE(refusal_of_selecting({"no/such.yaml"}).find("no such file"), std::string::npos);
  EXPECT_NE(refusal_of_selecting({folder_.string() + "/"}).find("a folder"), std::string::npos);
  EXPECT_NE(refusal_of_selecting({"/dev/zero"}).find("not a regular file"), std::string::npos);
  fs::permissions(folder_ / "locked.yaml", fs::perms::none);
  if (getuid() != 0) {  // root reads everything
    EXPECT_NE(refusal_of_selecting({"./locked.yaml"}), "");
  }
  write("long.yaml", std::string((1 << 20) + 1, '#'));
  EXPECT_NE(
      refusal_of_selecting({(folder_ / "long.yaml").string()}).find(":1:1: larger than 1 MiB"),
      std::string::npos);
}

TEST_F(CaseFiles, RefusesAFolderThatIsNotThere) {
  setenv("GDNBENCH_CASES", "/no/such/folder", 1);
  EXPECT_NE(refusal_of_selecting({}).find("GDNBENCH_CASES=/no/such/folder: no such folder"),
            std::string::npos);
}

TEST(CaseFolder, OfTheSourceTreeHoldsTheLabsEight) {
  setenv("GDNBENCH_CASES", GDNBENCH_SOURCE_DIR "/cases", 1);
  struct Lab {
    const char* name;
    int sequences, tokens, query_heads, value_heads;
    bool initial_state;
    Gates gates;
  };
  const Lab lab[] = {{"short_tail_state", 1, 1025, 2, 8, true, Gates::random_decay},
                     {"chain_equal", 1, 8192, 4, 4, false, Gates::random_decay},
                     {"parallel_equal", 1, 2048, 16, 16, false, Gates::random_decay},
                     {"parallel_gva", 1, 2048, 4, 16, false, Gates::mixed},
                     {"long_low_gva", 1, 32768, 2, 8, false, Gates::random_decay},
                     {"batch_split_gva", 4, 8192, 2, 8, false, Gates::random_decay},
                     {"wide_gva_state", 1, 8192, 16, 64, true, Gates::random_decay},
                     {"deep_gva_state", 1, 16384, 8, 32, true, Gates::random_decay}};
  for (const Lab& expected : lab) {
    const std::vector<Case> cases = select_cases({expected.name}, {}, plenty);
    ASSERT_EQ(cases.size(), 1u) << expected.name;
    const Problem& problem = cases[0].problem;
    EXPECT_EQ(problem.sequences(), expected.sequences) << expected.name;
    EXPECT_EQ(problem.length(0), expected.tokens) << expected.name;
    EXPECT_EQ(problem.query_heads, expected.query_heads) << expected.name;
    EXPECT_EQ(problem.value_heads, expected.value_heads) << expected.name;
    EXPECT_EQ(problem.initial_state, expected.initial_state) << expected.name;
    EXPECT_EQ(cases[0].recipe, (Recipe{expected.gates, 1, 1})) << expected.name;
  }
  unsetenv("GDNBENCH_CASES");
}

TEST(CaseFolder, OfTheSourceTreeIsReadAndRoundTrips) {
  setenv("GDNBENCH_CASES", GDNBENCH_SOURCE_DIR "/cases", 1);
  std::set<std::string> names;
  for (const Case& c : select_cases({}, {}, plenty)) {
    expect_round_trip(c);
    names.insert(c.name.substr(0, c.name.find(':')));
  }
  for (const auto& entry : fs::directory_iterator(GDNBENCH_SOURCE_DIR "/cases")) {
    EXPECT_TRUE(names.contains(entry.path().stem().string())) << entry.path();
  }
  const Ids ragged = ids(select_cases({"ragged"}, {}, plenty));
  EXPECT_EQ(ragged.size(), 10u);
  EXPECT_EQ(ragged[0], "ragged:sequences=28672+4096");
  EXPECT_EQ(ragged[9], "ragged:sequences=256x256");
  EXPECT_EQ(select_cases({"edge_lengths"}, {}, plenty).size(), 23u);
  unsetenv("GDNBENCH_CASES");
}

Problem problem_of(const std::string& lengths, int query_heads, int value_heads, bool state) {
  Case c = parse(start + "sequences: [" + lengths + "]\n")[0];
  c.problem.query_heads = query_heads;
  c.problem.value_heads = value_heads;
  c.problem.initial_state = state;
  return c.problem;
}

TEST(Problem, CutsSequencesIntoChunks) {
  const std::vector<Chunk> chunks = problem_of("0, 64, 0, 130", 1, 1, false).chunks();
  ASSERT_EQ(chunks.size(), 4u);
  const auto expect = [&](int i, int sequence, int index, int token, int length) {
    EXPECT_EQ(chunks[i].sequence, sequence);
    EXPECT_EQ(chunks[i].index, index);
    EXPECT_EQ(chunks[i].token, token);
    EXPECT_EQ(chunks[i].length, length);
  };
  expect(0, 1, 0, 0, 64);
  expect(1, 3, 0, 64, 64);
  expect(2, 3, 1, 128, 64);
  expect(3, 3, 2, 192, 2);
}

TEST(Problem, CountsTheChainOfTheLongestSequence) {
  EXPECT_EQ(problem_of("1025", 2, 8, true).chain_chunks(), 17);
  EXPECT_EQ(problem_of("1025", 2, 8, true).chunks().size(), 17u);
  EXPECT_EQ(problem_of("64, 65, 0", 1, 1, false).chain_chunks(), 2);
  EXPECT_EQ(problem_of("1", 1, 1, false).chain_chunks(), 1);
}

TEST(Problem, CountsFlop) {
  // A full chunk: 6·64·128² + 6·64²·128 = 6291456 + 3145728.
  EXPECT_EQ(problem_of("64", 1, 1, false).flop(), 9437184);
  // One token: 6·128² + 6·128 = 98304 + 768.
  EXPECT_EQ(problem_of("1", 1, 1, false).flop(), 99072);
  // short_tail_state: 8 · (16 · 9437184 + 99072).
  EXPECT_EQ(problem_of("1025", 2, 8, true).flop(), 1208752128);
  // Chunks end with their sequence: 65 + 63 tokens are not two full chunks.
  EXPECT_EQ(problem_of("65, 63", 1, 1, false).flop(), 9437184 + 99072 + 6193152 + 3048192);
}

TEST(Problem, CountsBytes) {
  // short_tail_state: 1025·(512·2 + 648·8) + 65536·8·2, and 128·8 a token less without A.
  const Problem short_tail = problem_of("1025", 2, 8, true);
  EXPECT_EQ(short_tail.bytes(Scope::core), 1025.0 * 6208 + 1048576);
  EXPECT_EQ(short_tail.bytes(Scope::forward), 1025.0 * 5184 + 1048576);
  // A state for every sequence, the empty one too.
  EXPECT_EQ(problem_of("0, 10", 1, 1, false).bytes(Scope::core), 10 * 1160.0 + 2 * 65536);
}

TEST(Problem, FitsTheFloorsOfTheHandout) {
  // deep_gva_state at 4.8 TB/s: 85.6 µs.
  const Problem deep = problem_of("16384", 8, 32, true);
  EXPECT_NEAR(deep.bytes(Scope::core) / 4.8e12 * 1e6, 85.6, 0.1);
  EXPECT_NEAR(deep.flop() / 790e12 * 1e6, 97.9, 0.1);
}

TEST(Variant, IdNamesEveryKnob) {
  Variant variant;
  variant.name = "wide";
  EXPECT_EQ(variant_id(variant, Instance{}), "wide");
  Instance instance;
  instance.knobs = {{"threads", "512"}, {"stages", "3"}};
  EXPECT_EQ(variant_id(variant, instance), "wide:threads=512:stages=3");
  EXPECT_EQ(name_of(Target::cuda), "cuda");
  EXPECT_EQ(name_of(Scope::forward), "forward");
}

}  // namespace
}  // namespace gdn
