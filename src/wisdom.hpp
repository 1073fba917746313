// Wisdom: the winners that tuning found on one device, in one file a device. docs/wisdom.md and
// docs/wisdom-schema.json describe its written form.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/prepare/recipe.hpp"
#include "kernels/variant.hpp"
#include "src/result.hpp"

namespace gdn {

inline constexpr const char* wisdom_schema_name = "gdnbench-wisdom/1";

// What was found out about one problem.
struct WisdomEntry {
  // The problem. Its name is what it was tuned as; two names of one problem are one problem.
  std::string case_name;
  Problem problem;
  Gates gates = Gates::random_decay;
  int beta_max = 1;  // as in a Recipe
  Scope scope = Scope::core;
  Timing timing = Timing::cold;

  struct Winner {
    std::string variant;  // the id that --variant takes
    std::vector<Knob> knobs;
    double median_s = 0;
    std::optional<std::pair<double, double>> ci95;  // of the median; absent below 6 samples
  } winner;

  // What cannot be told from the winner, best first.
  struct Tied {
    std::string variant;
    std::vector<Knob> knobs;
    double ratio = 1;                                   // of its time to the winner's
    std::optional<std::pair<double, double>> interval;  // 95 %, of the ratio
  };
  std::vector<Tied> tied;

  struct Slower {
    std::string variant;
    double ratio = 1;  // of its time to the winner's
  };
  std::vector<Slower> slower;

  struct Failed {
    std::string variant;
    std::string reason;
  };
  std::vector<Failed> failed;

  // How complete the search was.
  struct Search {
    std::string strategy;
    std::uint64_t seed = 0;
    std::int64_t candidates = 0;       // that the search space has for this problem
    std::int64_t evaluated = 0;        // of these, at all
    std::int64_t evaluated_fully = 0;  // of these, with all the samples that were wanted
    bool limited = false;              // whether a limit of time or evaluations ended it
    double seconds = 0;                // spent on this problem
  } search;

  // What was wrong with the samples of the winner or of those tied with it, as in a row's flags.
  std::vector<std::string> flags;

  std::string tuned_at;        // UTC: "2025-11-29T20:40:58Z"
  nlohmann::json fingerprint;  // with what it was measured; has device.name
};

struct Wisdom {
  std::string device;  // the name that all entries' fingerprints have
  std::vector<WisdomEntry> entries;
};

// Throw UserError that names the file and the field that is missing, ill-typed or senseless, for
// another version of the schema, and for a problem that stands twice.
Wisdom read_wisdom(const std::string& path);
Wisdom parse_wisdom(std::string_view text, const std::string& source);  // the name in errors

// The whole file: each fingerprint once, an entry a line.
std::string json(const Wisdom& wisdom);
nlohmann::json to_json(const WisdomEntry& entry);  // its fingerprint in full

// The same text for the same problem, whatever it is called.
std::string problem_key(const WisdomEntry& entry);

// In the place of the entry of the same problem, or where it belongs in the order by case, scope
// and timing. Throws UserError for an entry of another device.
void add(Wisdom& wisdom, WisdomEntry entry);

// The same with a file, which is made where there is none and replaced whole or not at all. An
// entry of the same problem stays where its search evaluated more candidates, of the same kernels'
// sources under the same driver: returns those that stayed.
std::vector<WisdomEntry> add_to_wisdom_file(const std::string& path,
                                            const std::vector<WisdomEntry>& entries);

// How far apart two problems are, for the choice of a kernel:
//   |log2| of the ratios of  independent chains (non-empty sequences × value heads),
//                            the longest chain in chunks,
//                            tokens × value heads,
//                            value heads per query head,
//   + 1/4 where one has an initial state and the other has none,
//   + 1   where the gate profiles are known and differ.
// Both problems have a token at least. It is 0 for the same, and not only for these.
double distance(const Problem& a, std::optional<Gates> a_gates, const Problem& b,
                std::optional<Gates> b_gates);

struct Advice {
  const WisdomEntry* entry = nullptr;  // of the wisdom that was asked
  double distance = 0;
  bool exact = false;  // this very problem in the wanted timing
};

// The entry of the nearest problem of the same scope; of equally near ones an exact one, then the
// first. One of another timing (entry->timing) only where there is none of the wanted. Nothing
// where the scope has none. Gates are unknown (nullopt) of a user's own inputs.
std::optional<Advice> find(const Wisdom& wisdom, const Problem& problem, std::optional<Gates> gates,
                           Scope scope, Timing timing, int beta_max = 1);

// What is not now as it was when the entry was measured, each in one sentence: the device's name,
// the hash of the kernels' sources, driver, CUDA version, MIG, ECC. `now` is a fingerprint of
// today.
std::vector<std::string> staleness(const WisdomEntry& entry, const nlohmann::json& now);

std::string device_slug(std::string_view device_name);  // "NVIDIA H200": nvidia_h200

// Where the wisdom of a device lies: in the folder `tuning/` of this binary, or where the
// environment's GDNBENCH_TUNING says. Throws UserError where there is no such folder.
std::string wisdom_path(const std::string& device_name);

std::string utc_now();                        // for tuned_at
bool is_time_stamp(const std::string& text);  // as utc_now() writes them

}  // namespace gdn
