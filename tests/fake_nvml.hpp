// What the stand-in for libnvidia-ml.so.1 answers. Tests reach it as the symbol `fake_nvml`.
#pragma once

#include <atomic>

namespace gdn::test {

struct FakeNvml {
  int init_result = 0;
  std::atomic<unsigned> sm_clock{1980};
  std::atomic<unsigned long long> reasons{0};
  std::atomic<int> samples{0};  // how often the SM clock was asked for
  bool knows_power = true;
  unsigned other_pid = 1;
  int open = 0;  // initialised and not yet shut down
};

}  // namespace gdn::test
