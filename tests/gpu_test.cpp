// The GPU's inputs, oracle and timers against the CPU's and against what must hold. Everything here
// skips itself where there is no CUDA device.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "kernels/prepare/hash.hpp"
#include "src/cuda.hpp"
#include "src/timer_kernels.hpp"
#include "src/variant_select.hpp"
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
