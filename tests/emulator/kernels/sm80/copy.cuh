// As the original says.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gdn::sm80 {

inline void copy_16(std::uint32_t shared, const void* global, bool real = true) {
  emulator::copy(shared, global, 16, real);
}
inline void copy_16(void* shared, const void* global, bool real = true) {
  copy_16(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), global, real);
}
inline void copy_4(void* shared, const void* global, bool real) {
  emulator::copy(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), global, 4, real);
}

inline void prefetch_to_l2(const void*) {}
inline void commit_copies() { emulator::commit_copies(); }
template <int pending>
void wait_copies() {
  emulator::wait_copies(pending);
}

}  // namespace gdn::sm80
