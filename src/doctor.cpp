// `gdnbench doctor`: what this machine can do, each lack with its remedy.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "src/backend.hpp"
#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/fingerprint.hpp"

namespace gdn {
namespace {

enum class State { good, lacking, note };

void say(State state, const std::string& what, const std::string& remedy = "") {
  const char* const mark = state == State::good      ? "ok  "
                           : state == State::lacking ? "LACK"
                                                     : "note";
  fmt::print("{}  {}\n", mark, what);
  if (!remedy.empty()) fmt::print("      -> {}\n", remedy);
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  for (std::string_view rest = path == nullptr ? "" : path; !rest.empty();) {
    const std::size_t colon = std::min(rest.find(':'), rest.size());
    if (std::filesystem::exists(std::filesystem::path(rest.substr(0, colon)) / program))
      return true;
    rest.remove_prefix(std::min(colon + 1, rest.size()));
  }
  return false;
}

void examine_build() {
  const nlohmann::json print = fingerprint(nlohmann::json::object());
  say(State::good,
      fmt::format("gdnbench {} ({}), {}", print["version"].get<std::string>(),
                  print["revision"].get<std::string>(), print["compiler"].get<std::string>()));
#ifndef NDEBUG
  say(State::note, "built with assertions: CPU times are not those of a release build",
      "configure with -DCMAKE_BUILD_TYPE=Release");
#endif
#ifdef GDNBENCH_WITH_PUGIXML
  say(State::good, "JUnit output (compare --junit)");
#else
  say(State::lacking, "JUnit output (compare --junit): built without pugixml",
      "apt-get install libpugixml-dev, then configure again");
#endif
}

void examine_cases() {
  try {
    say(State::good, fmt::format("{} cases in {}", select_cases({}, {}, SIZE_MAX).size(),
                                 case_folder().string()));
  } catch (const UserError& e) {
    say(State::lacking, e.what());
  }
}

void examine_cpu() {
  const auto cpu = make_cpu_backend();
  const Device& device = cpu->device();
  say(State::good,
      fmt::format("CPU backend: {}, {} threads, {:.1f} GiB", device.name, device.processors,
                  static_cast<double>(device.memory_bytes) / (1 << 30)));
  const std::string governor = first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  if (!governor.empty() && governor != "performance")
    say(State::note, fmt::format("CPU frequency governor \"{}\": CPU times will wander", governor),
        "cpupower frequency-set -g performance (as root)");
  const double load = std::atof(first_line("/proc/loadavg").c_str());
  if (load > 0.5 * device.processors)
    say(State::note, fmt::format("load average {:.1f}: other work disturbs CPU times", load),
        "wait for it, or expect the flag `noisy`");
}

void examine_cuda() {
#ifndef GDNBENCH_WITH_CUDA
  say(State::lacking, "CUDA backend: this build has none",
      "install the CUDA toolkit, put nvcc on PATH and configure again (-DGDNBENCH_CUDA=ON)");
#endif
  for (const char* tool : {"nsys", "ncu"})
    if (!on_path(tool))
      say(State::note,
          fmt::format("{} is not on PATH: profiling with it is not possible here", tool));
}

}  // namespace

int doctor(const DoctorOptions&) {
  examine_build();
  examine_cases();
  examine_cpu();
  examine_cuda();
  return 0;
}

}  // namespace gdn
