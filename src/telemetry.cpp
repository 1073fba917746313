#include "src/telemetry.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "src/shared_library.hpp"
#include "src/surroundings.hpp"

namespace gdn {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds sampling_interval{20};

// NVML's C interface, as far as it is used: no toolkit brings its header any more.
using Return = int;
using Handle = void*;
enum : Return {
  success = 0,
  no_permission = 4,
  insufficient_size = 7,
  driver_not_loaded = 9,
  library_mismatch = 18
};
enum ClockType : int { graphics_clock = 0, sm_clock = 1, memory_clock = 2 };

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};

struct ConfidentialState {
  unsigned environment, feature, developer_tools;
};

struct Reason {
  std::uint64_t bit;
  const char* name;
  bool throttles;
};

constexpr std::uint64_t idle = 0x1;
constexpr Reason reasons_known[] = {{idle, "gpu_idle", false},
                                    {0x2, "applications_clocks_setting", false},
                                    {0x4, "sw_power_cap", true},
                                    {0x8, "hw_slowdown", true},
                                    {0x10, "sync_boost", false},
                                    {0x20, "sw_thermal_slowdown", true},
                                    {0x40, "hw_thermal_slowdown", true},
                                    {0x80, "hw_power_brake_slowdown", true},
                                    {0x100, "display_clock_setting", false}};

std::vector<std::string> library_paths() {
  if (const char* path = std::getenv("GDNBENCH_NVML"); path != nullptr) return {path};
  return {"libnvidia-ml.so.1"};
}

std::string remedy_of(Return result) {
  switch (result) {
    case driver_not_loaded:
      return "; load the driver's kernel module (modprobe nvidia), or give the container the "
             "device";
    case library_mismatch:
      return "; the driver was updated under the running kernel module: reboot";
    case no_permission:
      return "; this user may not open /dev/nvidia*";
    default:
      return "";
  }
}

// {min, max} of what was measured; null where nothing was.
json range_of(std::span<const TelemetrySample> samples,
              std::optional<double> TelemetrySample::*value) {
  std::vector<double> values;
  for (const TelemetrySample& sample : samples)
    if (sample.*value) values.push_back(*(sample.*value));
  if (values.empty()) return nullptr;
  const auto [least, most] = std::ranges::minmax(values);
  return {{"min", least}, {"max", most}};
}

}  // namespace

// The library and its functions. What an old driver lacks is null.
class Nvml {
 public:
  Nvml() : library_(library_paths()) {
    library_.need("nvmlInit_v2", init_);
    library_.need("nvmlShutdown", shutdown_);
    library_.need("nvmlErrorString", error_string_);
    library_.need("nvmlDeviceGetHandleByPciBusId_v2", handle_by_bus_id);
    library_.need("nvmlDeviceGetClockInfo", clock);
    library_.need("nvmlDeviceGetMaxClockInfo", max_clock);
    library_.need("nvmlDeviceGetPowerUsage", power);
    library_.need("nvmlDeviceGetTemperature", temperature);
    library_.find("nvmlDeviceGetCount_v2", device_count);
    library_.find("nvmlDeviceGetHandleByIndex_v2", handle_by_index);
    library_.find("nvmlDeviceGetPciInfo_v3", pci_info);
    library_.find("nvmlSystemGetDriverVersion", driver_version);
    library_.find("nvmlDeviceGetName", name);
    library_.find("nvmlDeviceGetUUID", uuid);
    library_.find("nvmlDeviceGetEccMode", ecc_mode);
    library_.find("nvmlDeviceGetMigMode", mig_mode);
    library_.find("nvmlDeviceGetPersistenceMode", persistence_mode);
    library_.find("nvmlDeviceGetEnforcedPowerLimit", power_limit);
    library_.find("nvmlDeviceGetApplicationsClock", application_clock);
    library_.find("nvmlDeviceGetComputeRunningProcesses_v3", processes);
    library_.find("nvmlSystemGetConfComputeState", confidential_state);
    // Renamed in driver 535; the old name still works.
    if (!library_.find("nvmlDeviceGetCurrentClocksEventReasons", clock_reasons))
      library_.find("nvmlDeviceGetCurrentClocksThrottleReasons", clock_reasons);
    obstacle_ = library_.obstacle();
    if (!obstacle_.empty()) {
      obstacle_ += "; NVML comes with the driver: libnvidia-ml.so.1 must be where the loader looks";
      return;
    }
    const Return result = init_();
    open_ = result == success;
    if (!open_) obstacle_ = text_of(result) + remedy_of(result);
  }
  ~Nvml() {
    if (open_) shutdown_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  const std::string& obstacle() const { return obstacle_; }
  std::string text_of(Return result) const { return error_string_(result); }

  Return (*handle_by_bus_id)(const char*, Handle*) = nullptr;
  Return (*clock)(Handle, int type, unsigned* mhz) = nullptr;
  Return (*max_clock)(Handle, int type, unsigned* mhz) = nullptr;
  Return (*power)(Handle, unsigned* milliwatts) = nullptr;
  Return (*temperature)(Handle, int sensor, unsigned* celsius) = nullptr;
  Return (*clock_reasons)(Handle, unsigned long long*) = nullptr;
  Return (*device_count)(unsigned*) = nullptr;
  Return (*handle_by_index)(unsigned, Handle*) = nullptr;
  Return (*pci_info)(Handle, PciInfo*) = nullptr;
  Return (*driver_version)(char*, unsigned bytes) = nullptr;
  Return (*name)(Handle, char*, unsigned bytes) = nullptr;
  Return (*uuid)(Handle, char*, unsigned bytes) = nullptr;
  Return (*ecc_mode)(Handle, int* now, int* after_reboot) = nullptr;
  Return (*mig_mode)(Handle, unsigned* now, unsigned* after_reset) = nullptr;
  Return (*persistence_mode)(Handle, int*) = nullptr;
  Return (*power_limit)(Handle, unsigned* milliwatts) = nullptr;
  Return (*application_clock)(Handle, int type, unsigned* mhz) = nullptr;
  Return (*processes)(Handle, unsigned* count, ProcessInfo*) = nullptr;
  Return (*confidential_state)(ConfidentialState*) = nullptr;

 private:
  SharedLibrary library_;
  Return (*init_)() = nullptr;
  Return (*shutdown_)() = nullptr;
  const char* (*error_string_)(Return) = nullptr;
  bool open_ = false;
  std::string obstacle_;
};

std::vector<std::string> throttle_names(std::uint64_t reasons) {
  std::vector<std::string> names;
  for (const Reason& reason : reasons_known) {
    if ((reasons & reason.bit) != 0) names.emplace_back(reason.name);
    reasons &= ~reason.bit;
  }
  if (reasons != 0) names.push_back(fmt::format("unknown_{:#x}", reasons));
  return names;
}

bool is_throttling(std::uint64_t reasons) {
  return std::ranges::any_of(reasons_known, [&](const Reason& reason) {
    return reason.throttles && (reasons & reason.bit) != 0;
  });
}

TelemetrySummary summarize(std::span<const TelemetrySample> samples) {
  std::vector<TelemetrySample> counted;
  std::ranges::copy_if(samples, std::back_inserter(counted), [](const TelemetrySample& sample) {
    return (sample.throttle_reasons & idle) == 0;
  });
  if (counted.empty()) counted.assign(samples.begin(), samples.end());

  TelemetrySummary summary;
  if (counted.empty()) return summary;
  std::uint64_t reasons = 0;
  for (const TelemetrySample& sample : counted) reasons |= sample.throttle_reasons;
  const auto add = [&](const char* name, std::optional<double> TelemetrySample::*value) {
    if (json range = range_of(counted, value); !range.is_null())
      summary.json[name] = std::move(range);
  };
  add("sm_clock_mhz", &TelemetrySample::sm_clock_mhz);
  add("memory_clock_mhz", &TelemetrySample::memory_clock_mhz);
  add("power_w", &TelemetrySample::power_w);
  add("temperature_c", &TelemetrySample::temperature_c);
  summary.json["throttle"] = throttle_names(reasons);
  summary.json["samples"] = counted.size();
  summary.throttled = is_throttling(reasons);
  return summary;
}

Telemetry::Telemetry(const std::string& pci_bus_id) : nvml_(std::make_unique<Nvml>()) {
  obstacle_ = nvml_->obstacle();
  if (!obstacle_.empty()) return;
  const Return result = nvml_->handle_by_bus_id(pci_bus_id.c_str(), &device_);
  if (result == success) return;
  device_ = nullptr;
  obstacle_ = fmt::format("NVML does not know the device {}: {}{}", pci_bus_id,
                          nvml_->text_of(result), remedy_of(result));
}

Telemetry::~Telemetry() = default;

TelemetrySample Telemetry::sample() const {
  TelemetrySample sample;
  if (device_ == nullptr) return sample;
  unsigned value = 0;
  if (nvml_->clock(device_, sm_clock, &value) == success) sample.sm_clock_mhz = value;
  if (nvml_->clock(device_, memory_clock, &value) == success) sample.memory_clock_mhz = value;
  if (nvml_->power(device_, &value) == success) sample.power_w = value / 1000.0;
  if (nvml_->temperature(device_, 0, &value) == success) sample.temperature_c = value;
  unsigned long long reasons = 0;
  if (nvml_->clock_reasons != nullptr && nvml_->clock_reasons(device_, &reasons) == success)
    sample.throttle_reasons = reasons;
  return sample;
}

void Telemetry::take() { samples_.push_back(sample()); }

void Telemetry::keep_taking(const std::stop_token& end) {
  std::unique_lock lock(waking_);
  while (!wake_.wait_for(lock, end, sampling_interval, [&] { return end.stop_requested(); }))
    take();
}

void Telemetry::start() {
  if (device_ == nullptr) return;
  samples_.clear();
  take();
  sampler_ = std::jthread([this](const std::stop_token& end) { keep_taking(end); });
}

TelemetrySummary Telemetry::stop() {
  if (!sampler_.joinable()) return {};
  sampler_.request_stop();
  sampler_.join();
  take();
  return summarize(samples_);
}

json Telemetry::facts() const {
  json facts = json::object();
  if (device_ == nullptr) return facts;
  char text[96] = {};
  unsigned value = 0, next = 0;
  int mode = 0, next_mode = 0;
  const auto has = [](auto* function, auto... arguments) {
    return function != nullptr && function(arguments...) == success;
  };
  if (has(nvml_->driver_version, text, sizeof text)) facts["driver"] = text;
  if (has(nvml_->name, device_, text, sizeof text)) facts["name"] = text;
  if (has(nvml_->uuid, device_, text, sizeof text)) facts["uuid"] = text;
  if (has(nvml_->ecc_mode, device_, &mode, &next_mode)) facts["ecc"] = mode != 0;
  if (has(nvml_->mig_mode, device_, &value, &next)) facts["mig"] = value != 0;
  if (has(nvml_->persistence_mode, device_, &mode)) facts["persistence"] = mode != 0;
  ConfidentialState confidential{};
  if (has(nvml_->confidential_state, &confidential))
    facts["confidential_computing"] = confidential.feature != 0;
  if (has(nvml_->power_limit, device_, &value)) facts["power_limit_w"] = value / 1000.0;
  if (has(nvml_->max_clock, device_, sm_clock, &value)) facts["max_sm_clock_mhz"] = value;
  if (has(nvml_->max_clock, device_, memory_clock, &value)) facts["max_memory_clock_mhz"] = value;
  if (has(nvml_->application_clock, device_, graphics_clock, &value))
    facts["application_clock_mhz"] = value;
  return facts;
}

std::vector<ComputeProcess> Telemetry::other_processes() const {
  if (device_ == nullptr || nvml_->processes == nullptr) return {};
  std::vector<ProcessInfo> running(64);
  Return result = insufficient_size;
  for (int attempt = 0; attempt < 3 && result == insufficient_size; ++attempt) {
    auto count = static_cast<unsigned>(running.size());
    result = nvml_->processes(device_, &count, running.data());
    running.resize(result == insufficient_size ? count + 16 : count);
  }
  if (result != success) return {};
  std::vector<ComputeProcess> others;
  for (const ProcessInfo& process : running)
    if (const int pid = static_cast<int>(process.pid); pid != getpid())
      others.push_back({pid, process_name(pid)});
  return others;
}

NvmlDevices nvml_devices() {
  const Nvml nvml;
  NvmlDevices devices{.obstacle = nvml.obstacle()};
  unsigned count = 0;
  if (!devices.obstacle.empty() || nvml.device_count == nullptr || nvml.pci_info == nullptr ||
      nvml.handle_by_index == nullptr || nvml.device_count(&count) != success)
    return devices;
  for (unsigned index = 0; index < count; ++index) {
    Handle device = nullptr;
    PciInfo info{};
    if (nvml.handle_by_index(index, &device) == success && nvml.pci_info(device, &info) == success)
      devices.bus_ids.emplace_back(info.bus_id);
  }
  return devices;
}

}  // namespace gdn
