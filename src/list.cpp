// `gdnbench list`: what there is to run, and on what.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/variant.hpp"
#include "src/backend.hpp"
#include "src/commands.hpp"

namespace gdn {
namespace {

std::string shape_of(const Problem& problem) {
  std::int32_t longest = 0;
  for (int s = 0; s < problem.sequences(); ++s) longest = std::max(longest, problem.length(s));
  return fmt::format("{:>4} seq {:>7} tokens (longest {:>6})  heads {:>2}/{:<3}  state {}",
                     problem.sequences(), problem.tokens(), longest, problem.query_heads,
                     problem.value_heads, problem.initial_state ? "yes" : "no ");
}

void list_cases(const CaseSelection& selection) {
  const std::vector<Case> cases = select_cases(selection.selectors, selection.overrides, SIZE_MAX);
  std::size_t width = 0;
  for (const Case& c : cases) width = std::max(width, c.name.size());
  for (const Case& c : cases)
    fmt::print("{:<{}}  {}  {}\n", c.name, width, shape_of(c.problem), name_of(c.recipe.gates));
}

std::string scopes_of(const Variant& variant) {
  const bool core = std::ranges::find(variant.scopes, Scope::core) != variant.scopes.end();
  const bool forward = std::ranges::find(variant.scopes, Scope::forward) != variant.scopes.end();
  if (core && forward) return "core, forward (needs no preparation)";
  return core ? "core, forward (= preparation + core)" : "forward (does its own preparation)";
}

// "wu: 128 threads, 128 registers, 41472 bytes shared, 0 spilled, 4 blocks a multiprocessor"
void print_resources(const nlohmann::json& resources) {
  for (const auto& [stage, of] : resources.items())
    fmt::print(
        "        {}: {} threads, {} registers, {} bytes shared, {} bytes local, {} block{} a "
        "multiprocessor ({:.0f} % occupancy)\n",
        stage, of["threads"].get<int>(), of["registers"].get<int>(), of["shared_bytes"].get<int>(),
        of["local_bytes"].get<int>(), of["blocks_per_processor"].get<int>(),
        of["blocks_per_processor"].get<int>() == 1 ? "" : "s", 100 * of["occupancy"].get<double>());
}

void list_variants(Backend& backend) {
  const Device& device = backend.device();
  for (const Variant& variant : ladder()) {
    fmt::print("{} [{}]\n    {}\n    {}\n", variant.name, name_of(variant.target), variant.idea,
               scopes_of(variant));
    for (const Instance& instance : variant.instances) {
      if (!instance.knobs.empty()) fmt::print("    {}\n", variant_id(variant, instance));
      if (!instance.bound.empty()) fmt::print("        {}\n", instance.bound);
      if (variant.target != device.target) continue;
      const std::string why = obstacle(variant, instance, device);
      if (why.empty())
        print_resources(backend.resources(instance.stages));
      else
        fmt::print("        skipped here: {}\n", why);
    }
  }
}

void print_device(const Backend& backend) {
  const Device& device = backend.device();
  fmt::print("{}  {}  {} {}  {:.1f} GiB\n", name_of(device.target), device.name, device.processors,
             device.target == Target::cuda ? "multiprocessors" : "threads",
             static_cast<double>(device.memory_bytes) / (1 << 30));
}

}  // namespace

int list(const ListOptions& options) {
  switch (options.what) {
    case ListOptions::What::cases:
      list_cases(options.cases);
      break;
    case ListOptions::What::variants:
      list_variants(*make_backend({}));
      break;
    case ListOptions::What::devices:
      print_device(*make_cpu_backend());
      if (const auto best = make_backend({}); best->device().target == Target::cuda)
        print_device(*best);
      break;
  }
  return 0;
}

}  // namespace gdn
