// A library with the part of NVML's interface that telemetry uses, for machines without a GPU.
#include "tests/fake_nvml.hpp"

#include <unistd.h>

#include <cstdio>
#include <cstring>

using gdn::test::FakeNvml;

namespace {

constexpr int success = 0, not_supported = 3, not_found = 6, insufficient_size = 7;

int device;

int put(char* to, unsigned bytes, const char* text) {
  std::snprintf(to, bytes, "%s", text);
  return success;
}

int put(unsigned* to, unsigned value) {
  *to = value;
  return success;
}

}  // namespace

extern "C" {

FakeNvml fake_nvml;

int nvmlInit_v2() {
  if (fake_nvml.init_result == success) ++fake_nvml.open;
  return fake_nvml.init_result;
}
int nvmlShutdown() {
  --fake_nvml.open;
  return success;
}
const char* nvmlErrorString(int result) {
  return result == not_found ? "Not Found" : result == 9 ? "Driver Not Loaded" : "Some Error";
}
int nvmlDeviceGetCount_v2(unsigned* count) { return put(count, 1); }
int nvmlDeviceGetHandleByIndex_v2(unsigned, void** to) {
  *to = &device;
  return success;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** to) {
  if (std::strcmp(id, "0000:3B:00.0") != 0 && std::strcmp(id, "00000000:3B:00.0") != 0)
    return not_found;
  *to = &device;
  return success;
}
int nvmlDeviceGetPciInfo_v3(void*, void* info) {
  std::memset(info, 0, 68);
  std::memcpy(static_cast<char*>(info) + 36, "00000000:3B:00.0", 17);
  return success;
}
int nvmlDeviceGetClockInfo(void*, int type, unsigned* mhz) {
  if (type == 1) ++fake_nvml.samples;
  return put(mhz, type == 1 ? fake_nvml.sm_clock.load() : 3201);
}
int nvmlDeviceGetMaxClockInfo(void*, int type, unsigned* mhz) {
  return put(mhz, type == 1 ? 1980 : 3201);
}
int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  return fake_nvml.knows_power ? put(milliwatts, 345600) : not_supported;
}
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return put(celsius, 41); }
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = fake_nvml.reasons;
  return success;
}
int nvmlSystemGetDriverVersion(char* to, unsigned bytes) { return put(to, bytes, "580.1"); }
int nvmlDeviceGetName(void*, char* to, unsigned bytes) { return put(to, bytes, "NVIDIA Fake"); }
int nvmlDeviceGetUUID(void*, char* to, unsigned bytes) { return put(to, bytes, "GPU-1234"); }
int nvmlDeviceGetEccMode(void*, unsigned* now, unsigned* next) { return put(now, 1), put(next, 1); }
int nvmlDeviceGetMigMode(void*, unsigned* now, unsigned* next) { return put(now, 0), put(next, 1); }
int nvmlDeviceGetPersistenceMode(void*, unsigned* mode) { return put(mode, 1); }
int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* milliwatts) { return put(milliwatts, 700000); }
int nvmlDeviceGetComputeRunningProcesses_v3(void*, unsigned* count, void* processes) {
  struct Process {
    unsigned pid;
    unsigned long long bytes;
    unsigned gpu, compute;
  };
  constexpr unsigned running = 100;  // more than are asked for at first
  if (*count < running) {
    *count = running;
    return insufficient_size;
  }
  *count = running;
  auto* const to = static_cast<Process*>(processes);
  for (unsigned i = 0; i < running; ++i)
    to[i] = {i == 0 ? fake_nvml.other_pid : static_cast<unsigned>(getpid()), 0, 0, 0};
  return success;
}

}  // extern "C"
