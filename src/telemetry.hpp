// Clocks, power, temperature and throttling of a GPU while it is measured, through NVML, which is
// opened at run time. Where there is none, everything is empty and `obstacle` says why.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace gdn {

// What a device does not tell is absent.
struct TelemetrySample {
  std::optional<double> sm_clock_mhz, memory_clock_mhz, power_w, temperature_c;
  std::uint64_t throttle_reasons = 0;  // NVML's bits
};

struct TelemetrySummary {
  // {sm_clock_mhz {min, max}, memory_clock_mhz, power_w, temperature_c, throttle [names], samples}
  nlohmann::json json = nlohmann::json::object();
  bool throttled = false;
};

// "sw_power_cap", "hw_thermal_slowdown", …: as nvidia-smi -q names them.
std::vector<std::string> throttle_names(std::uint64_t reasons);

// Whether the clock is lower than the device could give for want of power or of cooling. An idle
// device and a clock that somebody has set are not throttled.
bool is_throttling(std::uint64_t reasons);

// Samples of an idle device say nothing about the measurement: they count only where there is no
// other.
TelemetrySummary summarize(std::span<const TelemetrySample> samples);

struct ComputeProcess {
  int pid = 0;
  std::string name;  // "" for one of another container
};

class Nvml;

class Telemetry {
 public:
  // The device by its PCI bus id, as CUDA and nvidia-smi write it: "0000:3b:00.0".
  explicit Telemetry(const std::string& pci_bus_id);
  ~Telemetry();
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  const std::string& obstacle() const { return obstacle_; }  // "" where it works

  // Of the fingerprint, as far as the device tells: driver, name, uuid, ecc, mig, persistence,
  // confidential_computing, power_limit_w, max_sm_clock_mhz, max_memory_clock_mhz,
  // application_clock_mhz.
  nlohmann::json facts() const;
  std::vector<ComputeProcess> other_processes() const;
  TelemetrySample sample() const;

  // Samples now, then every 20 ms on a thread of its own, until stop(), which samples once more.
  void start();
  TelemetrySummary stop();

 private:
  void take();
  void keep_taking(const std::stop_token& end);

  std::unique_ptr<Nvml> nvml_;
  void* device_ = nullptr;
  std::string obstacle_;
  std::vector<TelemetrySample> samples_;
  std::mutex waking_;
  std::condition_variable_any wake_;
  std::jthread sampler_;
};

// The devices of this machine, whatever CUDA_VISIBLE_DEVICES says.
struct NvmlDevices {
  std::vector<std::string> bus_ids;
  std::string obstacle;  // why NVML cannot be used, or ""
};
NvmlDevices nvml_devices();

}  // namespace gdn
