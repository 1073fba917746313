#include "src/threads.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <latch>
#include <system_error>
#include <thread>
#include <vector>

#include "src/error.hpp"

namespace gdn {

void require_threads() {
  const int wanted = omp_get_max_threads();
  constexpr int most = 4096;
  if (wanted > most)
    throw UserError(
        fmt::format("OMP_NUM_THREADS: {} threads are more than {}; set it to the number of cores, "
                    "or leave it unset",
                    wanted, most));
  static int found = 1;  // with this one
  if (found >= wanted) return;
  std::latch all_there(1);
  std::vector<std::jthread> others;  // side by side, as OpenMP has them
  try {
    for (found = 1; found < wanted; ++found) others.emplace_back([&] { all_there.wait(); });
  } catch (const std::system_error& error) {
    all_there.count_down();
    throw UserError(
        fmt::format("OMP_NUM_THREADS: only {} of {} threads can be had ({}); set it to fewer, or "
                    "raise the limits (ulimit -u, ulimit -v)",
                    found, wanted, error.code().message()));
  }
  all_there.count_down();
}

}  // namespace gdn
