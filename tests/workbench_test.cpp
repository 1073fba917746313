// What a row says of how it was timed, over a backend whose timers say what a test wants.
#include "src/workbench.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "kernels/cpu/cpu.hpp"
#include "tests/support.hpp"

namespace gdn {
namespace {

// The CPU's backend with the timers of another device.
class OtherTimers : public Backend {
 public:
  double sample_s = 100e-6;  // of each sample
  KernelPass pass;
  std::vector<Stage> stages;       // that it last looked for
  std::vector<std::string> flags;  // of its samplers
  bool throttled = false;

  const Device& device() const override { return cpu_->device(); }
  nlohmann::json fingerprint() const override { return cpu_->fingerprint(); }
  Memory allocate(std::size_t bytes) override { return cpu_->allocate(bytes); }
  void fill_nan(void* to, std::size_t bytes) override { cpu_->fill_nan(to, bytes); }
  void clear(void* to, std::size_t stride, std::size_t bytes, std::size_t count) override {
    cpu_->clear(to, stride, bytes, count);
  }
  void copy_in(void* to, const void* from, std::size_t bytes) override {
    cpu_->copy_in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, std::size_t bytes) override {
    cpu_->copy_out(to, from, bytes);
  }
  std::uint64_t hash(const void* data, std::size_t bytes) override {
    return cpu_->hash(data, bytes);
  }
  void generate(const Problem& problem, const Recipe& recipe, const InputTensors& to) override {
    cpu_->generate(problem, recipe, to);
  }
  void reference(const Problem& problem, const Tensors& tensors, double* output,
                 double* state) override {
    cpu_->reference(problem, tensors, output, state);
  }
  void run(const Launch& launch) override { cpu_->run(launch); }
  std::string timer() const override { return "events"; }
  std::string flush(Timing timing) const override { return cpu_->flush(timing); }
  std::unique_ptr<Sampler> sampler(Timing, const Launch& launch) override {
    return std::make_unique<Fixed>(launch, *this);
  }
  KernelPass kernel_pass(Timing, const Launch&, const std::vector<Stage>& of) override {
    stages = of;
    return pass;
  }
  double timer_offset_s(Timing) override { return pass.offset_s; }
  void begin_telemetry() override { ++watching_; }
  TelemetrySummary end_telemetry() override {
    EXPECT_EQ(--watching_, 0);
    return {.throttled = throttled};
  }
  nlohmann::json resources(const std::vector<Stage>& stages) override {
    return cpu_->resources(stages);
  }

 private:
  class Fixed : public Sampler {
   public:
    Fixed(Launch launch, const OtherTimers& backend)
        : launch_(std::move(launch)), backend_(backend) {}
    void take(std::vector<double>& samples_s) override {
      launch_(nullptr);
      samples_s.push_back(backend_.sample_s);
    }
    double host_s() const override { return backend_.sample_s; }
    std::vector<std::string> flags() const override { return backend_.flags; }

   private:
    Launch launch_;
    const OtherTimers& backend_;
  };

  std::unique_ptr<Backend> cpu_ = make_cpu_backend();
  int watching_ = 0;
};

Row measured(OtherTimers& backend, Timing timing = Timing::hot) {
  const Variant variant = cpu::chunked();
  Case c;
  c.problem = test::problem_of({3}, 1, 1, false);
  Workbench bench(backend, c, nullptr);
  return bench.measure(
      {.variant = &variant, .instance = &variant.instances.front(), .timing = timing});
}

bool flagged(const Row& row, const std::string& flag) {
  return std::ranges::find(row.flags, flag) != row.flags.end();
}

// A fault seen elsewhere: the time between two events stands for the kernel's.
TEST(Workbench, TimersThatDisagreeAreFlagged) {
  OtherTimers backend;
  const auto disagree = [&](double span_us, double offset_us, Timing timing = Timing::hot) {
    backend.pass.span_s = span_us * 1e-6;
    backend.pass.offset_s = offset_us * 1e-6;
    const Row row = measured(backend, timing);
    EXPECT_EQ(row.status, Status::passed) << row.reason;
    EXPECT_EQ(row.telemetry["cupti_span_s"], span_us * 1e-6);
    return flagged(row, "timers_disagree");
  };
  // 100 µs by events; 1.5 µs is what 1 % and the events' resolution explain.
  EXPECT_FALSE(disagree(100, 0));
  EXPECT_FALSE(disagree(91, 9));  // the empty kernel's part is known
  EXPECT_FALSE(disagree(92, 9));
  EXPECT_TRUE(disagree(91, 0));
  EXPECT_TRUE(disagree(15, 9));
  EXPECT_TRUE(disagree(110, 0));
  EXPECT_FALSE(disagree(15, 9, Timing::lab));  // the launch is meant to be inside
}

// A fault seen elsewhere: no CUPTI records, and events take their place in silence.
TEST(Workbench, ARowWithoutKernelTimesSaysWhy) {
  OtherTimers backend;
  for (const char* flag : {"events_only", "cupti_failed"}) {
    backend.pass = {.obstacle = "CUPTI is held by another tool", .flags = {flag}};
    const Row row = measured(backend);
    EXPECT_EQ(row.status, Status::passed) << row.reason;
    EXPECT_EQ(row.timer, "events");
    EXPECT_TRUE(flagged(row, flag));
    EXPECT_EQ(row.telemetry["cupti"], "CUPTI is held by another tool");
    EXPECT_FALSE(row.telemetry.contains("cupti_span_s"));
    EXPECT_TRUE(row.kernels.empty());
  }
}

// A fault seen elsewhere: another kernel was timed than the one that is named.
TEST(Workbench, ARowNamesTheKernelsThatRan) {
  OtherTimers backend;
  backend.pass = {
      .kernels = {{"a_library's own", 98e-6}}, .span_s = 100e-6, .flags = {"unknown_kernel"}};
  const Row row = measured(backend);
  ASSERT_EQ(row.kernels.size(), 1U);
  EXPECT_EQ(row.kernels[0].name, "a_library's own");
  EXPECT_TRUE(flagged(row, "unknown_kernel"));
}

// A search looks at its stands time and again before it closes them.
TEST(Workbench, EachLookAtAStandTellsItsFlags) {
  OtherTimers backend;
  const Variant variant = cpu::chunked();
  Case c;
  c.problem = test::problem_of({3}, 1, 1, false);
  Workbench bench(backend, c, nullptr);
  const MeasureRequest request{
      .variant = &variant, .instance = &variant.instances.front(), .timing = Timing::hot};
  const int first = bench.open(request).number.value();
  const int second = bench.open(request).number.value();
  const auto look = [&](int stand) {
    bench.take(stand);
    return bench.settle(stand, false).flags;
  };
  using Flags = std::vector<std::string>;
  EXPECT_EQ(look(first), Flags{});
  backend.flags = {"gate_expired"};
  backend.throttled = true;
  EXPECT_EQ(look(first), (Flags{"gate_expired", "throttled"}));
  backend.throttled = false;
  EXPECT_EQ(look(second), Flags{"gate_expired"});
  backend.throttled = true;
  EXPECT_EQ(bench.settle(second, true).flags, Flags{"gate_expired"});  // the other one stands yet
  EXPECT_EQ(bench.settle(first, true).flags, (Flags{"gate_expired", "throttled"}));
}

// Who prepares finds of A what is 0 beforehand (variant.hpp), and nothing else.
TEST(Workbench, OfAOnlyTheQuadrantAboveTheDiagonalIsThereBeforehand) {
  int looks = 0;
  Variant variant{.name = "looks", .idea = "", .target = Target::cpu, .scopes = {Scope::forward}};
  variant.instances = {{.setup = [&](const Problem& problem, const Tensors& x, void*) {
    return [&looks, problem, x](Stream) {
      ++looks;
      const int heads = problem.value_heads;
      for (const Chunk& chunk : problem.chunks())
        for (int i = 0; i < chunk.length * heads * chunk_tokens; ++i) {
          const int row = i / chunk_tokens / heads, column = i % chunk_tokens;
          const bool is_zero = row < 32 && column >= 32;
          ASSERT_EQ(x.A[chunk.token * heads * chunk_tokens + i].bits, is_zero ? 0 : 0xFFFF)
              << "token " << chunk.token + row << ", column " << column;
        }
    };
  }}};
  OtherTimers backend;
  Case c;
  c.problem = test::problem_of({70, 0, 40, 128, 3}, 1, 2, false);
  Workbench bench(backend, c, nullptr);
  bench.measure(
      {.variant = &variant, .instance = &variant.instances.front(), .scope = Scope::forward});
  EXPECT_GT(looks, 0);
}

// Whoever takes a folded A is told that it gets one, where the tool prepares for it alone.
TEST(Workbench, AIsFoldedInTheForwardOfWhoTakesItSo) {
  bool told = false;
  Instance instance = cpu::chunked().instances.front();
  instance.stages = {{.name = "as it is"}};
  instance.folded_stages = {{.name = "folded"}};
  instance.setup = [&, own = instance.setup](const Problem& problem, Tensors x, void* room) {
    told = x.folded;
    x.folded = false;  // which the CPU's preparation does not know
    return own(problem, x, room);
  };
  Variant variant = cpu::chunked();
  variant.instances = {instance};
  OtherTimers backend;
  Case c;
  c.problem = test::problem_of({70}, 1, 1, false);
  Workbench bench(backend, c, nullptr);
  for (const Scope scope : {Scope::core, Scope::forward, Scope::core}) {
    const bool folds = scope == Scope::forward;
    const Row row = bench.measure({.variant = &variant, .instance = &instance, .scope = scope});
    EXPECT_EQ(row.status, Status::passed) << row.reason;
    EXPECT_EQ(told, folds);
    ASSERT_FALSE(backend.stages.empty());
    EXPECT_EQ(backend.stages.back().name, folds ? "folded" : "as it is");
  }
}

// A fault seen elsewhere: the flush of the cache is counted inside the timed window.
// A fault seen elsewhere: hot runs disturb cold ones.
// The launch does nothing and the flush writes megabytes, which is thousands of times longer: what
// is compared is whether it took place, and on which side of the window.
TEST(CpuTimer, AFlushIsBeforeEachColdSampleAndNotInIt) {
  const std::unique_ptr<Backend> backend = make_cpu_backend();
  int launches = 0;
  const Launch nothing = [&](Stream) { ++launches; };
  const std::unique_ptr<Sampler> hot = backend->sampler(Timing::hot, nothing);
  const std::unique_ptr<Sampler> cold = backend->sampler(Timing::cold, nothing);
  launches = 0;
  std::vector<double> hot_s, cold_s, around_cold_s;
  constexpr int times = 20;
  for (int i = 0; i < times; ++i) {
    hot->take(hot_s);
    const auto start = std::chrono::steady_clock::now();
    cold->take(cold_s);
    around_cold_s.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  EXPECT_EQ(launches, 2 * times);
  EXPECT_EQ(hot_s.size(), std::size_t{times});
  EXPECT_EQ(cold_s.size(), std::size_t{times});
  const double window = *std::ranges::min_element(cold_s);
  for (const double around : around_cold_s) EXPECT_LT(10 * window, around);
}

}  // namespace
}  // namespace gdn
