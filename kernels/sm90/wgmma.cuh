// Products of a warpgroup: D [64][n] += A [64][16] B [16][n], bf16 or fp16 in and fp32 out,
// asynchronous.
// A comes from shared memory or from registers, B from shared memory; descriptors are Tile's.
// PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async".
#pragma once

#include <cstdint>

#include "kernels/sm80/half.cuh"
#include "kernels/sm80/mma.cuh"

namespace gdn::sm90 {

using sm80::HalfLeft;
using sm80::Left;
using sm80::Sum;

// Before the first product, and again after registers that a product takes were written.
__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// What follows stays behind the products so far. ptxas would move it in between them, and so issue
// the rest of them late.
__device__ inline void products_issued() { __syncwarp(); }
// Closes a group of products; `products_wait<n>` waits until at most n groups are under way, and
// belongs right before the first use of their results.
__device__ inline void products_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  products_issued();
}
template <int pending>
__device__ void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// How an operand in shared memory is stored.
enum class Major { k = 0, mn = 1 };

// d: [n / 8] Sums of this warp's 16 rows. `accumulate` false: what was in d is dropped,
// and need not have been anything.

template <Major a_major, Major b_major>
__device__ void multiply(Sum (&d)[4], std::uint64_t a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %18, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "%16, %17, p, 1, 1, %19, %20;\n}\n"
      : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[1].x[0]),
        "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[2].x[0]), "+f"(d[2].x[1]),
        "+f"(d[2].x[2]), "+f"(d[2].x[3]), "+f"(d[3].x[0]), "+f"(d[3].x[1]), "+f"(d[3].x[2]),
        "+f"(d[3].x[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(a_major)),
        "n"(static_cast<int>(b_major)));
}

template <Major b_major>
__device__ void multiply(Sum (&d)[4], const Left& a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}, "
      "{%16, %17, %18, %19}, %20, p, 1, 1, %22;\n}\n"
      : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[1].x[0]),
        "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[2].x[0]), "+f"(d[2].x[1]),
        "+f"(d[2].x[2]), "+f"(d[2].x[3]), "+f"(d[3].x[0]), "+f"(d[3].x[1]), "+f"(d[3].x[2]),
        "+f"(d[3].x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b),
        "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(b_major)));
}

template <Major a_major, Major b_major>
__device__ void multiply(Sum (&d)[8], std::uint64_t a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31}, "
      "%32, %33, p, 1, 1, %35, %36;\n}\n"
      : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[1].x[0]),
        "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[2].x[0]), "+f"(d[2].x[1]),
        "+f"(d[2].x[2]), "+f"(d[2].x[3]), "+f"(d[3].x[0]), "+f"(d[3].x[1]), "+f"(d[3].x[2]),
        "+f"(d[3].x[3]), "+f"(d[4].x[0]), "+f"(d[4].x[1]), "+f"(d[4].x[2]), "+f"(d[4].x[3]),
        "+f"(d[5].x[0]), "+f"(d[5].x[1]), "+f"(d[5].x[2]), "+f"(d[5].x[3]), "+f"(d[6].x[0]),
        "+f"(d[6].x[1]), "+f"(d[6].x[2]), "+f"(d[6].x[3]), "+f"(d[7].x[0]), "+f"(d[7].x[1]),
        "+f"(d[7].x[2]), "+f"(d[7].x[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(a_major)),
        "n"(static_cast<int>(b_major)));
}

template <Major b_major>
__device__ void multiply(Sum (&d)[8], const Left& a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31}, "
      "{%32, %33, %34, %35}, %36, p, 1, 1, %38;\n}\n"
      : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[1].x[0]),
        "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[2].x[0]), "+f"(d[2].x[1]),
        "+f"(d[2].x[2]), "+f"(d[2].x[3]), "+f"(d[3].x[0]), "+f"(d[3].x[1]), "+f"(d[3].x[2]),
        "+f"(d[3].x[3]), "+f"(d[4].x[0]), "+f"(d[4].x[1]), "+f"(d[4].x[2]), "+f"(d[4].x[3]),
        "+f"(d[5].x[0]), "+f"(d[5].x[1]), "+f"(d[5].x[2]), "+f"(d[5].x[3]), "+f"(d[6].x[0]),
        "+f"(d[6].x[1]), "+f"(d[6].x[2]), "+f"(d[6].x[3]), "+f"(d[7].x[0]), "+f"(d[7].x[1]),
        "+f"(d[7].x[2]), "+f"(d[7].x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b),
        "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(b_major)));
}

template <Major a_major, Major b_major>
__device__ void multiply(Sum (&d)[16], std::uint64_t a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63}, "
      "%64, %65, p, 1, 1, %67, %68;\n}\n"
      : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[1].x[0]),
        "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[2].x[0]), "+f"(d[2].x[1]),
        "+f"(d[2].x[2]), "+f"(d[2].x[3]), "+f"(d[3].x[0]), "+f"(d[3].x[1]), "+f"(d[3].x[2]),
        "+f"(d[3].x[3]), "+f"(d[4].x[0]), "+f"(d[4].x[1]), "+f"(d[4].x[2]), "+f"(d[4].x[3]),
        "+f"(d[5].x[0]), "+f"(d[5].x[1]), "+f"(d[5].x[2]), "+f"(d[5].x[3]), "+f"(d[6].x[0]),
        "+f"(d[6].x[1]), "+f"(d[6].x[2]), "+f"(d[6].x[3]), "+f"(d[7].x[0]), "+f"(d[7].x[1]),
        "+f"(d[7].x[2]), "+f"(d[7].x[3]), "+f"(d[8].x[0]), "+f"(d[8].x[1]), "+f"(d[8].x[2]),
        "+f"(d[8].x[3]), "+f"(d[9].x[0]), "+f"(d[9].x[1]), "+f"(d[9].x[2]), "+f"(d[9].x[3]),
        "+f"(d[10].x[0]), "+f"(d[10].x[1]), "+f"(d[10].x[2]), "+f"(d[10].x[3]), "+f"(d[11].x[0]),
        "+f"(d[11].x[1]), "+f"(d[11].x[2]), "+f"(d[11].x[3]), "+f"(d[12].x[0]), "+f"(d[12].x[1]),
        "+f"(d[12].x[2]), "+f"(d[12].x[3]), "+f"(d[13].x[0]), "+f"(d[13].x[1]), "+f"(d[13].x[2]),
        "+f"(d[13].x[3]), "+f"(d[14].x[0]), "+f"(d[14].x[1]), "+f"(d[14].x[2]), "+f"(d[14].x[3]),
        "+f"(d[15].x[0]), "+f"(d[15].x[1]), "+f"(d[15].x[2]), "+f"(d[15].x[3])
      : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(a_major)),
        "n"(static_cast<int>(b_major)));
}

template <Major b_major>
__device__ void multiply(Sum (&d)[16], const Left& a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"
      : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[1].x[0]),
        "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[2].x[0]), "+f"(d[2].x[1]),
        "+f"(d[2].x[2]), "+f"(d[2].x[3]), "+f"(d[3].x[0]), "+f"(d[3].x[1]), "+f"(d[3].x[2]),
        "+f"(d[3].x[3]), "+f"(d[4].x[0]), "+f"(d[4].x[1]), "+f"(d[4].x[2]), "+f"(d[4].x[3]),
        "+f"(d[5].x[0]), "+f"(d[5].x[1]), "+f"(d[5].x[2]), "+f"(d[5].x[3]), "+f"(d[6].x[0]),
        "+f"(d[6].x[1]), "+f"(d[6].x[2]), "+f"(d[6].x[3]), "+f"(d[7].x[0]), "+f"(d[7].x[1]),
        "+f"(d[7].x[2]), "+f"(d[7].x[3]), "+f"(d[8].x[0]), "+f"(d[8].x[1]), "+f"(d[8].x[2]),
        "+f"(d[8].x[3]), "+f"(d[9].x[0]), "+f"(d[9].x[1]), "+f"(d[9].x[2]), "+f"(d[9].x[3]),
        "+f"(d[10].x[0]), "+f"(d[10].x[1]), "+f"(d[10].x[2]), "+f"(d[10].x[3]), "+f"(d[11].x[0]),
        "+f"(d[11].x[1]), "+f"(d[11].x[2]), "+f"(d[11].x[3]), "+f"(d[12].x[0]), "+f"(d[12].x[1]),
        "+f"(d[12].x[2]), "+f"(d[12].x[3]), "+f"(d[13].x[0]), "+f"(d[13].x[1]), "+f"(d[13].x[2]),
        "+f"(d[13].x[3]), "+f"(d[14].x[0]), "+f"(d[14].x[1]), "+f"(d[14].x[2]), "+f"(d[14].x[3]),
        "+f"(d[15].x[0]), "+f"(d[15].x[1]), "+f"(d[15].x[2]), "+f"(d[15].x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b),
        "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(b_major)));
}

// The same of fp16.
template <Major b_major>
__device__ void multiply(Sum (&d)[16], const HalfLeft& a, std::uint64_t b, bool accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
      "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, "
      "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, "
      "%44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63}, "
      "{%64, %65, %66, %67}, %68, p, 1, 1, %70;\n}\n"
      : "+f"(d[0].x[0]), "+f"(d[0].x[1]), "+f"(d[0].x[2]), "+f"(d[0].x[3]), "+f"(d[1].x[0]),
        "+f"(d[1].x[1]), "+f"(d[1].x[2]), "+f"(d[1].x[3]), "+f"(d[2].x[0]), "+f"(d[2].x[1]),
        "+f"(d[2].x[2]), "+f"(d[2].x[3]), "+f"(d[3].x[0]), "+f"(d[3].x[1]), "+f"(d[3].x[2]),
        "+f"(d[3].x[3]), "+f"(d[4].x[0]), "+f"(d[4].x[1]), "+f"(d[4].x[2]), "+f"(d[4].x[3]),
        "+f"(d[5].x[0]), "+f"(d[5].x[1]), "+f"(d[5].x[2]), "+f"(d[5].x[3]), "+f"(d[6].x[0]),
        "+f"(d[6].x[1]), "+f"(d[6].x[2]), "+f"(d[6].x[3]), "+f"(d[7].x[0]), "+f"(d[7].x[1]),
        "+f"(d[7].x[2]), "+f"(d[7].x[3]), "+f"(d[8].x[0]), "+f"(d[8].x[1]), "+f"(d[8].x[2]),
        "+f"(d[8].x[3]), "+f"(d[9].x[0]), "+f"(d[9].x[1]), "+f"(d[9].x[2]), "+f"(d[9].x[3]),
        "+f"(d[10].x[0]), "+f"(d[10].x[1]), "+f"(d[10].x[2]), "+f"(d[10].x[3]), "+f"(d[11].x[0]),
        "+f"(d[11].x[1]), "+f"(d[11].x[2]), "+f"(d[11].x[3]), "+f"(d[12].x[0]), "+f"(d[12].x[1]),
        "+f"(d[12].x[2]), "+f"(d[12].x[3]), "+f"(d[13].x[0]), "+f"(d[13].x[1]), "+f"(d[13].x[2]),
        "+f"(d[13].x[3]), "+f"(d[14].x[0]), "+f"(d[14].x[1]), "+f"(d[14].x[2]), "+f"(d[14].x[3]),
        "+f"(d[15].x[0]), "+f"(d[15].x[1]), "+f"(d[15].x[2]), "+f"(d[15].x[3])
      : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b),
        "r"(static_cast<int>(accumulate)), "n"(static_cast<int>(b_major)));
}

}  // namespace gdn::sm90
