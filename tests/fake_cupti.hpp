// What the stand-in for libcupti.so does. Tests reach it as the symbol `fake_cupti`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gdn::test {

struct FakeActivity {
  std::string kernel;  // "" for a memset
  std::uint64_t start_ns = 0, end_ns = 0;
};

struct FakeCupti {
  int subscribe_result = 0;
  int enable_result = 0;
  std::size_t dropped = 0;            // handed out once
  std::vector<FakeActivity> pending;  // handed out at the next flush
  bool subscribed = false;
  int enabled = 0;  // kinds
  int finalized = 0;
};

}  // namespace gdn::test
