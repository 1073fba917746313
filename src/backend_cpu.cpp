#include <fmt/format.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <span>
#include <vector>

#include "kernels/prepare/hash.hpp"
#include "src/backend.hpp"
#include "src/error.hpp"
#include "src/reference.hpp"
#include "src/statistics.hpp"
#include "src/threads.hpp"

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "CPU";
}

// Of one instance of the cache, as a core sees it: sysconf adds up those of a whole socket.
std::size_t last_level_cache() {
  std::size_t largest = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) +
                       "/size");
    std::size_t kibibytes = 0;
    if (file >> kibibytes) largest = std::max(largest, kibibytes << 10);  // "32768K"
  }
  if (largest == 0)
    largest = static_cast<std::size_t>(std::max(0L, sysconf(_SC_LEVEL3_CACHE_SIZE)));
  return largest == 0 ? 32 * mebibyte : std::min(largest, 128 * mebibyte);
}

class ClockSampler : public Sampler {
 public:
  // `flushed` is written before each sample; empty for none.
  ClockSampler(Launch launch, std::span<std::byte> flushed, int warm_ups, int batch)
      : launch_(std::move(launch)), flushed_(flushed), batch_(batch) {
    for (int i = 0; i < warm_ups; ++i) launch_(nullptr);
  }

  void take(std::vector<double>& samples_s) override {
    flush();
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < batch_; ++i) launch_(nullptr);
    last_s_ = std::chrono::duration<double>(Clock::now() - start).count() / batch_;
    samples_s.push_back(last_s_);
  }

  double host_s() const override { return last_s_; }  // a CPU launch has run when it returns

 private:
  // Every thread writes its part, so that private caches are flushed as well.
  void flush() {
    constexpr std::size_t slice = std::size_t{1} << 16;
    ++pattern_;
#pragma omp parallel for schedule(static)
    for (std::size_t at = 0; at < flushed_.size(); at += slice)
      std::memset(flushed_.data() + at, pattern_, std::min(slice, flushed_.size() - at));
  }

  Launch launch_;
  std::span<std::byte> flushed_;
  int batch_;
  unsigned char pattern_ = 0;
  double last_s_ = 0;
};

class CpuBackend : public Backend {
 public:
  explicit CpuBackend(const BackendOptions& options) : batch_(options.batch) {
    if (options.device != 0)
      throw UserError(
          fmt::format("--device {}: the CPU backend has one device, number 0; leave --device out",
                      options.device));
    if (options.timer == "cupti")
      throw UserError("--timer cupti: the CPU backend has only the clock; leave --timer out");
    require_threads();
    device_.target = Target::cpu;
    device_.name = processor_name();
    device_.processors = omp_get_max_threads();
    device_.memory_bytes = static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) *
                           static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    device_.cache_bytes = last_level_cache();
  }

  const Device& device() const override { return device_; }

  nlohmann::json fingerprint() const override {
    return {{"device",
             {{"target", "cpu"},
              {"name", device_.name},
              {"processors", device_.processors},
              {"memory_bytes", device_.memory_bytes},
              {"cache_bytes", device_.cache_bytes}}}};
  }

  Memory allocate(std::size_t bytes) override {
    void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (data == nullptr) throw std::bad_alloc();
    return {data, [](void* p) { std::free(p); }};
  }

  void fill_nan(void* to, std::size_t bytes) override { std::memset(to, 0xFF, bytes); }
  void clear(void* to, std::size_t stride, std::size_t bytes, std::size_t count) override {
    for (std::size_t i = 0; i < count; ++i)
      std::memset(static_cast<std::byte*>(to) + i * stride, 0, bytes);
  }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    std::memcpy(to, from, bytes);
  }

  std::uint64_t hash(const void* data, std::size_t bytes) override {
    return hash_bytes(data, bytes);
  }

  void generate(const Problem& problem, const Recipe& recipe, const InputTensors& to) override {
    generate_on_cpu(problem, recipe, to);
  }
  void reference(const Problem& problem, const Tensors& tensors, double* output,
                 double* state) override {
    reference_on_cpu(problem, tensors, output, state);
  }

  void run(const Launch& launch) override { launch(nullptr); }

  std::string timer() const override { return "clock"; }

  std::string flush(Timing timing) const override {
    if (timing != Timing::cold) return "none";
    return std::to_string(flush_bytes() / mebibyte) + " MiB written before each sample";
  }

  std::unique_ptr<Sampler> sampler(Timing timing, const Launch& launch) override {
    if (timing == Timing::cold && batch_ > 1) throw Unavailable(cold_batch_obstacle);
    switch (timing) {
      case Timing::graph:
        throw Unavailable("the CPU backend has no graphs to replay");
      case Timing::cold:
        flush_buffer_.resize(flush_bytes());
        return std::make_unique<ClockSampler>(launch, flush_buffer_, 1, batch_);
      case Timing::hot:
        return std::make_unique<ClockSampler>(launch, std::span<std::byte>{}, 1, batch_);
      case Timing::lab:
        return std::make_unique<ClockSampler>(launch, std::span<std::byte>{}, lab_warm_ups, batch_);
    }
    throw Unavailable("unknown timing mode");
  }

  KernelPass kernel_pass(Timing, const Launch&, const std::vector<Stage>&) override { return {}; }
  double timer_offset_s(Timing) override { return 0; }
  nlohmann::json resources(const std::vector<Stage>&) override { return nlohmann::json::object(); }

 private:
  std::size_t flush_bytes() const { return 2 * device_.cache_bytes; }

  int batch_;
  Device device_;
  std::vector<std::byte> flush_buffer_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const BackendOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace gdn
