// The GPU's inputs, oracle and timers against the CPU's and against what must hold. Everything here
// skips itself where there is no CUDA device.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>

#include "kernels/prepare/hash.hpp"
#include "src/cuda.hpp"
#include "src/surroundings.hpp"
#include "src/timer_cuda.hpp"
#include "src/timer_kernels.hpp"
#include "src/workbench.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

using test::HostCase;
using test::problem_of;

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    if (!test::has_gpu()) GTEST_SKIP() << "there is no CUDA device here";
    setenv("GDNBENCH_CASES", GDNBENCH_SOURCE_DIR "/cases", 1);
  }
};

// The inputs of a case on the device, and their hashes tensor by tensor.
struct DeviceInputs {
  std::vector<Memory> memory;
  std::vector<std::size_t> bytes;
  InputTensors tensors;

  explicit DeviceInputs(const Problem& p) {
    const std::size_t tokens = p.tokens();
    const std::size_t states = std::size_t{1} * p.sequences() * p.value_heads * 128 * 128;
    const auto take = [&](std::size_t size) {
      bytes.push_back(size);
      memory.push_back(test::gpu().allocate(size));
      return memory.back().get();
    };
    tensors.q = static_cast<BFloat16*>(take(tokens * p.query_heads * 256));
    tensors.k = static_cast<BFloat16*>(take(tokens * p.query_heads * 256));
    tensors.v = static_cast<BFloat16*>(take(tokens * p.value_heads * 256));
    tensors.raw_g = static_cast<float*>(take(tokens * p.value_heads * 4));
    tensors.beta = static_cast<float*>(take(tokens * p.value_heads * 4));
    if (p.initial_state) tensors.initial_state = static_cast<float*>(take(states * 4));
  }
};

void expect_same_bits(const Problem& problem, const Recipe& recipe) {
  DeviceInputs device(problem);
  test::gpu().generate(problem, recipe, device.tensors);
  HostCase host(problem, recipe);
  const std::vector<const void*> tensors = {host.q.data(),    host.k.data(),
                                            host.v.data(),    host.raw_g.data(),
                                            host.beta.data(), host.initial_state.data()};
  for (std::size_t i = 0; i < device.memory.size(); ++i)
    EXPECT_EQ(test::gpu().hash(device.memory[i].get(), device.bytes[i]),
              hash_bytes(tensors[i], device.bytes[i]))
        << name_of(recipe.gates) << ", tensor " << i;
}

TEST_F(Cuda, InputsHaveTheBitsOfTheCpu) {
  for (int gates = 0; gates < 7; ++gates)
    for (const int beta_max : {1, 2})
      expect_same_bits(problem_of({4096, 0, 77}, 2, 6, true),
                       {.gates = static_cast<Gates>(gates), .beta_max = beta_max, .seed = 7});
  for (const Case& c :
       select_cases({"short_tail_state", "chain_equal", "parallel_equal", "parallel_gva",
                     "long_low_gva", "batch_split_gva", "wide_gva_state", "deep_gva_state"},
                    {}, SIZE_MAX))
    expect_same_bits(c.problem, c.recipe);
}

TEST_F(Cuda, HashOfAnOddNumberOfBytes) {
  for (const std::size_t size : {1, 2, 3, 4, 5, 1023}) {
    std::vector<unsigned char> bytes(size);
    for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(17 * i + 3);
    const Memory device = test::gpu().allocate(size);
    test::gpu().copy_in(device.get(), bytes.data(), size);
    EXPECT_EQ(test::gpu().hash(device.get(), size), hash_bytes(bytes.data(), size)) << size;
  }
}

double relative_rms(const std::vector<double>& a, const std::vector<double>& b) {
  double error = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    error += (a[i] - b[i]) * (a[i] - b[i]);
    size += b[i] * b[i];
  }
  return std::sqrt(error / size);
}

TEST_F(Cuda, OracleAgreesWithTheCpuTo1e12) {
  for (int gates = 0; gates < 7; ++gates) {
    const Problem p = problem_of({700, 0, 64, 1}, 2, 4, true);
    HostCase c(p, {.gates = static_cast<Gates>(gates), .beta_max = 2});
    DeviceInputs device(p);
    test::gpu().generate(p, {.gates = static_cast<Gates>(gates), .beta_max = 2}, device.tensors);
    const Memory offsets = test::gpu().allocate(p.offsets.size() * 4);
    test::gpu().copy_in(offsets.get(), p.offsets.data(), p.offsets.size() * 4);
    const Tensors tensors = {.q = device.tensors.q,
                             .k = device.tensors.k,
                             .v = device.tensors.v,
                             .raw_g = device.tensors.raw_g,
                             .beta = device.tensors.beta,
                             .initial_state = device.tensors.initial_state,
                             .offsets = static_cast<const std::int32_t*>(offsets.get())};
    const std::size_t outputs = p.tokens() * p.value_heads * 128;
    const std::size_t states = std::size_t{1} * p.sequences() * p.value_heads * 128 * 128;
    std::vector<double> output(outputs), state(states), cpu_output(outputs), cpu_state(states);
    test::gpu().reference(p, tensors, output.data(), state.data());
    reference_on_cpu(p, c.tensors(), cpu_output.data(), cpu_state.data());
    EXPECT_LE(relative_rms(output, cpu_output), 1e-12) << name_of(static_cast<Gates>(gates));
    EXPECT_LE(relative_rms(state, cpu_state), 1e-12) << name_of(static_cast<Gates>(gates));
  }
}

// A fault seen elsewhere: whether the cache was warm is not in the row.
TEST_F(Cuda, EveryTimingModeMeasuresAndChecks) {
  const std::vector<Case> cases = select_cases({"short_tail_state"}, {}, SIZE_MAX);
  Workbench bench(test::gpu(), cases[0], nullptr);
  for (const Variant& variant : ladder()) {
    const auto instance = std::ranges::find_if(variant.instances, [&](const Instance& i) {
      return obstacle(variant, i, test::gpu().device()).empty();
    });
    if (variant.target != Target::cuda || instance == variant.instances.end()) continue;
    for (const Timing timing : {Timing::cold, Timing::hot, Timing::graph, Timing::lab})
      for (const Scope scope : {Scope::core, Scope::forward}) {
        if (scope == Scope::core && variant.scopes == std::vector{Scope::forward}) continue;
        const Row row = bench.measure({.variant = &variant,
                                       .instance = &*instance,
                                       .scope = scope,
                                       .timing = timing,
                                       .sampling = {.timeout_s = 0.3}});
        EXPECT_EQ(row.status, Status::passed) << row.variant << ": " << row.reason;
        ASSERT_TRUE(row.time_s);
        EXPECT_GT(row.time_s->median, 1e-6);
        EXPECT_LT(row.time_s->median, 1e-2);
        EXPECT_GT(row.host_s, 0);
        EXPECT_EQ(row.flush == "none", timing != Timing::cold);
        for (const auto& [stage, of] : row.resources.items())
          EXPECT_EQ(of["local_bytes"], 0) << stage << " uses local memory";
      }
  }
}

void launch_empty(Stream stream) { enqueue_empty(static_cast<cudaStream_t>(stream)); }

// A fault seen elsewhere: the flush of the cache is counted inside the timed window.
// A fault seen elsewhere: hot runs disturb cold ones.
// An empty kernel is far shorter than a flush: what is compared is whether there was one before
// each cold sample, also after hot ones, and on which side of the window.
TEST_F(Cuda, AFlushIsBeforeEachColdSampleAndNotInIt) {
  if (!profiler_in(surroundings_of_this_process()).empty())
    GTEST_SKIP() << "a sanitizer makes the kernel long";
  const std::unique_ptr<Sampler> hot = test::gpu().sampler(Timing::hot, launch_empty);
  const std::unique_ptr<Sampler> cold = test::gpu().sampler(Timing::cold, launch_empty);
  const std::size_t bytes = 4 * test::gpu().device().cache_bytes;
  const Memory room = test::gpu().allocate(bytes);
  const std::unique_ptr<Sampler> flush = test::gpu().sampler(Timing::hot, [&](Stream stream) {
    must(cudaMemsetAsync(room.get(), 0, bytes, static_cast<cudaStream_t>(stream)), "flush");
  });
  std::vector<double> hot_s, cold_s, flush_s;
  flush->take(flush_s);
  const double flush_time_s = *std::ranges::min_element(flush_s);
  for (int i = 0; i < 5; ++i) {
    hot->take(hot_s);
    const auto start = std::chrono::steady_clock::now();
    cold->take(cold_s);
    const std::chrono::duration<double> around = std::chrono::steady_clock::now() - start;
    EXPECT_GT(around.count(), 0.5 * queue_length * flush_time_s);
  }
  EXPECT_LT(*std::ranges::min_element(cold_s), 0.5 * flush_time_s);
}

// A fault seen elsewhere: settings of persisting lines leak from one kernel into the next.
TEST_F(Cuda, AnAccessPolicyEndsWithItsInstance) {
  const Memory room = test::gpu().allocate(1 << 20);
  cudaAccessPolicyWindow seen{};
  const auto look = [&](Stream stream) {
    cudaStreamAttrValue value{};
    must(cudaStreamGetAttribute(static_cast<cudaStream_t>(stream),
                                cudaStreamAttributeAccessPolicyWindow, &value),
         "cudaStreamGetAttribute");
    seen = value.accessPolicyWindow;
    launch_empty(stream);
  };
  const auto persist = [&](Stream stream) {
    cudaStreamAttrValue value{};
    value.accessPolicyWindow = {.base_ptr = room.get(),
                                .num_bytes = 1 << 20,
                                .hitRatio = 1,
                                .hitProp = cudaAccessPropertyPersisting,
                                .missProp = cudaAccessPropertyStreaming};
    must(cudaStreamSetAttribute(static_cast<cudaStream_t>(stream),
                                cudaStreamAttributeAccessPolicyWindow, &value),
         "cudaStreamSetAttribute");
    look(stream);
  };
  std::vector<double> samples;
  test::gpu().sampler(Timing::hot, persist)->take(samples);
  if (seen.num_bytes == 0) GTEST_SKIP() << "this device keeps no lines";
  test::gpu().sampler(Timing::hot, look)->take(samples);
  EXPECT_EQ(seen.num_bytes, 0U);
  test::gpu().sampler(Timing::hot, persist)->take(samples);
  EXPECT_NE(seen.num_bytes, 0U);
  test::gpu().kernel_pass(Timing::hot, look, {{.name = "look"}});
  if (test::gpu().fingerprint()["cupti"] == "") {
    EXPECT_EQ(seen.num_bytes, 0U);
  }
}

// A fault seen elsewhere: another kernel was timed than the one that is named.
TEST_F(Cuda, AKernelThatIsNoStageIsNamedAndFlagged) {
  const KernelPass pass = test::gpu().kernel_pass(Timing::hot, launch_empty, {{.name = "core"}});
  if (!pass.obstacle.empty()) GTEST_SKIP() << pass.obstacle;
  ASSERT_EQ(pass.kernels.size(), 1U);
  EXPECT_NE(pass.kernels[0].name.find("empty"), std::string::npos) << pass.kernels[0].name;
  EXPECT_EQ(pass.flags, std::vector<std::string>{"unknown_kernel"});
}

// The timer's gate by itself: under a sanitizer the tool goes without it, so that one meets the
// kernel only here.
class CudaGate : public Cuda {
 protected:
  // Whether it gave up. Nobody opens it later.
  static bool expires(bool open) {
    int* flags = nullptr;
    must(cudaHostAlloc(reinterpret_cast<void**>(&flags), 2 * sizeof(int), cudaHostAllocMapped),
         "cudaHostAlloc");
    const CudaHandle<int*, cudaFreeHost> owner(flags);
    flags[0] = open ? 1 : 0;
    flags[1] = 0;
    enqueue_gate(flags, flags + 1, nullptr);
    must(cudaGetLastError(), "gate");
    must(cudaDeviceSynchronize(), "gate");
    return flags[1] != 0;
  }
};

TEST_F(CudaGate, LetsThroughWhenOpen) { EXPECT_FALSE(expires(true)); }

TEST_F(CudaGate, GivesUpAfterASecond) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_TRUE(expires(false));
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited.count(), 0.9);
  EXPECT_LE(waited.count(), 20);  // a sanitizer is slow
}

}  // namespace
}  // namespace gdn
