#include "src/run_record.hpp"

#include <fmt/format.h>

#include <array>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/prepare/hash.hpp"
#include "src/error.hpp"
#include "src/file.hpp"
#include "src/safetensors.hpp"

namespace gdn {
namespace {

using Json = nlohmann::json;

std::string hash_of_file(const std::string& path) {
  const SafeTensorsFile file(path);
  return fmt::format("inputs {:016x}", hash_bytes(file.bytes().data(), file.bytes().size()));
}

Json of_pairs(const AgainstOptions& against) {
  if (!against.wanted()) return {};
  return {{"variant", against.variant},
          {"program", recorded_path(against.program)},
          {"difference_percent", against.plan.difference_percent},
          {"timeout_s", against.plan.timeout_s},
          {"min_pairs", against.plan.min_pairs},
          {"seed", against.plan.seed},
          {"repeat", against.repeat}};
}

AgainstOptions pairs_from(const Asked& asked) {
  AgainstOptions against;
  asked.take("variant", against.variant);
  asked.take("program", against.program);
  asked.take("difference_percent", against.plan.difference_percent);
  asked.take("timeout_s", against.plan.timeout_s);
  asked.take("min_pairs", against.plan.min_pairs);
  asked.take("seed", against.plan.seed);
  asked.take("repeat", against.repeat);
  return against;
}

// What the command line would have refused.
void require_sound(const RunOptions& options, const std::string& journal) {
  const auto require = [&](bool sound, const char* what) {
    if (!sound)
      throw UserError(
          fmt::format("{}:1: {} cannot have been asked for; start anew", journal, what));
  };
  const WorkerOptions& worker = options.worker;
  require(options.rounds >= 1 && options.rounds <= 100, "its number of rounds");
  require(worker.backend.batch >= 1 && worker.backend.batch <= 1000, "its batch");
  require(worker.sampling.min_samples >= 1 && worker.sampling.min_samples <= 100'000,
          "its number of samples");
  require(worker.sampling.timeout_s > 0 && worker.deadline_s >= 0.1, "its time limits");
  require(options.against.repeat >= 1 && options.against.repeat <= 1000 &&
              options.against.plan.difference_percent > 0 && options.against.plan.timeout_s > 0,
          "its pairs");
  require(!options.scopes.empty() && !options.timings.empty(), "a run of no scope or timing");
}

}  // namespace

std::string recorded_path(const std::string& path) {
  if (path.empty()) return "";
  const std::string whole = absolute_path(path);
  try {
    std::ignore = Json(whole).dump();
  } catch (const Json::exception&) {
    throw UserError(
        fmt::format("{}: its path is not UTF-8, as records are; rename what is not", path));
  }
  return whole;
}

Json record_of(const RunOptions& options, const std::vector<Case>& cases) {
  const WorkerOptions& worker = options.worker;
  Json selectors = Json::array();
  for (const std::string& selector : options.cases.selectors)
    selectors.push_back(is_case_file(selector) ? recorded_path(selector) : selector);
  Json meant = Json::object();
  for (const Case& c : cases)
    meant[c.name] = worker.inputs_file.empty() ? to_yaml(c) : hash_of_file(worker.inputs_file);
  Json overrides = Json::array();
  for (const Override& o : options.cases.overrides) overrides.push_back({o.field, o.value});
  Json scopes = Json::array();
  for (const Scope scope : options.scopes) scopes.push_back(name_of(scope));
  Json timings = Json::array();
  for (const Timing timing : options.timings) timings.push_back(name_of(timing));
  return {{"case", selectors},
          {"cases", meant},
          {"set", overrides},
          {"variant", options.variants},
          {"wisdom", recorded_path(options.wisdom)},
          {"strict", options.strict},
          {"exact", options.exact},
          {"scope", scopes},
          {"timing", timings},
          {"backend", worker.backend.name},
          {"device", worker.backend.device},
          {"timer", worker.backend.timer},
          {"schedule", worker.backend.schedule},
          {"batch", worker.backend.batch},
          {"inputs", recorded_path(worker.inputs_file)},
          {"dump", recorded_path(worker.dump_folder)},
          {"rounds", options.rounds},
          {"against", of_pairs(options.against)},
          {"lab_score", options.lab_score},
          {"min_samples", worker.sampling.min_samples},
          {"max_noise_percent", worker.sampling.max_noise_percent},
          {"timeout_s", worker.sampling.timeout_s},
          {"deadline_s", worker.deadline_s}};
}

void Asked::refuse(const std::string& name) const {
  throw UserError(
      fmt::format("{}:1: what it was asked for cannot be read: `{}` is missing, or is not what it "
                  "should be; start anew",
                  file_, place_ + name));
}

RunOptions recalled(const RunOptions& given, const Json& record) {
  RunOptions options = given;
  const Asked asked(given.resume, record);
  asked.take("case", options.cases.selectors);
  options.cases.overrides.clear();
  for (const auto& [field, value] : asked.get<std::vector<std::array<std::string, 2>>>("set"))
    options.cases.overrides.push_back({field, value});
  asked.take("variant", options.variants);
  options.scopes.clear();
  for (const auto& name : asked.get<std::vector<std::string>>("scope"))
    options.scopes.push_back(scope_named(name));
  options.timings.clear();
  for (const auto& name : asked.get<std::vector<std::string>>("timing"))
    options.timings.push_back(timing_named(name));
  WorkerOptions& worker = options.worker;
  asked.take("backend", worker.backend.name);
  asked.take("device", worker.backend.device);
  asked.take("timer", worker.backend.timer);
  asked.take("schedule", worker.backend.schedule);
  asked.take("batch", worker.backend.batch);
  asked.take("inputs", worker.inputs_file);
  asked.take("dump", worker.dump_folder);
  // Without these it is of another build, as will be said.
  options.rounds = 1;
  options.wisdom.clear();
  options.strict = options.exact = false;
  asked.take_if_there("rounds", options.rounds);
  options.against = asked.has("against") ? pairs_from(asked.within("against")) : AgainstOptions();
  asked.take_if_there("wisdom", options.wisdom);
  asked.take_if_there("strict", options.strict);
  asked.take_if_there("exact", options.exact);
  asked.take("lab_score", options.lab_score);
  asked.take("min_samples", worker.sampling.min_samples);
  asked.take("max_noise_percent", worker.sampling.max_noise_percent);
  asked.take("timeout_s", worker.sampling.timeout_s);
  asked.take("deadline_s", worker.deadline_s);
  require_sound(options, given.resume);
  return options;
}

}  // namespace gdn
