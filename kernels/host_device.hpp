// Marks functions that kernels and the host both call, so that they can be tested on the host.
#pragma once

#ifdef __CUDACC__
#define GDNBENCH_HOST_DEVICE __host__ __device__
#else
#define GDNBENCH_HOST_DEVICE
#endif
