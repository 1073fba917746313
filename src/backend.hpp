// Where kernels run. Chosen once, at the top; everything above this interface is one code for CPU
// and GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/prepare/generate.hpp"
#include "kernels/variant.hpp"
#include "src/telemetry.hpp"
#include "src/timer.hpp"

namespace gdn {

// Something that this backend or device does not have; the row is skipped with this reason.
struct Unavailable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

inline constexpr const char* cold_batch_obstacle =
    "cold flushes before each launch, --batch has several in a sample: use hot, graph or lab";

// Which backend, and how it is driven.
struct BackendOptions {
  std::string name = "auto";  // cuda where a usable device is, else cpu
  int device = 0;
  std::string timer = "auto";     // events; cupti: the headline from CUPTI, or an error; auto: both
  std::string schedule = "auto";  // how the host waits for the device: spin, yield, blocking
  int batch = 1;                  // launches per sample, one synchronisation for all of them
};

// Owned bytes of a backend.
using Memory = std::unique_ptr<void, std::function<void(void*)>>;

struct KernelPass {
  std::vector<KernelTime> kernels;  // medians, in order of launch
  std::optional<double> span_s;     // median
  double offset_s = 0;              // by which the timer's figure for an empty kernel is longer
  std::string obstacle;             // why there is none
  std::vector<std::string> flags;
};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const Device& device() const = 0;
  // Of the device: name, driver, cuda, clocks, … as far as the backend has them.
  virtual nlohmann::json fingerprint() const = 0;

  virtual Memory allocate(std::size_t bytes) = 0;  // 256-byte aligned; throws when there is no room
  virtual void fill_nan(void* to, std::size_t bytes) = 0;  // 0xFF: NaN as bf16, fp32 and fp64
  // `count` times `bytes` bytes of 0, `stride` bytes from one to the next.
  virtual void clear(void* to, std::size_t stride, std::size_t bytes, std::size_t count) = 0;
  virtual void copy_in(void* to, const void* from, std::size_t bytes) = 0;   // from host memory
  virtual void copy_out(void* to, const void* from, std::size_t bytes) = 0;  // to host memory
  virtual std::uint64_t hash(const void* data, std::size_t bytes) = 0;       // see hash.hpp

  virtual void generate(const Problem& problem, const Recipe& recipe, const InputTensors& to) = 0;
  // The fp64 recurrence on the backend's tensors; results in host memory (see reference.hpp).
  virtual void reference(const Problem& problem, const Tensors& tensors, double* output,
                         double* state) = 0;

  virtual void run(const Launch& launch) = 0;  // once, and waits for it; throws when it fails

  virtual std::string timer() const = 0;               // clock, events
  virtual std::string flush(Timing timing) const = 0;  // "none", "64 MiB written"
  // Warms the launch up and samples it. Throws Unavailable for a mode that the backend lacks.
  virtual std::unique_ptr<Sampler> sampler(Timing timing, const Launch& launch) = 0;
  // A pass of its own over the same launch: time by kernel, and of the span from the first one's
  // start to the last one's end. Empty where the backend cannot tell.
  // `stages` name the kernels.
  virtual KernelPass kernel_pass(Timing timing, const Launch& launch,
                                 const std::vector<Stage>& stages) = 0;
  // Clocks, power and throttling from one call to the other, where the backend knows them.
  virtual void begin_telemetry() {}
  virtual TelemetrySummary end_telemetry() { return {}; }
  // What an empty kernel takes by the backend's timer in a timing mode: the part of a time that is
  // not the kernel's.
  virtual double timer_offset_s(Timing timing) = 0;
  virtual nlohmann::json resources(const std::vector<Stage>& stages) = 0;
  // Profilers that wait for it record from the first call to the second.
  virtual void profiler_range(bool /*begins*/) {}
};

// Throws UserError when there is no such backend or device, with the reason.
std::unique_ptr<Backend> make_backend(const BackendOptions& options);

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options = {});

}  // namespace gdn
