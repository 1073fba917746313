// As the original says; here the compiler has registers enough.
#pragma once

#include <cuda_runtime.h>

namespace gdn::sm80 {

inline int opaque(int x) { return x; }
inline void pin(float&) {}

}  // namespace gdn::sm80
