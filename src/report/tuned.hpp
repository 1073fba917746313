// What searches have found, as text. Pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "src/report/table.hpp"
#include "src/tuned_problem.hpp"

namespace gdn {

// Winner, those tied with it, those slower, those without a time; below it how complete it is.
Table table(const TunedProblem& tuned);
std::string console(const TunedProblem& tuned, bool colour);

inline constexpr const char* tune_schema = "gdnbench-tune/1";

// {"schema", "fingerprint", "options", "problems": [outcomes]}, see docs/tuning.md.
std::string json(const nlohmann::json& fingerprint, const nlohmann::json& options,
                 const std::vector<TunedProblem>& tuned);

// The evaluations as results of the T4 auto-tuning schema, version 1.0.0. `written` is the time
// that stands in each, ISO 8601.
std::string t4(const std::vector<TunedProblem>& tuned, const std::string& written);

}  // namespace gdn
