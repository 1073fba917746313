// Rung 3: the whole core in one kernel (fused_chain.cuh). S and V̂ never leave the multiprocessor,
// and the 96 KiB a chunk and head that rung 2 sends through memory for them are gone. Two CTAs of
// four warps share a head, 64 values each: Q, K and A are read twice, and P is made twice.
//
// Bytes a chunk and head: A 8 KiB, V 16, O 16, q and k 32 once a query head: 97 µs at 4.3 TB/s for
// 8192 tokens and 16/64 heads, where the kernel takes four times that. It is bound by the
// chain: 2.6 µs a chunk alone, 2.9 µs where every multiprocessor has one
// (reports/h200/ladder.json). In a chunk a warp issues 280 mma, ~1800 cycles if nothing else were
// to do, among 1600 instructions; fragments take 3300 cycles of shared memory's bandwidth for four
// warps (ncu, wavefronts), since each warp reads all of Q, K, A and P for its own 16 values. One
// warp a scheduler hides none of the latencies in between.
//
// So it beats rung 2 where heads fill the device (wide_gva_state) and loses where they do not: rung
// 2's output is made by every multiprocessor, here by the few that have a chain.
//
// Tried and lost: copies issued after K S instead of before it (3.05 µs against 2.9 at the time); P
// made after V̂ (2.6 to 3.7, as it then stands between two barriers); K S in two halves (the same);
// a branch around blocks of P that a warp does not have (4.1: it cuts the schedule to pieces); a
// multiprocessor for each CTA by more shared memory (the same).
#include "kernels/cuda/fused_chain.cuh"
#include "kernels/cuda/rungs.hpp"

namespace gdn::gpu {

Variant fused() {
  return {.name = "fused",
          .idea = "One kernel: states and new values never leave the multiprocessor.",
          .target = Target::cuda,
          .scopes = {Scope::core},
          .needs = needs_ampere,
          .accepts = nullptr,
          .instances = {sm80::fused_instance<64, 128, 2>({{"stages", "2"}}),
                        sm80::fused_instance<64, 128, 3>({{"stages", "3"}})}};
}

}  // namespace gdn::gpu
