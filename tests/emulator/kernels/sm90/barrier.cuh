// As the original says.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gdn::sm90 {

struct PhaseBarrier {
  std::uint64_t word;

  void initialise(int count) { emulator::initialise_phases(word, count); }
  void arrive() { emulator::arrive_at_phase(word); }
  void arrive_and_expect(std::uint32_t bytes) {
    emulator::expect_bytes(word, bytes);
    emulator::arrive_at_phase(word);
  }
  void wait(std::uint32_t parity) { emulator::wait_for_phase(word, parity); }
};

inline void jitter() {}  // the machine loses time by chance wherever threads meet
inline void publish_barriers() {}
inline void publish_to_async() { emulator::publish(); }
template <class Tile>
void publish_for_others(const Tile& tile) {
  emulator::publish(tile.x, sizeof tile.x);
}

template <int threads>
void arrive(int id) {
  emulator::arrive_at(id, threads);
}
template <int threads>
void sync(int id) {
  emulator::wait_at(id, threads);
}

}  // namespace gdn::sm90
