// What a launch and the next one of its stream say to each other, where the next one may begin
// early (launch.cuh). PTX ISA, "griddepcontrol". Before Hopper none does, and nothing is said.
#pragma once

namespace gdn {

// The next launch may begin as soon as all CTAs of this one have said so or have ended.
__device__ inline void let_next_launch_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// Until the launch ahead has ended, and what it wrote can be read.
__device__ inline void wait_for_launch_ahead() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

}  // namespace gdn
