// Time by kernel from CUPTI activity records. CUPTI is opened at run time and attached only during
// a pass of its own, since it makes CUDA events longer. Records that are missing are an error of
// the pass: what is left would be a wrong time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/result.hpp"

namespace gdn {

// CUPTI cannot be used, or a pass did not see all that ran.
struct ActivityError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Something that the device did, from its start to its end.
struct Activity {
  enum class Kind { kernel, memset, memcpy } kind = Kind::kernel;
  std::string name;  // of a kernel, demangled; else "[memset]", "[memcpy]"
  std::uint64_t start_ns = 0, end_ns = 0;
  std::array<std::int32_t, 3> grid{}, block{};
  int registers = 0;
  int static_shared_bytes = 0, dynamic_shared_bytes = 0;
  std::uint64_t bytes = 0;  // of a memset or memcpy
  std::uint32_t stream = 0, correlation = 0;
};

struct ActivityTimes {
  std::vector<KernelTime> kernels;  // in order of start; medians over the runs of the time in a run
  double span_s = 0;                // median of the time from the first start to the last end
};

// Of runs of the same work. Throws ActivityError when they did not run the same kernels.
ActivityTimes times_of(const std::vector<std::vector<Activity>>& runs);

// What each of `launches` of the same work ran, from what all did in order of start. How many
// kernels a launch has is not known before: stages may have nothing to do. Throws ActivityError
// when they did not run the same ones.
std::vector<std::vector<Activity>> runs_of(const std::vector<Activity>& kernels,
                                           std::size_t launches);

// The name of a C++ symbol as people write it: to match Activity::name with what cudaFuncGetName
// says of a Stage's entry.
std::string demangled(const char* symbol);

#ifdef GDNBENCH_WITH_CUDA

// Whether CUPTI can be used, and if not, why and what to do. Under a profiler or a sanitizer it is
// not touched; else it is tried: attached and detached again. The device's context must exist for
// the answer to be about that device.
struct CuptiState {
  bool usable = false;
  std::string obstacle;
};
CuptiState cupti_state();

// CUPTI is attached while one of these lives; there can be one at a time. Throws ActivityError.
class ActivityPass {
 public:
  ActivityPass();
  ~ActivityPass();
  ActivityPass(const ActivityPass&) = delete;
  ActivityPass& operator=(const ActivityPass&) = delete;

  // What the device does during `work`, which returns when the device is done, in order of start.
  // Throws ActivityError when records were dropped, or when there are fewer kernels than expected.
  std::vector<Activity> record(const std::function<void()>& work, std::size_t expected_kernels = 1);
};

// The whole pass: `repeat`, which returns when the device is done, is run once unseen and then
// `runs` times. `counts` tells what is of the launch from what only surrounds it (a flush, a gate);
// null: all is.
ActivityTimes time_by_activity(const std::function<void()>& repeat,
                               const std::function<bool(const Activity&)>& counts, int runs,
                               std::size_t expected_kernels = 1);

#endif

}  // namespace gdn
