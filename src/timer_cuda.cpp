#include "src/timer_cuda.hpp"

#include <algorithm>
#include <chrono>

#include "src/backend.hpp"
#include "src/statistics.hpp"
#include "src/timer_kernels.hpp"

namespace gdn {
namespace {

using Clock = std::chrono::steady_clock;

// A kernel at the head of the stream that waits for the host.
class Gate {
 public:
  explicit Gate(cudaStream_t stream) : stream_(stream) {
    must(cudaHostAlloc(reinterpret_cast<void**>(&flags_), 2 * sizeof(int), cudaHostAllocMapped),
         "cudaHostAlloc");
  }
  ~Gate() { cudaFreeHost(flags_); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  void close() {
    flags_[0] = flags_[1] = 0;
    enqueue_gate(flags_, flags_ + 1, stream_);
    must(cudaGetLastError(), "gate");
  }
  void open() { *const_cast<volatile int*>(flags_) = 1; }
  bool expired() const { return *const_cast<const volatile int*>(flags_ + 1) != 0; }

 private:
  cudaStream_t stream_;
  int* flags_ = nullptr;  // [open, expired], mapped
};

CudaGraphExec capture(const Launch& launch, cudaStream_t stream, int batch) {
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  cudaGraph_t raw = nullptr;
  try {
    for (int i = 0; i < batch; ++i) launch(stream);
  } catch (...) {
    cudaStreamEndCapture(stream, &raw);
    if (raw != nullptr) cudaGraphDestroy(raw);
    throw;
  }
  must(cudaStreamEndCapture(stream, &raw), "cudaStreamEndCapture");
  const CudaGraph graph(raw);
  cudaGraphExec_t executable = nullptr;
  must(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
  return CudaGraphExec(executable);
}

// The window of an access policy and the lines that it left persisting outlive a kernel and survive
// a flush. Where a device has no such thing, there is none to forget.
void forget_persisting(cudaStream_t stream) {
  const cudaStreamAttrValue none{};
  cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &none);
  cudaCtxResetPersistingL2Cache();
  cudaGetLastError();
}

class EventSampler : public Sampler {
 public:
  EventSampler(Timing timing, const Launch& launch, const DeviceTiming& device)
      : timing_(timing), launch_(launch), device_(device), gate_(device.stream) {
    forget_persisting(device.stream);
    if (timing == Timing::graph) graph_ = capture(launch, device.stream, device.batch);
    for (int i = 0; i < queue_length; ++i) {
      begin_.push_back(make_event());
      end_.push_back(make_event());
    }
    const int warm_ups = timing == Timing::lab ? lab_warm_ups : 2;
    for (int i = 0; i < warm_ups; ++i) enqueue_once();
    synchronise();
  }

  void take(std::vector<double>& samples_s) override {
    if (timing_ == Timing::lab) {
      take_one(0);
      synchronise();
      samples_s.push_back(elapsed_s(0));
      return;
    }
    for (int attempt = 0; attempt < 3; ++attempt) {
      if (device_.gated) gate_.close();
      for (int i = 0; i < queue_length; ++i) take_one(i);
      if (device_.gated) gate_.open();
      synchronise();
      if (!device_.gated || !gate_.expired()) break;  // else some began before all were queued
      if (attempt == 2) gate_expired_ = true;
    }
    for (int i = 0; i < queue_length; ++i) samples_s.push_back(elapsed_s(i));
  }

  std::vector<std::string> flags() const override {
    std::vector<std::string> all;
    if (gate_expired_) all.emplace_back("gate_expired");
    if (!device_.gated && timing_ != Timing::lab) all.emplace_back("not_queued");
    return all;
  }

  double host_s() const override { return host_samples_.empty() ? 0 : median(host_samples_); }

 private:
  void take_one(int i) {
    if (timing_ == Timing::cold)
      must(cudaMemsetAsync(device_.flush_data, 0, device_.flush_bytes, device_.stream), "flush");
    must(cudaEventRecord(begin_[i].get(), device_.stream), "cudaEventRecord");
    const Clock::time_point start = Clock::now();
    enqueue_once();
    const double host = std::chrono::duration<double>(Clock::now() - start).count();
    must(cudaEventRecord(end_[i].get(), device_.stream), "cudaEventRecord");
    if (host_samples_.size() < 1000) host_samples_.push_back(host / device_.batch);
  }

  void enqueue_once() {
    if (graph_) {
      must(cudaGraphLaunch(graph_.get(), device_.stream), "cudaGraphLaunch");
    } else {
      for (int i = 0; i < device_.batch; ++i) launch_(device_.stream);
    }
  }

  void synchronise() { must(cudaStreamSynchronize(device_.stream), "kernel"); }

  double elapsed_s(int i) {
    float ms = 0;
    must(cudaEventElapsedTime(&ms, begin_[i].get(), end_[i].get()), "cudaEventElapsedTime");
    return double{ms} * 1e-3 / device_.batch;
  }

  Timing timing_;
  Launch launch_;
  DeviceTiming device_;
  Gate gate_;
  bool gate_expired_ = false;
  CudaGraphExec graph_;
  std::vector<CudaEvent> begin_, end_;
  std::vector<double> host_samples_;
};

}  // namespace

std::unique_ptr<Sampler> make_event_sampler(Timing timing, const Launch& launch,
                                            const DeviceTiming& device) {
  return std::make_unique<EventSampler>(timing, launch, device);
}

std::function<void()> make_plain_queue(Timing timing, const Launch& launch,
                                       const DeviceTiming& device, int launches) {
  forget_persisting(device.stream);
  const std::shared_ptr<CudaGraphExec> graph =
      timing == Timing::graph ? std::make_shared<CudaGraphExec>(capture(launch, device.stream, 1))
                              : nullptr;
  const std::shared_ptr<Gate> gate =
      device.gated && timing != Timing::lab ? std::make_shared<Gate>(device.stream) : nullptr;
  const auto wait = [=] { must(cudaStreamSynchronize(device.stream), "kernel"); };
  return [=] {
    if (gate) gate->close();
    for (int i = 0; i < launches; ++i) {
      if (timing == Timing::cold)
        must(cudaMemsetAsync(device.flush_data, 0, device.flush_bytes, device.stream), "flush");
      if (graph)
        must(cudaGraphLaunch(graph->get(), device.stream), "cudaGraphLaunch");
      else
        launch(device.stream);
      if (timing == Timing::lab) wait();
    }
    if (gate) gate->open();
    wait();
  };
}

double measure_empty_kernel(Timing timing, const DeviceTiming& device) {
  DeviceTiming plain = device;
  plain.batch = 1;
  EventSampler sampler(
      timing, [](Stream stream) { enqueue_empty(static_cast<cudaStream_t>(stream)); }, plain);
  std::vector<double> samples;
  for (int i = 0; i < 10; ++i) sampler.take(samples);
  return median(samples);
}

}  // namespace gdn
