// NVTX ranges: what this thread is doing, for whoever watches with nsys or ncu. They nest, case →
// variant id → phase, in the domain `gdnbench`; they cost next to nothing where nobody watches, and
// nothing in a build without CUDA.
#pragma once

#include <string_view>

#if defined(GDNBENCH_WITH_CUDA) && __has_include(<nvtx3/nvToolsExt.h>)
#define GDNBENCH_WITH_NVTX
#endif

namespace gdn {

inline constexpr const char* trace_domain = "gdnbench";

// The phases of a row.
namespace phase {
inline constexpr const char* generate = "generate";    // inputs
inline constexpr const char* reference = "reference";  // fp64 oracle
inline constexpr const char* prepare = "prepare";      // g and A
inline constexpr const char* check = "check";
inline constexpr const char* warm_up = "warm-up";
inline constexpr const char* time = "time";
inline constexpr const char* kernels = "kernels";  // the CUPTI pass
}  // namespace phase

// From its making to its end. The payload is a number that the tool shows with the range: samples,
// FLOP. Not for what runs between two timed launches.
class Range {
 public:
#ifdef GDNBENCH_WITH_NVTX
  explicit Range(std::string_view name);
  Range(std::string_view name, double payload);
  ~Range();
#else
  explicit Range(std::string_view) {}
  Range(std::string_view, double) {}
#endif
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
};

}  // namespace gdn
