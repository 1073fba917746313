// `gdnbench doctor`: what this machine can do, each lack with its remedy.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "src/backend.hpp"
#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/fingerprint.hpp"
#include "src/profile.hpp"
#include "src/surroundings.hpp"
#include "src/telemetry.hpp"

#ifdef GDNBENCH_WITH_CUDA
#include "src/backend_cuda.hpp"
#endif

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

void examine_profilers() {
  for (const char* tool : {"nsys", "ncu"})
    if (!on_path(tool))
      say(State::note, fmt::format("{} is not on PATH: `gdnbench profile` cannot use it", tool),
          "install Nsight Systems and Nsight Compute, or add their folders to PATH");
  if (const std::string tool = profiler_in(surroundings_of_this_process()); !tool.empty())
    say(State::note, fmt::format("this runs under {}: times are not those of a run without", tool));
}

void examine_cuda() {
#ifdef GDNBENCH_WITH_CUDA
  if (const std::string obstacle = cuda_obstacle(0); !obstacle.empty()) {
    say(State::lacking, "CUDA backend: " + obstacle);
    return;
  }
  say(State::good, "CUDA backend");
  const CuptiState cupti = cupti_state();
  if (cupti.usable)
    say(State::good, "CUPTI: time by kernel");
  else
    say(State::lacking, "CUPTI (time by kernel): " + cupti.obstacle);
#else
  say(State::lacking, "CUDA backend: this build has none",
      "install the CUDA toolkit (12.0 or newer), put nvcc on PATH and configure again "
      "(-DGDNBENCH_CUDA=ON)");
#endif
}

// "1980 of 1980 MHz", as far as both are known.
std::string of_most(const std::optional<double>& now, const nlohmann::json& facts, const char* most,
                    const char* unit) {
  const std::string first = now ? fmt::format("{:.0f}", *now) : "?";
  if (!facts.contains(most)) return fmt::format("{} {}", first, unit);
  return fmt::format("{} of {:.0f} {}", first, facts[most].get<double>(), unit);
}

void examine_clocks(const std::string& gpu, const nlohmann::json& facts,
                    const TelemetrySample& now) {
  const std::vector<std::string> reasons = throttle_names(now.throttle_reasons);
  if (is_throttling(now.throttle_reasons))
    say(State::lacking, fmt::format("{}: throttled now: {}", gpu, fmt::join(reasons, ", ")),
        "see to cooling and power (nvidia-smi -q -d PERFORMANCE); rows are flagged `throttled`");
  const int most = facts.value("max_sm_clock_mhz", 0);
  const bool set = std::ranges::find(reasons, "applications_clocks_setting") != reasons.end() ||
                   facts.value("application_clock_mhz", most) < most;
  if (set)
    say(State::note, fmt::format("{}: the clock is held below its maximum by a setting", gpu),
        "nvidia-smi -rgc and -rac (as root) let it go");
  else
    say(State::note, fmt::format("{}: clocks are not locked: they follow power and heat", gpu),
        "nvidia-smi -lgc MHZ (as root) holds them, -rgc lets them go; gdnbench changes none");
}

void examine_gpu(const std::string& bus_id) {
  const Telemetry telemetry(bus_id);
  if (!telemetry.obstacle().empty()) {
    say(State::lacking, telemetry.obstacle());
    return;
  }
  const nlohmann::json facts = telemetry.facts();
  const TelemetrySample now = telemetry.sample();
  const std::string gpu = "GPU " + bus_id;
  const auto is = [&](const char* fact, bool what) {
    return facts.contains(fact) && facts[fact] == what;
  };
  say(State::good, fmt::format("{}: {}, driver {}, SM {}, memory {}, {}, {}, ECC {}", gpu,
                               facts.value("name", "?"), facts.value("driver", "?"),
                               of_most(now.sm_clock_mhz, facts, "max_sm_clock_mhz", "MHz"),
                               of_most(now.memory_clock_mhz, facts, "max_memory_clock_mhz", "MHz"),
                               of_most(now.power_w, facts, "power_limit_w", "W"),
                               of_most(now.temperature_c, facts, "", "°C"),
                               is("ecc", true)    ? "on"
                               : is("ecc", false) ? "off"
                                                  : "unknown"));
  examine_clocks(gpu, facts, now);
  if (is("persistence", false))
    say(State::note,
        fmt::format("{}: persistence mode is off: the first run pays for start-up", gpu),
        "nvidia-smi -pm 1 (as root)");
  if (is("mig", true))
    say(State::note, fmt::format("{}: MIG is on: a slice is measured, not the device", gpu),
        "nvidia-smi -mig 0 (as root) gives the whole of it");
  if (is("confidential_computing", true))
    say(State::note, fmt::format("{}: confidential computing is on: no CUPTI, slow copies", gpu));
  for (const ComputeProcess& process : telemetry.other_processes())
    say(State::note,
        fmt::format("{}: process {} ({}) computes on it too", gpu, process.pid,
                    process.name.empty() ? "of another container" : process.name),
        "measure when it has ended");
}

void examine_gpus() {
  const NvmlDevices devices = nvml_devices();
  if (!devices.obstacle.empty())
    say(State::lacking, "NVML (clocks, power, throttling of each row): " + devices.obstacle);
  for (const std::string& bus_id : devices.bus_ids) examine_gpu(bus_id);
}

}  // namespace

int doctor(const DoctorOptions&) {
  examine_build();
  examine_cases();
  examine_cpu();
  examine_cuda();
  examine_gpus();
  examine_profilers();
  return 0;
}

}  // namespace gdn
