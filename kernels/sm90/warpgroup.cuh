// What a warpgroup (four warps that begin at a multiple of four) does as one.
#pragma once

#include <cstdint>

namespace gdn::sm90 {

// Registers of each thread from here on, a multiple of 8; for all warps of the group, in a kernel
// of one CTA a multiprocessor. PTX ISA, "Miscellaneous Instructions: setmaxnreg".
template <int registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}

// One thread of a converged warp, always the same. PTX ISA, "elect.sync".
__device__ inline bool elected() {
  std::uint32_t chosen;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xFFFFFFFF;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(chosen));
  return chosen != 0;
}

}  // namespace gdn::sm90
