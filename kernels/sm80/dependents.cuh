// What tells the device that the next kernel of a stream may come.
#pragma once

namespace gdn::sm80 {

// From here on, of every CTA, a kernel launched for programmatic dependent launch may start while
// this one still runs; it waits for what this one writes. Nothing before sm_90.
// PTX ISA, "Parallel Synchronization and Communication Instructions: griddepcontrol".
__device__ inline void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

}  // namespace gdn::sm80
