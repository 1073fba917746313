#include "src/backend_cuda.hpp"

#include <cuda_profiler_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "kernels/prepare/hash.hpp"
#include "kernels/prepare/oracle.hpp"
#include "src/cuda.hpp"
#include "src/error.hpp"
#include "src/profile.hpp"
#include "src/surroundings.hpp"
#include "src/timer_cuda.hpp"
#include "src/timer_kernels.hpp"

namespace gdn {
namespace {

constexpr int kernel_pass_queues = 3;  // of queue_length launches
constexpr std::size_t mebibyte = std::size_t{1} << 20;

std::string version_text_of(int version) {  // 13000 -> "13.0"
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

class CudaBackend : public Backend {
 public:
  explicit CudaBackend(const BackendOptions& options) : options_(options) {
    must(cudaInitDevice(options.device, schedule_flag(options.schedule),
                        cudaInitDeviceFlagsAreValid),
         "cudaInitDevice");
    must(cudaSetDevice(options.device), "cudaSetDevice");
    must(cudaGetDeviceProperties(&properties_, options.device), "cudaGetDeviceProperties");
    device_ = {.target = Target::cuda,
               .name = properties_.name,
               .processors = properties_.multiProcessorCount,
               .capability = 10 * properties_.major + properties_.minor,
               .memory_bytes = properties_.totalGlobalMem,
               .shared_bytes_per_block = properties_.sharedMemPerBlockOptin,
               .cache_bytes = static_cast<std::size_t>(properties_.l2CacheSize)};
    cudaStream_t stream = nullptr;
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    stream_.reset(stream);
    char bus_id[32] = {};
    must(cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, options.device), "cudaDeviceGetPCIBusId");
    telemetry_ = std::make_unique<Telemetry>(bus_id);
    profiler_ = profiler_in(surroundings_of_this_process());
    if (options.timer != "events") cupti_ = cupti_state();
    if (options.timer == "cupti" && !cupti_.usable)
      throw UserError(
          fmt::format("--timer cupti: {}; mend that, or leave --timer out", cupti_.obstacle));
    flush_ = allocate(flush_bytes());
    hash_sum_ = allocate(sizeof(unsigned long long));
  }

  const Device& device() const override { return device_; }

  nlohmann::json fingerprint() const override {
    int driver = 0;
    int runtime = 0;
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    nlohmann::json all = telemetry_->facts();  // driver, clocks, MIG, … where NVML is
    all["device"] = {{"target", "cuda"},
                     {"name", device_.name},
                     {"processors", device_.processors},
                     {"capability", fmt::format("{}.{}", properties_.major, properties_.minor)},
                     {"memory_bytes", device_.memory_bytes},
                     {"cache_bytes", device_.cache_bytes},
                     {"ecc", properties_.ECCEnabled != 0}};
    all["driver_cuda"] = version_text_of(driver);
    all["cuda"] = version_text_of(runtime);
    all["cupti"] = cupti_obstacle();
    return all;
  }

  Memory allocate(std::size_t bytes) override {
    void* data = nullptr;
    must(cudaMalloc(&data, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
    return {data, [](void* p) { cudaFree(p); }};
  }

  void fill_nan(void* to, std::size_t bytes) override {
    must(cudaMemsetAsync(to, 0xFF, bytes, stream_.get()), "cudaMemset");
    wait();
  }
  void clear(void* to, std::size_t stride, std::size_t bytes, std::size_t count) override {
    must(cudaMemset2DAsync(to, stride, 0, bytes, count, stream_.get()), "cudaMemset2D");
  }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyHostToDevice);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    copy(to, from, bytes, cudaMemcpyDeviceToHost);
  }

  std::uint64_t hash(const void* data, std::size_t bytes) override {
    auto* sum = static_cast<unsigned long long*>(hash_sum_.get());
    must(cudaMemsetAsync(sum, 0, sizeof *sum, stream_.get()), "hash");
    enqueue_hash(data, bytes, sum, stream_.get());
    wait();
    unsigned long long result = 0;
    copy_out(&result, sum, sizeof result);
    return result;
  }

  void generate(const Problem& problem, const Recipe& recipe, const InputTensors& to) override {
    Memory offsets = allocate(problem.offsets.size() * sizeof(std::int32_t));
    copy_in(offsets.get(), problem.offsets.data(), problem.offsets.size() * sizeof(std::int32_t));
    enqueue_generation(problem, recipe, to, static_cast<const std::int32_t*>(offsets.get()),
                       stream_.get());
    wait();
  }

  void reference(const Problem& problem, const Tensors& tensors, double* output,
                 double* state) override {
    const std::size_t outputs = problem.tokens() * problem.value_heads * head_dim * sizeof(double);
    const std::size_t states = std::size_t{1} * problem.sequences() * problem.value_heads *
                               head_dim * head_dim * sizeof(double);
    const Memory device_output = allocate(outputs);
    const Memory device_state = allocate(states);
    enqueue_oracle(problem, tensors, static_cast<double*>(device_output.get()),
                   static_cast<double*>(device_state.get()), stream_.get());
    wait();
    copy_out(output, device_output.get(), outputs);
    copy_out(state, device_state.get(), states);
  }

  void run(const Launch& launch) override {
    launch(stream_.get());
    wait();
  }

  std::string timer() const override { return options_.timer == "cupti" ? "cupti" : "events"; }

  std::string flush(Timing timing) const override {
    if (timing != Timing::cold) return "none";
    return fmt::format("{} MiB written before each sample", flush_bytes() / mebibyte);
  }

  std::unique_ptr<Sampler> sampler(Timing timing, const Launch& launch) override {
    if (timing == Timing::cold && options_.batch > 1) throw Unavailable(cold_batch_obstacle);
    if (options_.timer == "cupti")
      return std::make_unique<CuptiSampler>(timing, launch, device_timing());
    return make_event_sampler(timing, launch, device_timing());
  }

  KernelPass kernel_pass(Timing timing, const Launch& launch,
                         const std::vector<Stage>& stages) override {
    KernelPass pass;
    pass.obstacle = cupti_obstacle();
    if (!pass.obstacle.empty()) {
      pass.flags.emplace_back("events_only");
      return pass;
    }
    try {
      const ActivityTimes times =
          times_of(ActivityRuns(timing, launch, device_timing()).take(kernel_pass_queues));
      pass.span_s = times.span_s;
      pass.offset_s = timer_offset_s(timing) - cupti_empty_kernel(timing);
      pass.kernels = times.kernels;
      name_kernels(pass, stages);
    } catch (const ActivityError& e) {
      pass.obstacle = e.what();
      pass.flags.emplace_back("cupti_failed");
    }
    return pass;
  }

  void begin_telemetry() override { telemetry_->start(); }
  TelemetrySummary end_telemetry() override { return telemetry_->stop(); }

  void profiler_range(bool begins) override {
    must(begins ? cudaProfilerStart() : cudaProfilerStop(), "profiler range");
  }

  double timer_offset_s(Timing timing) override {
    std::optional<double>& known = empty_kernel_s_.in(timing);
    if (!known) known = measure_empty_kernel(empty_timing(timing), device_timing());
    return *known;
  }

  nlohmann::json resources(const std::vector<Stage>& stages) override {
    nlohmann::json all = nlohmann::json::object();
    for (const Stage& stage : stages) {
      if (stage.entry == nullptr) continue;
      cudaFuncAttributes attributes{};
      must(cudaFuncGetAttributes(&attributes, stage.entry), stage.name.c_str());
      must(cudaFuncSetAttribute(stage.entry, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                stage.shared_bytes),
           stage.name.c_str());
      int blocks = 0;
      must(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, stage.entry, stage.threads,
                                                         stage.shared_bytes),
           stage.name.c_str());
      all[stage.name] = {{"registers", attributes.numRegs},
                         {"threads", stage.threads},
                         {"shared_bytes", attributes.sharedSizeBytes + stage.shared_bytes},
                         {"local_bytes", attributes.localSizeBytes},
                         {"blocks_per_processor", blocks},
                         {"occupancy", static_cast<double>(blocks) * stage.threads /
                                           properties_.maxThreadsPerMultiProcessor}};
    }
    return all;
  }

 private:
  // What an empty kernel takes, once measured. After a flush it begins later: its code comes first.
  struct EmptyKernel {
    std::optional<double> cold, warm;
    std::optional<double>& in(Timing timing) { return timing == Timing::cold ? cold : warm; }
  };
  static Timing empty_timing(Timing timing) {
    return timing == Timing::cold ? Timing::cold : Timing::hot;
  }

  // Launches queued as for the timed pass, seen by CUPTI, which is attached as long as this lives.
  class ActivityRuns {
   public:
    ActivityRuns(Timing timing, const Launch& launch, const DeviceTiming& device)
        : queue_(make_plain_queue(timing, launch, device, queue_length)) {
      queue_();  // warm-up
      pass_.record(queue_);
    }

    // What the device did, launch by launch; without the flushes and the gate.
    std::vector<std::vector<Activity>> take(int queues) {
      std::vector<std::vector<Activity>> runs;
      for (int i = 0; i < queues; ++i) {
        std::vector<Activity> all = pass_.record(queue_, queue_length);
        std::erase_if(all, [](const Activity& a) {
          return a.kind != Activity::Kind::kernel || a.name.find(gate_name) != std::string::npos;
        });
        std::ranges::move(runs_of(all, queue_length), std::back_inserter(runs));
      }
      return runs;
    }

   private:
    std::function<void()> queue_;
    ActivityPass pass_;
  };

  // The headline from CUPTI: the span of a launch's kernels.
  class CuptiSampler : public Sampler {
   public:
    CuptiSampler(Timing timing, const Launch& launch, const DeviceTiming& device)
        : runs_(timing, launch, device) {}
    void take(std::vector<double>& samples_s) override {
      for (const std::vector<Activity>& run : runs_.take(1))
        samples_s.push_back(times_of({run}).span_s);
    }
    double host_s() const override { return 0; }

   private:
    ActivityRuns runs_;
  };

  // "" when CUPTI may be used.
  std::string cupti_obstacle() const {
    if (options_.timer == "events") return "not asked for (--timer events)";
    return cupti_.usable ? "" : cupti_.obstacle;
  }

  // Stage names for the kernels that are stages; one that is none is flagged and keeps its own.
  static void name_kernels(KernelPass& pass, const std::vector<Stage>& stages) {
    for (KernelTime& kernel : pass.kernels) {
      const auto is_it = [&](const Stage& stage) {
        const char* symbol = nullptr;
        return stage.entry != nullptr && cudaFuncGetName(&symbol, stage.entry) == cudaSuccess &&
               demangled(symbol) == kernel.name;
      };
      if (const auto stage = std::ranges::find_if(stages, is_it); stage != stages.end())
        kernel.name = stage->name;
      else if (std::ranges::find(pass.flags, "unknown_kernel") == pass.flags.end())
        pass.flags.emplace_back("unknown_kernel");
    }
  }

  double cupti_empty_kernel(Timing timing) {
    std::optional<double>& known = cupti_empty_kernel_s_.in(timing);
    if (!known) {
      const auto empty = [](Stream stream) { enqueue_empty(static_cast<cudaStream_t>(stream)); };
      known =
          times_of(
              ActivityRuns(empty_timing(timing), empty, device_timing()).take(kernel_pass_queues))
              .span_s;
    }
    return *known;
  }

  static unsigned schedule_flag(const std::string& schedule) {
    if (schedule == "spin") return cudaDeviceScheduleSpin;
    if (schedule == "yield") return cudaDeviceScheduleYield;
    if (schedule == "blocking") return cudaDeviceScheduleBlockingSync;
    return cudaDeviceScheduleAuto;
  }

  // In stream order: a plain cudaMemcpy may return before its last bytes have arrived.
  void copy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    must(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()), "copy");
    wait();
  }

  void wait() { must(cudaStreamSynchronize(stream_.get()), "kernel"); }

  std::size_t flush_bytes() const { return std::max(4 * device_.cache_bytes, 64 * mebibyte); }

  DeviceTiming device_timing() const {
    return {.stream = stream_.get(),
            .flush_data = flush_.get(),
            .flush_bytes = flush_bytes(),
            .gated = launches_queue(),
            .batch = options_.batch};
  }

  // Under a profiler or CUDA_LAUNCH_BLOCKING, a launch may return only when the kernel has run: a
  // gate would never open.
  bool launches_queue() const {
    if (!profiler_.empty()) return false;
    const char* blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
    return blocking == nullptr || blocking[0] == '0' || blocking[0] == '\0';
  }

  BackendOptions options_;
  cudaDeviceProp properties_{};
  Device device_;
  CudaStream stream_;
  Memory flush_;
  Memory hash_sum_;
  EmptyKernel empty_kernel_s_, cupti_empty_kernel_s_;
  std::unique_ptr<Telemetry> telemetry_;
  std::string profiler_;  // what runs this process, or ""
  CuptiState cupti_;
};

}  // namespace

std::string cuda_obstacle(int device) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    cudaDriverGetVersion(&driver);
    if (driver == 0)
      return "there is no NVIDIA driver on this machine: install one (nvidia-smi shows it)";
    return fmt::format("the driver supports CUDA {} and this build needs {}: update the driver",
                       version_text_of(driver), version_text_of(CUDART_VERSION));
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return "there is no CUDA device: check nvidia-smi, CUDA_VISIBLE_DEVICES and the container's "
           "access to the GPU";
  if (status != cudaSuccess)
    return fmt::format("CUDA: {}; check nvidia-smi", cudaGetErrorString(status));
  if (device >= count)
    return fmt::format("there is no device {}: {} device{}, counted from 0; give one of these",
                       device, count, count == 1 ? "" : "s");
  return "";
}

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options) {
  return std::make_unique<CudaBackend>(options);
}

}  // namespace gdn
