// Copies between tensors and shared memory by the copy engine (TMA), each by one thread.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <cuda/ptx>

#include "kernels/sm90/barrier.cuh"

namespace gdn::sm90 {

// A box of a tensor [tokens][heads][columns] (tensor_map.hpp) to shared memory; its bytes count for
// `full`. PTX ISA, "Data Movement and Conversion Instructions: cp.async.bulk.tensor".
__device__ inline void load_box(void* to, const CUtensorMap& map, int column, int head, int token,
                                PhaseBarrier& full) {
  const std::int32_t at[] = {column, head, token};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, to, &map, at,
                                  &full.word);
}
// The same to every CTA of the cluster whose bit is set, at the same place in each, where it counts
// for the barrier at the same place.
__device__ inline void load_box_to(std::uint16_t ctas, void* to, const CUtensorMap& map, int column,
                                   int head, int token, PhaseBarrier& full) {
  const std::int32_t at[] = {column, head, token};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_cluster, cuda::ptx::space_global, to, &map, at,
                                  &full.word, ctas);
}

// A box as far as L2. PTX ISA, "cp.async.bulk.prefetch.tensor".
__device__ inline void prefetch_box(const CUtensorMap& map, int column, int head, int token) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map),
               "r"(column), "r"(head), "r"(token)
               : "memory");
}

// Bytes as they lie, a multiple of 16 from a multiple of 16 on; they count for `full`.
// PTX ISA, "cp.async.bulk".
__device__ inline void load_bytes(void* to, const void* from, std::uint32_t bytes,
                                  PhaseBarrier& full) {
  cuda::ptx::cp_async_bulk(cuda::ptx::space_cluster, cuda::ptx::space_global, to, from, bytes,
                           &full.word);
}

// A box back, what lies outside of the tensor left out; bytes back; and what waits until at most
// `pending` of this thread's such copies still read their source, which may then be written again.
// PTX ISA, "cp.async.bulk.commit_group" and "cp.async.bulk.wait_group".
__device__ inline void store_box(const CUtensorMap& map, int column, int head, int token,
                                 const void* from) {
  const std::int32_t at[] = {column, head, token};
  cuda::ptx::cp_async_bulk_tensor(cuda::ptx::space_global, cuda::ptx::space_shared, &map, at, from);
  cuda::ptx::cp_async_bulk_commit_group();
}
__device__ inline void store_bytes(void* to, const void* from, std::uint32_t bytes) {
  cuda::ptx::cp_async_bulk(cuda::ptx::space_global, cuda::ptx::space_shared, to, from, bytes);
  cuda::ptx::cp_async_bulk_commit_group();
}
template <int pending>
__device__ void wait_stores_read() {
  cuda::ptx::cp_async_bulk_wait_group_read(cuda::ptx::n32_t<pending>());
}

// Fetches the description itself. PTX ISA, "prefetch.tensormap".
__device__ inline void prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace gdn::sm90
