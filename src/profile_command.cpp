// `gdnbench profile`: a fixed number of launches of one checked instance, marked for nsys and ncu.
// In this process, without CUPTI and without a gate before the launches.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "src/auto_variant.hpp"
#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/profiler_commands.hpp"
#include "src/report/text.hpp"
#include "src/surroundings.hpp"
#include "src/trace.hpp"
#include "src/variant_select.hpp"
#include "src/workbench.hpp"

namespace gdn {
namespace {

[[noreturn]] void fail_not_one(const char* option, std::vector<std::string> selected) {
  const std::size_t count = selected.size();
  constexpr std::size_t shown = 8;
  if (count > shown) {
    selected.resize(shown);
    selected.emplace_back("…");
  }
  throw UserError(fmt::format("{}: one is profiled at a time, and this selects {}: {}", option,
                              count, fmt::join(selected, ", ")));
}

Case the_case(const CaseSelection& selection, const Device& device) {
  const std::vector<Case> cases =
      select_cases(selection.selectors, selection.overrides, device.memory_bytes);
  if (cases.size() == 1) return cases.front();
  std::vector<std::string> names;
  for (const Case& c : cases) names.push_back(c.name);
  fail_not_one("--case", names);
}

SelectedVariant the_variant(const ProfileOptions& options, const Case& c, const Device& device) {
  const std::vector<std::string>& globs = options.variants;
  if (globs == std::vector<std::string>{auto_variant}) {
    const auto [selected, as] =
        choose_variant(c, options.scope, device, known_inputs(c, "", options.exact));
    fmt::print("{}\n", note_on(as));
    return selected;
  }
  const std::vector<SelectedVariant> selected = select_variants(globs, device.target);
  if (selected.size() == 1) return selected.front();
  std::vector<std::string> ids;
  for (const SelectedVariant& s : selected) ids.push_back(variant_id(*s.variant, *s.instance));
  fail_not_one("--variant", ids);
}

// This command again, word by word.
std::vector<std::string> words_of(const ProfileOptions& options, const std::string& variant) {
  std::error_code unreadable;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unreadable);
  std::vector<std::string> words = {unreadable ? "gdnbench" : self.string(), "profile"};
  const auto add = [&words](const char* option, std::string value) {
    words.emplace_back(option);
    words.push_back(std::move(value));
  };
  for (const std::string& selector : options.cases.selectors) add("--case", selector);
  for (const Override& o : options.cases.overrides) add("--set", o.field + "=" + o.value);
  add("--variant", variant);
  add("--scope", std::string(name_of(options.scope)));
  add("--iterations", std::to_string(options.iterations));
  add("--backend", options.backend.name);
  add("--device", std::to_string(options.backend.device));
  return words;
}

// What profilers record, from here to its end.
class ProfilerRange {
 public:
  explicit ProfilerRange(Backend& backend) : backend_(backend) { backend_.profiler_range(true); }
  ~ProfilerRange() { backend_.profiler_range(false); }
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;

 private:
  Backend& backend_;
};

void print_profilers(const ProfileOptions& options, const std::string& case_name,
                     const std::string& variant, Target target) {
  if (target == Target::cpu) {
    fmt::print("nsys and ncu see launches of the cuda backend; this was the cpu backend.\n");
    return;
  }
  const std::vector<std::string> words = words_of(options, variant);
  fmt::print("A time line of just these launches (Nsight Systems):\n  {}\n",
             nsys_line(case_name, variant, words));
  fmt::print("The counters of just these kernels (Nsight Compute):\n  {}\n",
             ncu_line(case_name, variant, words));
}

}  // namespace

int profile(const ProfileOptions& options) {
  const std::unique_ptr<Backend> backend = make_backend(options.backend);
  const Case c = the_case(options.cases, backend->device());
  const SelectedVariant selected = the_variant(options, c, backend->device());
  const std::string id = variant_id(*selected.variant, *selected.instance);

  Workbench bench(*backend, c, nullptr);
  MeasureRequest request{.variant = selected.variant,
                         .instance = selected.instance,
                         .scope = options.scope,
                         .timing = Timing::hot};
  request.instead_of_timing = [&](const Launch& launch) {
    const ProfilerRange recorded(*backend);
    const Range of_case(c.name);
    const Range of_variant(id, c.problem.flop());
    for (int i = 0; i < options.iterations; ++i) backend->run(launch);
  };
  const Row row = bench.measure(request);
  if (row.status == Status::skipped)
    throw UserError(fmt::format("{} {} {}: {}", c.name, id, name_of(options.scope), row.reason));
  if (row.status != Status::passed) {
    fmt::print(stderr, "{} {} {}: {}: {}\n", c.name, id, name_of(options.scope),
               name_of(row.status), row.reason);
    return static_cast<int>(Exit::incorrect);
  }
  fmt::print("{} {} {}: checked, then launched {} times in the marked range\n", c.name, id,
             name_of(options.scope), options.iterations);
  if (profiler_in(surroundings_of_this_process()).empty())
    print_profilers(options, c.name, id, backend->device().target);
  return static_cast<int>(Exit::fine);
}

}  // namespace gdn
