#include "src/surroundings.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <sstream>

namespace gdn {
namespace {

struct Sign {
  std::string_view tool;
  std::string_view text;
};

// Variables that a tool sets in what it starts. The sanitizer stands first: it shares its launcher
// with ncu. Only what no person sets: NSYS_HOME, say, is of an environment module.
constexpr Sign variables[] = {{"compute-sanitizer", "NV_SANITIZER_"},
                              {"nsys", "NSYS_PROFILING_SESSION_ID"},
                              {"nsys", "NSYS_SESSION_"},
                              {"nsys", "NSYS_AGENT_"},
                              {"nsys", "NSYS_TARGET_"},
                              {"nsys", "QUADD_INJECTION_PROXY"},
                              {"ncu", "NV_COMPUTE_PROFILER_"},
                              {"ncu", "NV_NSIGHT_INJECTION"},
                              {"nvprof", "NVPROF_ID"}};

// Libraries that a tool puts into what it watches, by the start of their file name.
constexpr Sign libraries[] = {{"compute-sanitizer", "libsanitizer-collection"},
                              {"compute-sanitizer", "libsanitizer-public"},
                              {"nsys", "libToolsInjection"},
                              {"nsys", "libQuadDTargetInjection"},
                              {"ncu", "libcuda-injection"},
                              {"ncu or compute-sanitizer", "libTreeLauncher"},
                              {"ncu or compute-sanitizer", "libInterceptorInjection"}};

// Process names as the kernel keeps them: 15 characters.
constexpr Sign programs[] = {{"nsys", "nsys"},
                             {"nsys", "nsys-launcher"},
                             {"ncu", "ncu"},
                             {"ncu", "nv-nsight-cu-cl"},
                             {"compute-sanitizer", "compute-sanitiz"},
                             {"cuda-gdb", "cuda-gdb"},
                             {"ncu or compute-sanitizer", "TreeLauncherSub"}};

std::string_view file_name(std::string_view path) {
  return path.substr(path.find_last_of('/') + 1);
}

std::string_view tool_of_library(std::string_view path) {
  for (const Sign& sign : libraries)
    if (file_name(path).starts_with(sign.text)) return sign.tool;
  return "";
}

std::optional<std::string_view> value_of(const Surroundings& around, std::string_view name) {
  for (const std::string& variable : around.environment)
    if (variable.starts_with(name) && variable.substr(name.size()).starts_with('='))
      return std::string_view(variable).substr(name.size() + 1);
  return std::nullopt;
}

std::string found(std::string_view tool, std::string_view how) {
  return fmt::format("{} ({})", tool, how);
}

std::string by_variable(const Surroundings& around) {
  for (const Sign& sign : variables)
    for (const std::string& variable : around.environment) {
      const std::string name = variable.substr(0, variable.find('='));
      if (name.starts_with(sign.text)) return found(sign.tool, name + " is set");
    }
  return "";
}

std::string by_injection(const Surroundings& around) {
  for (const char* name : {"LD_PRELOAD", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH"}) {
    std::string paths(value_of(around, name).value_or(""));
    std::ranges::replace(paths, ':', ' ');
    std::istringstream each(paths);
    for (std::string path; each >> path;)
      if (const std::string_view tool = tool_of_library(path); !tool.empty())
        return found(tool, fmt::format("{} holds {}", name, file_name(path)));
  }
  // Whatever CUDA itself is told to load is a tool's, known here or not.
  const std::string_view path = value_of(around, "CUDA_INJECTION64_PATH").value_or("");
  return path.empty() ? "" : found(file_name(path), "CUDA_INJECTION64_PATH is set");
}

// Paths of the files mapped into the process.
std::set<std::string> mapped_files(const std::string& maps) {
  std::set<std::string> paths;
  std::istringstream lines(maps);
  for (std::string line; std::getline(lines, line);)
    if (const std::size_t at = line.find('/'); at != std::string::npos)
      paths.insert(line.substr(at));
  return paths;
}

std::string by_library(const Surroundings& around) {
  for (const std::string& path : mapped_files(around.maps))
    if (const std::string_view tool = tool_of_library(path); !tool.empty())
      return found(tool, fmt::format("{} is loaded", file_name(path)));
  return "";
}

std::string by_ancestor(const Surroundings& around) {
  for (const std::string& ancestor : around.ancestors)
    for (const Sign& sign : programs)
      if (ancestor == sign.text) return found(sign.tool, "it started this process");
  return "";
}

int parent_of(int pid) {
  std::ifstream status(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::atoi(line.c_str() + 5);
  return 0;
}

std::string text_of(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

std::string process_name(int pid) {
  std::ifstream file(fmt::format("/proc/{}/comm", pid));
  std::string name;
  std::getline(file, name);
  return name;
}

Surroundings surroundings_of_this_process() {
  Surroundings around;
  for (char** variable = environ; *variable != nullptr; ++variable)
    around.environment.emplace_back(*variable);
  around.maps = text_of("/proc/self/maps");
  for (int pid = getppid(); pid > 1 && around.ancestors.size() < 64; pid = parent_of(pid))
    around.ancestors.push_back(process_name(pid));
  return around;
}

std::string profiler_in(const Surroundings& around) {
  for (const auto& look : {by_variable, by_injection, by_library, by_ancestor})
    if (std::string tool = look(around); !tool.empty()) return tool;
  return "";
}

std::string cupti_holder_in(const Surroundings& around) {
  if (std::string tool = profiler_in(around); !tool.empty()) return tool;
  if (const auto preloaded = value_of(around, "LD_PRELOAD"); preloaded && !preloaded->empty())
    return fmt::format("probably {}, which LD_PRELOAD brings", *preloaded);
  if (const auto injected = value_of(around, "NVTX_INJECTION64_PATH"))
    return fmt::format("probably {}, which NVTX_INJECTION64_PATH brings", file_name(*injected));
  return "";
}

}  // namespace gdn
