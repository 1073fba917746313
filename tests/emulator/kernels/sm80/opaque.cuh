// As the original says; here the compiler has registers enough.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace gdn::sm80 {

inline int opaque(int x) { return x; }
inline void pin(float&) {}
inline void pin(std::uint32_t&) {}

}  // namespace gdn::sm80
