// CUDA kernels on the host: what a thread of an emulated kernel may do, as the stand-ins for CUDA's
// headers and for the wrappers of kernels/sm80 and kernels/sm90 need it. kernels/README.md says
// what is modelled.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>

namespace gdn::emulator {

// What a kernel did that no kernel may: a deadlock, an operand overwritten under a product, …
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// ---- launches

// The order of events of this thread's next launches, which a seed determines. Each launch has
// another one.
void set_seed(std::uint64_t seed);

struct Grid {
  unsigned blocks = 1, threads = 32;
  std::size_t shared_bytes = 0;
  unsigned cluster = 1;  // CTAs of a cluster
};
// Runs `thread` as every thread of the grid, a cluster after the other. Throws Fault, and what a
// thread throws.
void launch(const Grid& grid, const std::function<void()>& thread);

// ---- what follows is called by the threads of a kernel

unsigned char* shared_memory();                     // of the CTA, aligned to 1024 bytes
std::uint32_t shared_address(const void* x);        // of what lies there; the first is 1024
void* at_shared(std::uint32_t address, int bytes);  // the reverse, all of it within; aligned
[[noreturn]] void fail(const std::string& what);    // throws Fault, with this thread's number

// ---- warps

// Waits for all lanes of `mask` to come, whereupon the last one calls `together` with what each has
// brought, by lane.
void meet(const char* instruction, std::uint32_t mask, void* own,
          void (*together)(void* const* all));

// The same for all 32 lanes, with `T* all[32]`.
template <class T, class Together>
void meet_with(const char* instruction, T& own, Together) {
  meet(instruction, ~0U, &own, [](void* const* all) {
    Together()([=](int lane) -> T& { return *static_cast<T*>(all[lane]); });
  });
}

// ---- what fences between the proxies are for, as far as wrappers write to shared memory

// The 16 bytes at `x` were written by this thread, and are not for the asynchronous to read until
// it publishes what it wrote.
void note_written(const void* x);
void publish();
// Also what others wrote to these bytes, which begin at a multiple of 16.
void publish(const void* x, std::size_t bytes);

// ---- barriers

void initialise_phases(std::uint64_t& word, int count);
void arrive_at_phase(std::uint64_t& word);
void expect_bytes(std::uint64_t& word, std::uint32_t bytes);
void wait_for_phase(std::uint64_t& word, std::uint32_t parity);
bool has_phase_ended(std::uint64_t& word, std::uint32_t parity);

// The sixteen numbered ones of a CTA, and that of a cluster.
void arrive_at(int id, int threads);
void wait_at(int id, int threads);
void wait_for_cta();
unsigned cluster_rank();
void arrive_at_cluster();
void wait_at_cluster();

// ---- copies

// cp.async, of 4 or 16 bytes.
void copy(std::uint32_t to, const void* from, int bytes, bool real);
void commit_copies();
void wait_copies(int pending);

// The copy engine. A tensor's innermost dimension comes first; strides are those of the others.
struct Tensor {
  unsigned char* data;
  std::uint64_t extents[3], strides_bytes[2];
  std::uint32_t box[3], swizzle_bytes;
};
// Bytes count for the barrier `full` of each CTA of the cluster in `ctas`; 0: this CTA alone.
void load_box(void* to, const Tensor& tensor, const std::int32_t (&at)[3], std::uint64_t& full,
              std::uint32_t ctas);
void load_bytes(void* to, const void* from, std::uint32_t bytes, std::uint64_t& full);
void store_box(const Tensor& tensor, const std::int32_t (&at)[3], const void* from);
void store_bytes(void* to, const void* from, std::uint32_t bytes);
void commit_stores();
void wait_stores_read(int pending);

// ---- products of a warpgroup, each warp its 16 rows

struct Operands {
  const void* left;  // 4 registers of this thread; null: `a` describes A
  std::uint64_t a, b;
  bool a_transposed, b_transposed;  // MN-major
  bool half = false;                // fp16, else bf16
};
void begin_products();
// d: n/2 registers of this thread.
void multiply(float* d, int n, const Operands& operands, bool accumulate);
void commit_products();
void wait_products(int pending);

}  // namespace gdn::emulator
