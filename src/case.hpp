// A case: the shape of a problem and how its inputs are drawn, read strictly from YAML.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/prepare/recipe.hpp"
#include "kernels/variant.hpp"

namespace gdn {

struct Case {
  std::string name;  // the id: letters, digits and _ . + - : = only, so that it is also a glob
  Problem problem;
  Recipe recipe;
  bool operator==(const Case&) const = default;
};

// `--set tokens=4096`: replaces a field, or the axis of that name, in every selected case; a field
// that is no axis is appended to the id. `sequences` is written as ids show it: 28672+4096, 8192x4.
struct Override {
  std::string field;
  std::string value;
  std::string source = {};  // the option that errors show, where it is not --set
};

// Reads one YAML text; `axes` expand it into several cases, in the order of the file. `source` is
// the name that errors show. `memory_bytes` is the memory that a case may need at most.
// Throws UserError "source:line:column: what; remedy".
std::vector<Case> parse_cases(std::string_view yaml, const std::string& source,
                              const std::vector<Override>& overrides, std::size_t memory_bytes);

// Every case file of the folder `cases/` that belongs to this binary.
std::filesystem::path case_folder();

// Cases selected by `selectors`, each the name of a case, the name of a file with axes (all of its
// cases), a glob over case names, or the path of a YAML file; without doubles, in the order of the
// selectors. No selector selects every case of the folder. Throws UserError, with a suggestion,
// for a selector that selects nothing.
std::vector<Case> select_cases(const std::vector<std::string>& selectors,
                               const std::vector<Override>& overrides, std::size_t memory_bytes);

// What selects, with the same overrides, the case `name` of those that `selector` selects, and as
// few others as can be: the name that it has without overrides, or its file. None where it is not
// among them. Throws UserError where a case file cannot be read.
std::optional<std::string> selector_of(const std::string& name, const std::string& selector,
                                       const std::vector<Override>& overrides);

// The case as YAML that parse_cases reads back as an equal case.
std::string to_yaml(const Case& c);

// A selector that is the path of a YAML file, not a name or a glob.
bool is_case_file(const std::string& selector);

// The files that are read to select cases by these selectors.
std::vector<std::filesystem::path> case_files(const std::vector<std::string>& selectors);

// Bytes that measuring the case may take: inputs, g, A, outputs and the fp64 reference.
double footprint_bytes(const Problem& problem);
// "needs 3.20 GiB …, and there are 2.00 GiB" where that is more than the memory; else "".
std::string too_large(const Problem& problem, std::size_t memory_bytes);

}  // namespace gdn
