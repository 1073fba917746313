// The two kernels that timing itself needs.
#pragma once

#include <cuda_runtime_api.h>

namespace gdn {

// Holds the stream until *open is not 0, or for a second at most; *expired is set to 1 then. What
// is enqueued behind it starts without the host.
void enqueue_gate(const volatile int* open, int* expired, cudaStream_t stream);

inline constexpr const char* gate_name =
    "timer_gate";  // the kernel's, to tell it from the measured

void enqueue_empty(cudaStream_t stream);

}  // namespace gdn
