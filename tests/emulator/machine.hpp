// The emulated multiprocessor: threads as fibers, and what picks the next one to run.
#pragma once

#include <bitset>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/emulator.hpp"

namespace gdn::emulator {

struct Cta;
struct Warp;

// A copy by cp.async that has not taken place.
struct PlainCopy {
  void* to;
  const void* from;
  std::size_t bytes;
  bool real;
};

struct Lane {
  enum State { ready, waiting, done };

  Warp* warp = nullptr;
  int number = 0;  // in its warp
  State state = ready;
  bool started = false;
  void* context[5] = {};
  std::byte* stack = nullptr;

  // What it waits for: what wakes it, and for the report.
  const void* event = nullptr;
  const char* what = nullptr;
  std::uint32_t parity = 0;
  std::uint64_t cluster_turn = 0;

  std::vector<PlainCopy> copies;
  std::vector<std::size_t> copy_groups;  // the end of each, among `copies`
  std::vector<std::size_t> unpublished;  // among Cta::writers
  int store_groups = 0;
  std::uint64_t products = 0, product_groups = 0;  // issued and committed so far
  bool fenced = false;
};

// Lanes on their way to an instruction that a warp executes as one.
struct Meeting {
  const char* instruction = nullptr;
  std::uint32_t mask = 0, come = 0;
  void* own[32] = {};
};

// Registers that products under way add to. Their threads find NaN in them until the wait.
struct Accumulator {
  int n = 0;
  std::uint32_t lanes = 0;  // that are part of it so far
  int users = 0;            // products
  float* registers[32] = {};
  std::vector<float> values;  // [lane][n / 2]
};
struct Product {
  Operands operands;
  bool accumulate;
  Accumulator* accumulator;
  std::uint32_t lanes = 0;
  bool executed = false;
  const void* left[32] = {};
  std::uint32_t copy[32][4] = {};  // of the left operand
};

struct Warp {
  Cta* cta = nullptr;
  int number = 0;  // in its CTA
  int ready = 0;   // lanes
  std::uint64_t priority = 0;
  Lane lanes[32];
  Meeting meetings[32];  // by their first lane

  std::deque<Product> products;  // from number `retired` on
  std::uint64_t retired = 0;
  std::deque<std::uint64_t> groups;  // the end of each, from number `retired_groups` on
  std::uint64_t retired_groups = 0;
  std::size_t executed = 0;  // of `products`
  std::vector<std::unique_ptr<Accumulator>> accumulators;
};

struct NumberedBarrier {
  int threads = 0, come = 0;
  std::uint64_t turn = 0;
  std::bitset<1024> who;
};

struct Cta {
  unsigned block = 0, rank = 0;
  unsigned char* shared = nullptr;
  NumberedBarrier barriers[16];
  std::vector<Warp> warps;
  std::vector<std::uint16_t> writers;  // of each 16 bytes: who has yet to publish it, from 1 on
};

// What the copy engine was told and has not done.
struct Transfer {
  Lane* by;
  int store_group;  // -1: a load
  std::function<void()> perform;
};

class Machine {
 public:
  Machine(const Grid& grid, const std::function<void()>& thread, std::uint64_t seed);
  void run();

  static Machine& now();             // that this thread runs on
  Lane* lane() { return current_; }  // that runs; null: none
  std::vector<Cta>& ctas() { return ctas_; }
  std::vector<Transfer>& transfers() { return transfers_; }
  const Grid& grid() const { return grid_; }
  NumberedBarrier& cluster_barrier() { return cluster_barrier_; }

  // Lets others run until somebody wakes those that wait for `event`.
  void wait(const char* what, const void* event, std::uint32_t parity = 0);
  void wake(const void* event);
  void wake(Lane& lane);
  void yield();
  // The same by chance; such places are where interleavings differ. `odds`: more of them, the
  // rarer.
  void maybe_yield(int odds = 1);
  // Whether what is asynchronous happens now already.
  bool eager() { return draw() < eagerness_; }

  std::uint64_t draw();

 private:
  void run_cluster(unsigned first_block);
  bool step();
  bool perform_something();
  void run(Warp& warp);
  void resume(Lane& lane);
  static void fiber();
  std::string deadlock() const;

  Grid grid_;
  const std::function<void()>& thread_;
  std::uint64_t random_;
  std::uint64_t eagerness_ = 0, churn_ = 0, yields_ = 0;  // chances, of 2^64
  std::vector<Cta> ctas_;
  std::unique_ptr<unsigned char[]> shared_;
  std::size_t shared_stride_ = 0;
  std::vector<Transfer> transfers_;
  NumberedBarrier cluster_barrier_;
  Lane* current_ = nullptr;
  int running_ = 0;  // lanes that have not ended
  void* context_[5] = {};
  std::exception_ptr failure_;
};

// Whether the warp's first product that has not taken place may; and that.
bool has_product(const Warp& warp);
void execute_product(Warp& warp);

// Faults unless the 16 bytes at `offset` of the CTA's shared memory are for the asynchronous.
void expect_published(const Cta& cta, std::size_t offset);

std::string place_of_shared(const void* x);  // for messages
std::string describe_phase(const void* word);

}  // namespace gdn::emulator
