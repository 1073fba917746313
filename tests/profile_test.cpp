#include "src/profile.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "src/profiler_commands.hpp"
#include "src/surroundings.hpp"
#include "src/trace.hpp"
#include "tests/fake_cupti.hpp"

namespace gdn {
namespace {

using test::FakeActivity;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
#define EXPECT_HAS(text, part) EXPECT_TRUE(has(text, part)) << "\"" << part << "\" in:\n" << text

Activity kernel(const char* name, std::uint64_t start_us, std::uint64_t end_us) {
  return {.name = name, .start_ns = start_us * 1000, .end_ns = end_us * 1000};
}

// --- Surroundings

TEST(Surroundings, NothingStandsAroundAnOrdinaryProcess) {
  EXPECT_EQ(profiler_in({.environment = {"HOME=/root", "NSYS_HOME=/opt/nsys",
                                         "LD_PRELOAD=", "LD_PRELOAD_X=libToolsInjection64.so"},
                         .maps = "7f00-7f01 r-xp 0 0:0 1  /usr/lib/libcuda.so.1\n",
                         .ancestors = {"bash", "tmux: server", "nsys-ui"}}),
            "");
}

TEST(Surroundings, ToolsByWhatTheySet) {
  const auto under = [](const std::string& variable) {
    return profiler_in({.environment = {"HOME=/root", variable}});
  };
  EXPECT_EQ(under("NSYS_PROFILING_SESSION_ID=4711"), "nsys (NSYS_PROFILING_SESSION_ID is set)");
  EXPECT_HAS(under("NV_COMPUTE_PROFILER_PERFWORKS_DIR=/opt/ncu"), "ncu (");
  EXPECT_HAS(under("NV_NSIGHT_INJECTION_PORT_BASE=49152"), "ncu (");
  EXPECT_HAS(under("NV_SANITIZER_INJECTION_PORT_RANGE_BEGIN=49152"), "compute-sanitizer (");
  EXPECT_HAS(under("CUDA_INJECTION64_PATH=/opt/nsys/libToolsInjection64.so"), "nsys (");
  EXPECT_HAS(under("CUDA_INJECTION64_PATH=/home/me/libmy_tracer.so"), "libmy_tracer.so (");
  EXPECT_HAS(under("LD_PRELOAD=/lib/libjemalloc.so:/opt/ncu/libTreeLauncherTargetInjection.so"),
             "ncu or compute-sanitizer (");
  EXPECT_EQ(under("LD_PRELOAD=/lib/libjemalloc.so"), "");
  EXPECT_EQ(under("NVTX_INJECTION64_PATH=/home/me/libmy_nvtx.so"), "");
}

TEST(Surroundings, ToolsByTheirLibrariesAndPrograms) {
  EXPECT_EQ(profiler_in({.maps = "7f00-7f01 r--p 00000000 fe:01 12  /usr/lib/libc.so.6\n"
                                 "7f02-7f03 r-xp 00000000 fe:01 13  "
                                 "/opt/sanitizer/libsanitizer-collection.so\n"}),
            "compute-sanitizer (libsanitizer-collection.so is loaded)");
  EXPECT_EQ(profiler_in({.ancestors = {"sh", "nsys-launcher"}}), "nsys (it started this process)");
  EXPECT_EQ(profiler_in({.ancestors = {"compute-sanitiz"}}),
            "compute-sanitizer (it started this process)");
}

TEST(Surroundings, HolderIsNamedAsFarAsKnown) {
  EXPECT_EQ(cupti_holder_in({}), "");
  EXPECT_HAS(cupti_holder_in({.environment = {"LD_PRELOAD=/opt/tool/libtool.so"}}),
             "probably /opt/tool/libtool.so");
  EXPECT_HAS(cupti_holder_in({.environment = {"NSYS_SESSION_TEMP_DIR=/tmp"}}), "nsys");
}

TEST(Surroundings, OfThisProcess) {
  const Surroundings around = surroundings_of_this_process();
  EXPECT_FALSE(around.environment.empty());
  EXPECT_HAS(around.maps, "libc");
  EXPECT_FALSE(process_name(1).empty());
  EXPECT_EQ(process_name(0), "");
}

// --- Times of records

TEST(ActivityTimes, MediansByNameInOrderOfStart) {
  const ActivityTimes times =
      times_of({{kernel("b", 0, 10), kernel("a", 12, 20), kernel("b", 21, 25)},
                {kernel("b", 100, 111), kernel("a", 113, 119), kernel("b", 120, 126)},
                {kernel("b", 200, 215), kernel("a", 216, 225), kernel("b", 226, 230)}});
  ASSERT_EQ(times.kernels.size(), 2u);
  EXPECT_EQ(times.kernels[0].name, "b");
  EXPECT_DOUBLE_EQ(times.kernels[0].time_s, 17e-6);  // of 14, 17, 19
  EXPECT_EQ(times.kernels[1].name, "a");
  EXPECT_DOUBLE_EQ(times.kernels[1].time_s, 8e-6);  // of 8, 6, 9
  EXPECT_DOUBLE_EQ(times.span_s, 26e-6);            // of 25, 26, 30
}

TEST(ActivityTimes, SpanOfKernelsThatOverlap) {
  EXPECT_DOUBLE_EQ(times_of({{kernel("a", 0, 50), kernel("b", 10, 20)}}).span_s, 50e-6);
}

// A fault seen elsewhere: another kernel was timed than the one that is named.
TEST(ActivityTimes, RunsThatDifferAreAnError) {
  EXPECT_THROW(times_of({}), ActivityError);
  EXPECT_THROW(times_of({{}}), ActivityError);
  EXPECT_THROW(times_of({{kernel("a", 0, 1), kernel("b", 1, 2)}, {kernel("a", 3, 4)}}),
               ActivityError);
  EXPECT_THROW(times_of({{kernel("a", 0, 1)}, {kernel("b", 3, 4)}}), ActivityError);
}

TEST(ActivityTimes, LaunchesAreToldByTheirKernels) {
  const std::vector<Activity> kernels = {kernel("a", 0, 2), kernel("b", 1, 9), kernel("a", 10, 12),
                                         kernel("b", 12, 18)};
  const auto runs = runs_of(kernels, 2);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_DOUBLE_EQ(times_of(runs).span_s, 8.5e-6);  // of 9, 8
  EXPECT_EQ(runs_of(kernels, 1).size(), 1u);
  EXPECT_THROW(runs_of(kernels, 3), ActivityError);
  EXPECT_THROW(runs_of({}, 2), ActivityError);
}

// A fault seen elsewhere: another kernel was timed than the one that is named.
// Their number may be right: here each of three launches of a, b and c has lost another record.
TEST(ActivityTimes, LaunchesThatRanOtherKernelsAreAnError) {
  EXPECT_THROW(runs_of({kernel("a", 0, 1), kernel("c", 2, 3), kernel("a", 4, 5), kernel("b", 6, 7),
                        kernel("b", 8, 9), kernel("c", 9, 10)},
                       3),
               ActivityError);
  EXPECT_THROW(runs_of({kernel("a", 0, 1), kernel("b", 2, 3)}, 2), ActivityError);
}

TEST(Demangled, SymbolsAndWhatIsNone) {
  EXPECT_EQ(demangled("_ZN3gdn5entryIiEEvv"), "void gdn::entry<int>()");
  EXPECT_EQ(demangled("plain"), "plain");
  EXPECT_EQ(demangled("a"), "a");
}

// --- The pass itself, over a stand-in for CUPTI

#ifdef GDNBENCH_WITH_CUDA

class FakeLibrary : public ::testing::Test {
 protected:
  FakeLibrary() {
    setenv("GDNBENCH_CUPTI", GDNBENCH_FAKE_CUPTI, 1);
    void* const library = dlopen(GDNBENCH_FAKE_CUPTI, RTLD_NOW);
    if (library != nullptr) fake = static_cast<test::FakeCupti*>(dlsym(library, "fake_cupti"));
    *fake = {};
    if (const std::string tool = profiler_in(surroundings_of_this_process()); !tool.empty())
      skipped = "under " + tool;
  }
  void SetUp() override {
    if (!skipped.empty()) GTEST_SKIP() << skipped;
  }
  ~FakeLibrary() override {
    unsetenv("GDNBENCH_CUPTI");
    EXPECT_FALSE(fake->subscribed);
    EXPECT_EQ(fake->enabled, 0);
  }
  std::string error_of(const std::vector<FakeActivity>& activities, std::size_t expected,
                       std::size_t dropped = 0) {
    ActivityPass pass;
    try {
      pass.record(
          [&] {
            fake->pending = activities;
            fake->dropped = dropped;
          },
          expected);
    } catch (const ActivityError& e) {
      return e.what();
    }
    return "";
  }
  test::FakeCupti* fake = nullptr;
  std::string skipped;
};

TEST_F(FakeLibrary, IsUsableAndLeftDetached) {
  const CuptiState state = cupti_state();
  EXPECT_TRUE(state.usable) << state.obstacle;
  EXPECT_EQ(fake->finalized, 1);
}

// A fault seen elsewhere: no CUPTI records, and events take their place in silence.
TEST_F(FakeLibrary, ObstaclesNameTheRemedy) {
  fake->subscribe_result = 39;
  EXPECT_HAS(cupti_state().obstacle, "held by another tool");
  fake->subscribe_result = 0;
  fake->enable_result = 35;
  EXPECT_HAS(cupti_state().obstacle, "NVreg_RestrictProfilingToAdminUsers=0");
  fake->enable_result = 41;
  EXPECT_HAS(cupti_state().obstacle, "confidential computing");
  fake->enable_result = 43;
  EXPECT_HAS(cupti_state().obstacle, "MIG");
  fake->enable_result = 999;
  EXPECT_HAS(cupti_state().obstacle, "CUPTI_ERROR_FAKE (CUPTI error 999)");
  EXPECT_THROW(ActivityPass(), ActivityError);
}

TEST_F(FakeLibrary, IsNotTouchedUnderAProfiler) {
  setenv("NSYS_PROFILING_SESSION_ID", "1", 1);
  const CuptiState state = cupti_state();
  unsetenv("NSYS_PROFILING_SESSION_ID");
  EXPECT_HAS(state.obstacle, "under nsys");
  EXPECT_EQ(fake->finalized, 0);
}

// A fault seen elsewhere: another kernel was timed than the one that is named.
TEST_F(FakeLibrary, RecordsAreThoseOfTheWorkInOrderOfStart) {
  ActivityPass pass;
  fake->pending = {{"before", 1, 2}};
  const std::vector<Activity> activities = pass.record([&] {
    fake->pending = {{"", 10, 20}, {"_ZN3gdn5entryIiEEvv", 20, 50}, {"second", 60, 90}};
  });
  ASSERT_EQ(activities.size(), 3u);
  EXPECT_EQ(activities[0].kind, Activity::Kind::memset);
  EXPECT_EQ(activities[0].bytes, 4096u);
  EXPECT_EQ(activities[1].name, "void gdn::entry<int>()");
  EXPECT_EQ(activities[1].grid, (std::array<std::int32_t, 3>{132, 1, 1}));
  EXPECT_EQ(activities[1].block[0], 384);
  EXPECT_EQ(activities[1].registers, 168);
  EXPECT_EQ(activities[1].dynamic_shared_bytes, 232448);
  EXPECT_EQ(activities[1].static_shared_bytes, 16);
  EXPECT_EQ(activities[1].stream, 7u);
  EXPECT_EQ(activities[1].correlation, 42u);
  EXPECT_EQ(activities[2].name, "second");
}

// A fault seen elsewhere: no CUPTI records, and events take their place in silence.
TEST_F(FakeLibrary, WhatIsMissingIsAnError) {
  EXPECT_EQ(error_of({{"a", 1, 2}}, 1), "");
  EXPECT_HAS(error_of({}, 1), "recorded 0 kernels of 1");
  EXPECT_HAS(error_of({{"a", 1, 2}, {"", 2, 3}}, 2), "recorded 1 kernels of 2");
  EXPECT_HAS(error_of({{"a", 1, 2}}, 1, 3), "dropped 3 records");
  EXPECT_HAS(error_of({{"a", 0, 0}}, 1), "no time for a");
}

TEST_F(FakeLibrary, IsDetachedWhenTheWorkFails) {
  EXPECT_THROW(ActivityPass().record([] { throw std::runtime_error("launch"); }),
               std::runtime_error);
  EXPECT_EQ(fake->finalized, 1);
}

TEST_F(FakeLibrary, OnePassAtATime) {
  const ActivityPass pass;
  EXPECT_THROW(ActivityPass(), ActivityError);
}

// A fault seen elsewhere: the flush of the cache is counted inside the timed window.
TEST_F(FakeLibrary, TheWholePass) {
  std::uint64_t round = 0;
  const auto repeat = [&] {
    const std::uint64_t at = ++round * 1'000'000;
    fake->pending = {{"", at, at + 500'000}, {"k", at + 500'000, at + 500'000 + round * 1000}};
  };
  const ActivityTimes times = time_by_activity(
      repeat, [](const Activity& a) { return a.kind == Activity::Kind::kernel; }, 5);
  EXPECT_EQ(round, 6u);  // one unseen
  ASSERT_EQ(times.kernels.size(), 1u);
  EXPECT_DOUBLE_EQ(times.kernels[0].time_s, 4e-6);  // of 2, 3, 4, 5, 6
  EXPECT_DOUBLE_EQ(times.span_s, 4e-6);
  EXPECT_THROW(time_by_activity(
                   repeat, [](const Activity&) { return false; }, 5),
               ActivityError);
  EXPECT_EQ(fake->finalized, 2);
}

#endif

// --- Command lines

TEST(ProfilerCommands, WordsForAShell) {
  EXPECT_EQ(shell_quoted("wide:threads=512"), "wide:threads=512");
  EXPECT_EQ(shell_quoted("edges:*"), "'edges:*'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
  const std::vector<std::string> words = {"a b", "c"};
  EXPECT_EQ(shell_line(words), "'a b' c");
}

TEST(ProfilerCommands, NcuFilter) {
  EXPECT_EQ(ncu_filter("wide_gva_state", "wide:threads=512"),
            "gdnbench@wide_gva_state/wide:threads=512");
  EXPECT_EQ(ncu_filter("edge_ragged:sequences=64+0+7", "baseline"),
            "gdnbench@edge_ragged:sequences=64\\+0\\+7/baseline");
}

TEST(ProfilerCommands, Lines) {
  const std::vector<std::string> command = {"/x/gdnbench", "profile", "--case", "a+b"};
  EXPECT_EQ(nsys_line("a+b", "v:k=1", command),
            "nsys profile -c cudaProfilerApi --capture-range-end=stop --cuda-graph-trace=node "
            "-t cuda,nvtx -f true -o a-b.v-k-1 /x/gdnbench profile --case a+b");
  EXPECT_EQ(ncu_line("a+b", "v:k=1", command),
            "ncu --profile-from-start off --nvtx --nvtx-include 'gdnbench@a\\+b/v:k=1' "
            "--clock-control none --set full -f -o a-b.v-k-1 /x/gdnbench profile --case a+b");
}

TEST(Trace, RangesNest) {
  const Range of_case("case");
  const Range of_variant("variant", 1e9);
  const Range of_phase(phase::time);
}

}  // namespace
}  // namespace gdn
