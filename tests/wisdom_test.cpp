// The file of tuned winners: read strictly, written whole, asked for the nearest problem. The truth
// is data/wisdom/example.json, made by hand, and distances worked out on paper.
#include "src/wisdom.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "src/error.hpp"
#include "tests/json_schema.hpp"
#include "tests/process.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using nlohmann::json;
using test::Folder;
using test::problem_of;
using test::read_file;
using test::write_text;

const std::string example_path = GDNBENCH_SOURCE_DIR "/tests/data/wisdom/example.json";

Wisdom example() { return read_wisdom(example_path); }
json example_json() { return json::parse(read_file(example_path)); }

// What is said of a file with this text, less the file's name; "" when it reads it.
std::string refusal(const std::string& text) {
  try {
    parse_wisdom(text, "w.json");
  } catch (const UserError& error) {
    const std::string what = error.what();
    EXPECT_EQ(what.rfind("w.json:", 0), 0U) << what;
    return what.substr(std::min<std::size_t>(what.size(), 8));
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

JsonSchema schema() {
  return JsonSchema(json::parse(read_file(GDNBENCH_SOURCE_DIR "/docs/wisdom-schema.json")));
}

using Faults = std::vector<std::string>;

TEST(Wisdom, ReadsWhatStandsThere) {
  const Wisdom wisdom = example();
  EXPECT_EQ(wisdom.device, "Example GPU");
  ASSERT_EQ(wisdom.entries.size(), 3U);
  const WisdomEntry& entry = wisdom.entries[0];
  EXPECT_EQ(entry.case_name, "chain_equal");
  EXPECT_EQ(entry.problem, problem_of({8192}, 4, 4, false));
  EXPECT_EQ(entry.gates, Gates::random_decay);
  EXPECT_EQ(entry.scope, Scope::core);
  EXPECT_EQ(entry.timing, Timing::graph);
  EXPECT_EQ(entry.winner.variant, "split_barrier:stages=3:value_width=32");
  EXPECT_EQ(entry.winner.knobs, (std::vector<Knob>{{"stages", "3"}, {"value_width", "32"}}));
  EXPECT_EQ(entry.winner.median_s, 0.000184);
  EXPECT_EQ(entry.winner.ci95, std::pair(0.000183, 0.000185));
  ASSERT_EQ(entry.tied.size(), 1U);
  EXPECT_EQ(entry.tied[0].ratio, 1.001);
  EXPECT_EQ(entry.tied[0].interval, std::pair(0.998, 1.004));
  EXPECT_EQ(entry.slower.at(0).variant, "fused:stages=2");
  EXPECT_EQ(entry.slower.at(0).ratio, 1.85);
  EXPECT_EQ(entry.failed.at(0).reason, "no answer within 120 s");
  EXPECT_EQ(entry.search.strategy, "racing");
  EXPECT_EQ(entry.search.evaluated_fully, 4);
  EXPECT_FALSE(entry.search.limited);
  EXPECT_EQ(entry.search.seconds, 61.5);
  EXPECT_EQ(entry.fingerprint["kernels"], "aaaa");
  const WisdomEntry& limited = wisdom.entries[1];
  EXPECT_FALSE(limited.winner.ci95);
  EXPECT_TRUE(limited.slower.empty());
  EXPECT_EQ(limited.search.seed, 18446744073709551615U);
  EXPECT_TRUE(limited.search.limited);
  EXPECT_EQ(limited.fingerprint["kernels"], "bbbb");
  EXPECT_EQ(wisdom.entries[2].problem, problem_of({4096, 0, 64}, 2, 8, true));
}

TEST(Wisdom, ConformsToItsSchemaAndReadsBackAsItWasWritten) {
  EXPECT_EQ(schema().faults(example_json()), Faults{});
  const std::string text = gdn::json(example());
  EXPECT_EQ(schema().faults(json::parse(text)), Faults{});
  EXPECT_EQ(gdn::json(parse_wisdom(text, "w.json")), text);
  // Nothing but what may be left out was added.
  json whole = example_json();
  whole["entries"][1]["slower"] = json::array();
  EXPECT_EQ(json::parse(text), whole);
  const Wisdom none{.device = "Example GPU", .entries = {}};
  EXPECT_EQ(schema().faults(json::parse(gdn::json(none))), Faults{});
  EXPECT_EQ(gdn::json(parse_wisdom(gdn::json(none), "w.json")), gdn::json(none));
}

// What was flagged says so; a file that does not speak of it means that nothing was.
TEST(Wisdom, FlagsMayBeLeftOut) {
  EXPECT_TRUE(example().entries[0].flags.empty());
  json whole = example_json();
  whole["entries"][0]["flags"] = {"throttled", "not_queued"};
  const Wisdom wisdom = parse_wisdom(whole.dump(), "w.json");
  EXPECT_EQ(wisdom.entries[0].flags, (std::vector<std::string>{"throttled", "not_queued"}));
  const json written = json::parse(gdn::json(wisdom));
  EXPECT_EQ(written["entries"][0]["flags"], whole["entries"][0]["flags"]);
  EXPECT_FALSE(written["entries"][1].contains("flags"));
  EXPECT_EQ(schema().faults(written), Faults{});
  whole["entries"][0]["flags"] = {""};
  EXPECT_NE(refusal(whole.dump()), "");
  EXPECT_NE(schema().faults(whole), Faults{});
}

// Whatever is taken out or turned into another type is refused by its name, by the reader and the
// schema alike.
TEST(Wisdom, EveryFieldIsNeededAndHasItsType) {
  const json whole = example_json();
  const json leaves = whole.flatten();
  for (const auto& [pointer, value] : leaves.items()) {
    if (pointer.starts_with("/fingerprints/") && !pointer.ends_with("/name")) continue;
    json wrong = whole;
    wrong[json::json_pointer(pointer)] = json::object({{"not", "this"}});
    EXPECT_NE(refusal(wrong.dump()), "") << pointer;
    EXPECT_NE(schema().faults(wrong), Faults{}) << pointer;
  }
  for (const char* pointer : {"/schema", "/device", "/fingerprints", "/entries",
                              "/fingerprints/0/device", "/fingerprints/0/device/name"}) {
    const json::json_pointer place(pointer);
    json less = whole;
    less[place.parent_pointer()].erase(place.back());
    EXPECT_TRUE(contains(refusal(less.dump()), place.back() + ": ")) << place;
    EXPECT_NE(schema().faults(less), Faults{}) << place;
  }
  const auto expect_needed = [&](const json::json_pointer& object) {
    for (const auto& [name, value] : whole[object].items()) {
      json less = whole;
      less[object].erase(name);
      const bool may_be_absent = name == "slower";
      EXPECT_EQ(contains(refusal(less.dump()), name + ": "), !may_be_absent) << object << name;
      EXPECT_EQ(schema().faults(less) != Faults{}, !may_be_absent) << object << name;
    }
  };
  for (const char* object :
       {"/entries/0", "/entries/0/problem", "/entries/0/winner", "/entries/0/tied/0",
        "/entries/0/slower/0", "/entries/0/failed/0", "/entries/0/search"})
    expect_needed(json::json_pointer(object));
}

TEST(Wisdom, RefusalsNameTheField) {
  const auto changed = [](const std::string& pointer, const json& value) {
    json whole = example_json();
    whole[json::json_pointer(pointer)] = value;
    return refusal(whole.dump());
  };
  EXPECT_TRUE(contains(changed("/schema", "gdnbench-wisdom/2"),
                       "schema: \"gdnbench-wisdom/2\" is not \"gdnbench-wisdom/1\""));
  EXPECT_EQ(changed("/entries/0/winner/median_s", 0),
            "entries[0].winner.median_s: a number above 0 is expected, not 0");
  EXPECT_EQ(changed("/entries/0/winner/variant", ""),
            "entries[0].winner.variant: a name is expected, not an empty string");
  EXPECT_EQ(changed("/entries/0/winner/ci95", json::array({2, 1})),
            "entries[0].winner.ci95: [low, high] is expected");
  EXPECT_EQ(changed("/entries/0/problem/sequences", json::array()),
            "entries[0].problem.sequences: a sequence with a token is expected");
  EXPECT_EQ(changed("/entries/0/problem/sequences", json::array({0, 0})),
            "entries[0].problem.sequences: a sequence with a token is expected");
  EXPECT_EQ(changed("/entries/0/problem/sequences", json::array({1 << 30, 1})),
            "entries[0].problem.sequences[1]: more than 1073741824 tokens in all");
  EXPECT_EQ(changed("/entries/0/problem/query_heads", 0),
            "entries[0].problem.query_heads: at least one head is expected");
  EXPECT_EQ(changed("/entries/0/problem/query_heads", 3),
            "entries[0].problem.value_heads: a multiple of query_heads, which is 3, is expected");
  EXPECT_EQ(changed("/entries/0/problem/beta_max", 3),
            "entries[0].problem.beta_max: 1 or 2 is expected");
  EXPECT_EQ(changed("/entries/0/problem/gates", "zer0"),
            "entries[0].problem.gates: \"zer0\" is none of random_decay, mixed, zero, model, "
            "strong, reset, infinite");
  EXPECT_EQ(changed("/entries/2/fingerprint", 2),
            "entries[2].fingerprint: there are 2 fingerprints, counted from 0");
  EXPECT_EQ(changed("/entries/0/tuned_at", "yesterday"),
            "entries[0].tuned_at: a time like 2025-11-29T20:40:58Z is expected, not \"yesterday\"");
  EXPECT_EQ(changed("/fingerprints/1/device/name", "Other GPU"),
            "fingerprints[1].device.name: \"Other GPU\" is another device than that of the file, "
            "\"Example GPU\"; each device has a file of its own");
  EXPECT_EQ(changed("/entries/1/scope", "core"),
            "entries[1]: its problem stands there twice; keep one of the two");
  EXPECT_TRUE(contains(refusal(example_json().dump().substr(0, 900)), "cut off"));
  EXPECT_TRUE(contains(refusal("[]"), "an object is expected, not a list"));
  EXPECT_THROW(read_wisdom("/no/such/file"), UserError);
}

TEST(Wisdom, DamagedFilesNeverCrash) {
  const std::string text = gdn::json(example());
  std::mt19937 generator(11);
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = text;
    for (int change = 0; change < 3; ++change)
      damaged[generator() % damaged.size()] = static_cast<char>(generator());
    try {
      parse_wisdom(damaged, "damaged.json");
    } catch (const UserError&) {
    }
  }
}

TEST(Wisdom, AddingReplacesTheSameProblemAndKeepsTheOthers) {
  Folder folder;
  const std::string path = folder / "w.json";
  const std::vector<WisdomEntry> entries = example().entries;
  // In whatever order they come, the file is the same.
  add_to_wisdom_file(path, {entries[2]});
  add_to_wisdom_file(path, {entries[1], entries[0]});
  EXPECT_EQ(read_file(path), gdn::json(example()));

  WisdomEntry again = entries[0];
  again.case_name = "another_name_of_it";
  again.winner.variant = "fused:stages=2";
  add_to_wisdom_file(path, {again});
  const Wisdom after = read_wisdom(path);
  ASSERT_EQ(after.entries.size(), 3U);
  EXPECT_EQ(after.entries[0].case_name, "another_name_of_it");
  EXPECT_EQ(after.entries[0].winner.variant, "fused:stages=2");
  EXPECT_EQ(gdn::json({.device = "Example GPU", .entries = {after.entries[1], after.entries[2]}}),
            gdn::json({.device = "Example GPU", .entries = {entries[1], entries[2]}}));

  // Another gate profile, state, order of the sequences, scope, timing or range of beta is another
  // problem.
  std::vector<WisdomEntry> others(6, entries[2]);
  others[0].gates = Gates::mixed;
  others[1].problem.initial_state = false;
  others[2].problem = problem_of({64, 0, 4096}, 2, 8, true);
  others[3].scope = Scope::forward;
  others[4].timing = Timing::cold;
  others[5].beta_max = 2;
  add_to_wisdom_file(path, others);
  const Wisdom grown = read_wisdom(path);
  EXPECT_EQ(grown.entries.size(), 9U);
  EXPECT_EQ(schema().faults(json::parse(read_file(path))), Faults{});
  for (const int beta_max : {1, 2}) {
    const auto found =
        find(grown, entries[2].problem, entries[2].gates, Scope::core, Timing::graph, beta_max);
    EXPECT_TRUE(found->exact);
    EXPECT_EQ(found->entry->beta_max, beta_max);
  }
}

TEST(Wisdom, AWiderSearchOfTheSameKernelsStays) {
  Folder folder;
  const std::string path = folder / "w.json";
  const WisdomEntry wide = example().entries[0];
  add_to_wisdom_file(path, {wide});
  const std::string before = read_file(path);
  WisdomEntry narrow = wide;
  narrow.search.evaluated = wide.search.evaluated - 1;
  const std::vector<WisdomEntry> stayed = add_to_wisdom_file(path, {narrow});
  ASSERT_EQ(stayed.size(), 1U);
  EXPECT_EQ(to_json(stayed[0]), to_json(wide));
  EXPECT_EQ(read_file(path), before);
  for (const char* fact : {"kernels", "driver"}) {
    add_to_wisdom_file(path, {wide});
    WisdomEntry other = narrow;
    other.fingerprint[fact] = "another";
    EXPECT_TRUE(add_to_wisdom_file(path, {other}).empty()) << fact;
    EXPECT_EQ(read_wisdom(path).entries[0].fingerprint, other.fingerprint);
  }
}

TEST(Wisdom, AnEntryOfAnotherDeviceIsRefusedAndNothingIsWritten) {
  Folder folder;
  const std::string path = folder / "w.json";
  add_to_wisdom_file(path, example().entries);
  const std::string before = read_file(path);
  std::vector<WisdomEntry> entries = example().entries;
  entries[2].fingerprint["device"]["name"] = "Other GPU";
  try {
    add_to_wisdom_file(path, entries);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(std::string(e.what()),
              path +
                  ": ragged:two was tuned on \"Other GPU\", and this is the wisdom of \"Example "
                  "GPU\"; each device has a file of its own");
  }
  EXPECT_EQ(read_file(path), before);
  entries[2].fingerprint = json::object();
  EXPECT_THROW(add_to_wisdom_file(path, entries), UserError);
  write_text(path, "no wisdom");
  EXPECT_THROW(add_to_wisdom_file(path, example().entries), UserError);
  EXPECT_EQ(read_file(path), "no wisdom");
}

TEST(Distance, IsTheFormula) {
  const Problem chain = problem_of({8192}, 4, 4, false);
  const auto d = [&](const Problem& to, std::optional<Gates> gates) {
    const double there = distance(chain, Gates::random_decay, to, gates);
    EXPECT_EQ(there, distance(to, gates, chain, Gates::random_decay));
    return there;
  };
  EXPECT_EQ(d(chain, Gates::random_decay), 0);
  EXPECT_EQ(d(chain, std::nullopt), 0);
  EXPECT_EQ(d(chain, Gates::zero), 1);
  EXPECT_EQ(d(problem_of({8192}, 4, 4, true), Gates::random_decay), 0.25);
  // Twice the tokens: a chain and the work twice as long.
  EXPECT_EQ(d(problem_of({16384}, 4, 4, false), Gates::random_decay), 2);
  // Twice the value heads: chains, work and group.
  EXPECT_EQ(d(problem_of({8192}, 4, 8, false), Gates::random_decay), 3);
  // Cut into two: twice the chains, half as long.
  EXPECT_EQ(d(problem_of({4096, 4096}, 4, 4, false), Gates::random_decay), 2);
  // 16 chains instead of 4, 64 chunks instead of 128, twice the work, groups of 2, state, gates.
  EXPECT_EQ(d(problem_of({4096, 4096}, 4, 8, true), Gates::mixed), 2 + 1 + 1 + 1 + 0.25 + 1);
  // An empty sequence is no chain; the order of sequences does not matter.
  EXPECT_EQ(d(problem_of({0, 8192, 0}, 4, 4, false), Gates::random_decay), 0);
  // 65 chunks of the longest chain: a tail counts as a chunk. log2(128/65) + log2(8192/4097).
  EXPECT_NEAR(d(problem_of({4097}, 4, 4, false), Gates::random_decay), 0.9776318 + 0.9996479, 1e-6);
}

TEST(Find, TakesTheExactProblemElseTheNearest) {
  const Wisdom wisdom = example();
  const auto exact =
      find(wisdom, problem_of({4096, 0, 64}, 2, 8, true), Gates::zero, Scope::core, Timing::graph);
  ASSERT_TRUE(exact);
  EXPECT_EQ(exact->entry, &wisdom.entries[2]);
  EXPECT_TRUE(exact->exact);
  EXPECT_EQ(exact->distance, 0);

  const auto near = find(wisdom, problem_of({16384}, 4, 4, false), Gates::random_decay, Scope::core,
                         Timing::graph);
  EXPECT_EQ(near->entry, &wisdom.entries[0]);
  EXPECT_FALSE(near->exact);
  EXPECT_EQ(near->distance, 2);

  // The same sequences in another order are as near as can be, and not the same.
  const auto turned =
      find(wisdom, problem_of({64, 4096}, 2, 8, true), Gates::zero, Scope::core, Timing::graph);
  EXPECT_EQ(turned->entry, &wisdom.entries[2]);
  EXPECT_FALSE(turned->exact);
  EXPECT_EQ(turned->distance, 0);

  // Of inputs whose gates are not known nothing is exact.
  const auto own =
      find(wisdom, problem_of({8192}, 4, 4, false), std::nullopt, Scope::core, Timing::graph);
  EXPECT_EQ(own->entry, &wisdom.entries[0]);
  EXPECT_FALSE(own->exact);
  EXPECT_EQ(own->distance, 0);
}

TEST(Find, KeepsToTheScopeAndTakesAnotherTimingOnlyWhereThereIsNone) {
  Wisdom wisdom = example();
  const Problem ragged = problem_of({4096, 0, 64}, 2, 8, true);
  EXPECT_EQ(find(wisdom, ragged, Gates::zero, Scope::forward, Timing::graph)->entry,
            &wisdom.entries[1]);

  const auto other = find(wisdom, ragged, Gates::zero, Scope::core, Timing::cold);
  EXPECT_EQ(other->entry, &wisdom.entries[2]);
  EXPECT_EQ(other->entry->timing, Timing::graph);
  EXPECT_FALSE(other->exact);

  // A far one of the wanted timing goes before a near one of another.
  WisdomEntry cold = wisdom.entries[0];
  cold.timing = Timing::cold;
  wisdom.entries.push_back(cold);
  EXPECT_EQ(find(wisdom, ragged, Gates::zero, Scope::core, Timing::cold)->entry,
            &wisdom.entries[3]);

  std::erase_if(wisdom.entries, [](const WisdomEntry& e) { return e.scope == Scope::core; });
  EXPECT_FALSE(find(wisdom, ragged, Gates::zero, Scope::core, Timing::graph));
  EXPECT_FALSE(find({}, ragged, Gates::zero, Scope::core, Timing::graph));
}

TEST(Find, OfEquallyNearOnesTheExactIsTaken) {
  Wisdom wisdom = example();
  wisdom.entries[0] = wisdom.entries[2];
  wisdom.entries[0].problem = problem_of({64, 4096}, 2, 8, true);
  const auto found =
      find(wisdom, problem_of({4096, 0, 64}, 2, 8, true), Gates::zero, Scope::core, Timing::graph);
  EXPECT_EQ(found->entry, &wisdom.entries[2]);
  EXPECT_TRUE(found->exact);
}

TEST(Staleness, SaysWhatDiffers) {
  const WisdomEntry entry = example().entries[0];
  json now = entry.fingerprint;
  now["revision"] = "of no importance";
  EXPECT_EQ(staleness(entry, now), Faults{});
  now["kernels"] = "cccc";
  now["driver"] = "590.2";
  EXPECT_EQ(staleness(entry, now),
            (Faults{"the hash of the kernels' sources differs: \"aaaa\" when it was tuned, "
                    "\"cccc\" now",
                    "the driver differs: \"580.1\" when it was tuned, \"590.2\" now"}));
  now = entry.fingerprint;
  now["device"]["name"] = "Other GPU";
  now["device"]["ecc"] = false;
  now["mig"] = true;
  now.erase("cuda");
  EXPECT_EQ(staleness(entry, now),
            (Faults{"the device differs: \"Example GPU\" when it was tuned, \"Other GPU\" now",
                    "the CUDA version differs: \"13.0\" when it was tuned, (not given) now",
                    "the MIG mode differs: false when it was tuned, true now",
                    "the ECC mode differs: true when it was tuned, false now"}));
}

TEST(WisdomFile, IsNamedAfterTheDevice) {
  EXPECT_EQ(device_slug("NVIDIA H200"), "nvidia_h200");
  EXPECT_EQ(device_slug("Intel(R) Xeon(R) Processor"), "intel_r_xeon_r_processor");
  EXPECT_EQ(device_slug("AMD EPYC 9654 96-Core"), "amd_epyc_9654_96_core");
  EXPECT_EQ(device_slug("../../etc"), "etc");
  EXPECT_EQ(device_slug("\xff"), "device");
  Folder folder;
  setenv("GDNBENCH_TUNING", folder.path().c_str(), 1);
  EXPECT_EQ(wisdom_path("NVIDIA H200"), folder / "nvidia_h200.json");
  setenv("GDNBENCH_TUNING", "/no/such/folder", 1);
  EXPECT_THROW(wisdom_path("NVIDIA H200"), UserError);
  unsetenv("GDNBENCH_TUNING");
  EXPECT_EQ(std::filesystem::path(wisdom_path("X")).parent_path().filename(), "tuning");
}

// Each reads, adds and replaces the whole file: none may take away what another has added.
TEST(WisdomFile, WritersAtOnceLoseNothing) {
  Folder folder;
  const std::string path = folder / "w.json";
  const WisdomEntry entry = example().entries[0];
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer)
    writers.emplace_back([&, writer] {
      for (int i = 0; i < 10; ++i) {
        WisdomEntry mine = entry;
        mine.case_name = "case";
        mine.problem.offsets = {0, 100 * writer + i + 1};
        add_to_wisdom_file(path, {mine});
      }
    });
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(read_wisdom(path).entries.size(), 40U);
}

}  // namespace
}  // namespace gdn
