#include "tests/emulator/machine.hpp"

#include <fmt/format.h>
#include <ucontext.h>

#include <bit>
#include <cstring>
#include <map>
#include <tuple>

#include "kernels/prepare/hash.hpp"
#include "tests/emulator/cuda_runtime.h"

constinit thread_local uint3 threadIdx{}, blockIdx{};
constinit thread_local dim3 blockDim{}, gridDim{};

namespace gdn::emulator {
namespace {

constexpr std::size_t stack_bytes = std::size_t{64} << 10;
constexpr std::uint64_t stack_end = 0x5AFE'5AFE'5AFE'5AFE;  // at the far end of every stack
constexpr std::size_t first_address = 1024;                 // below is the system's own
constexpr std::size_t most_shared_bytes = std::size_t{227} << 10;

thread_local Machine* machine = nullptr;
thread_local std::uint64_t seed_of_thread = 1, launches = 0;

// One chance in `n` as a number to compare with.
constexpr std::uint64_t chance(std::uint64_t n) { return ~std::uint64_t{0} / n; }

// Fibers change by GCC's own setjmp: glibc's swapcontext, which asks the kernel for signal masks
// each time, takes twenty times as long. Whoever calls must not know what happens to registers
// inside, and who jumps must not take its caller's frame.
[[gnu::noipa, noreturn]] void jump(void** to) { __builtin_longjmp(to, 1); }
[[gnu::noipa]] void change(void** from, void** to) {
  if (__builtin_setjmp(from) == 0) jump(to);
}
[[gnu::noipa, noreturn]] void enter(std::byte* stack, void (*fiber)()) {
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = stack;
  context.uc_stack.ss_size = stack_bytes;
  context.uc_link = nullptr;
  makecontext(&context, fiber, 0);
  setcontext(&context);
  __builtin_trap();
}
[[gnu::noipa]] void change_to_new(void** from, std::byte* stack, void (*fiber)()) {
  if (__builtin_setjmp(from) == 0) enter(stack, fiber);
}

// As many as the largest launch of this thread needed.
std::byte* stacks(std::size_t count) {
  thread_local std::unique_ptr<std::byte[]> memory;
  thread_local std::size_t size = 0;
  if (count > size) {
    memory.reset();
    memory = std::make_unique_for_overwrite<std::byte[]>(count * stack_bytes);
    size = count;
  }
  return memory.get();
}

std::string name_of(const Lane& lane) {
  return fmt::format("CTA {}, warp {}, lane {}", lane.warp->cta->block, lane.warp->number,
                     lane.number);
}

}  // namespace

void set_seed(std::uint64_t seed) { seed_of_thread = seed, launches = 0; }

void launch(const Grid& grid, const std::function<void()>& thread) {
  Machine(grid, thread, chain_hash(seed_of_thread, launches++)).run();
}

Machine& Machine::now() { return *machine; }

Machine::Machine(const Grid& grid, const std::function<void()>& thread, std::uint64_t seed)
    : grid_(grid), thread_(thread), random_(seed), ctas_(grid.cluster) {
  if (grid.threads % 32 != 0 || grid.threads > 1024 || grid.shared_bytes > most_shared_bytes ||
      grid.blocks % grid.cluster != 0)
    throw Fault(fmt::format("{} threads with {} bytes of shared memory cannot be launched",
                            grid.threads, grid.shared_bytes));
  shared_stride_ = (grid.shared_bytes + 2047) / 1024 * 1024;
  shared_ = std::make_unique_for_overwrite<unsigned char[]>(grid.cluster * shared_stride_ + 1024);
  std::byte* stack = stacks(std::size_t{grid.cluster} * grid.threads);
  auto base = reinterpret_cast<std::uintptr_t>(shared_.get());
  base = (base + 1023) / 1024 * 1024;
  for (Cta& cta : ctas_) {
    cta.rank = static_cast<unsigned>(&cta - ctas_.data());
    cta.shared = reinterpret_cast<unsigned char*>(base + cta.rank * shared_stride_);
    cta.warps = std::vector<Warp>(grid.threads / 32);
    for (Warp& warp : cta.warps) {
      warp.cta = &cta;
      warp.number = static_cast<int>(&warp - cta.warps.data());
      for (Lane& lane : warp.lanes) {
        lane.warp = &warp;
        lane.number = static_cast<int>(&lane - warp.lanes);
        lane.stack = stack;
        std::memcpy(stack, &stack_end, sizeof(stack_end));
        stack += stack_bytes;
      }
    }
  }
}

void Machine::run() {
  Machine* const before = machine;
  machine = this;
  gridDim = {grid_.blocks, 1, 1};
  blockDim = {grid_.threads, 1, 1};
  const auto finish = [&] { machine = before; };
  try {
    for (unsigned block = 0; block < grid_.blocks; block += grid_.cluster) run_cluster(block);
  } catch (...) {
    finish();
    throw;
  }
  finish();
}

// Each cluster has its own kind of order: how soon asynchronous things happen, how long the warps
// that are ahead stay ahead, how often a thread is interrupted.
void Machine::run_cluster(unsigned first_block) {
  const std::uint64_t eagerness[] = {chance(256), chance(8), chance(1)};
  const std::uint64_t churn[] = {chance(64), chance(8), chance(1)};
  const std::uint64_t yields[] = {0, chance(64), chance(8)};
  eagerness_ = eagerness[draw() % 3];
  churn_ = churn[draw() % 3];
  yields_ = yields[draw() % 3];
  cluster_barrier_ = {};
  for (Cta& cta : ctas_) {
    cta.block = first_block + cta.rank;
    std::memset(cta.shared, 0xFF, shared_stride_);
    for (NumberedBarrier& barrier : cta.barriers) barrier = {};
    cta.writers.assign(shared_stride_ / 16, 0);
    for (Warp& warp : cta.warps) {
      warp.priority = draw();
      warp.ready = 32;
      for (Lane& lane : warp.lanes) lane.state = Lane::ready;
    }
  }
  running_ = static_cast<int>(grid_.cluster * grid_.threads);
  while (running_ > 0) {
    if (!step()) throw Fault(deadlock());
    if (failure_) std::rethrow_exception(failure_);
  }
  if (!transfers_.empty())
    throw Fault(fmt::format("CTA {} ended while the copy engine had copies to make", first_block));
}

bool Machine::step() {
  if (eager() && perform_something()) return true;
  Warp* next = nullptr;
  for (Cta& cta : ctas_)
    for (Warp& warp : cta.warps)
      if (warp.ready > 0 && (next == nullptr || warp.priority > next->priority)) next = &warp;
  if (next == nullptr) return perform_something();
  if (draw() < churn_) next->priority = draw();
  run(*next);
  return true;
}

// One of the asynchronous things under way.
bool Machine::perform_something() {
  std::vector<Warp*> able;
  for (Cta& cta : ctas_)
    for (Warp& warp : cta.warps)
      if (has_product(warp)) able.push_back(&warp);
  const std::size_t count = able.size() + transfers_.size();
  if (count == 0) return false;
  const std::size_t chosen = draw() % count;
  if (chosen < able.size()) {
    execute_product(*able[chosen]);
    return true;
  }
  const auto at = transfers_.begin() + static_cast<std::ptrdiff_t>(chosen - able.size());
  const Transfer transfer = std::move(*at);
  transfers_.erase(at);
  transfer.perform();
  return true;
}

// Every lane that can, in some order, until it waits.
void Machine::run(Warp& warp) {
  const std::uint64_t order = draw();
  const unsigned first = order % 32, stride = order >> 32 & 1 ? 1 : 31;
  for (unsigned i = 0; i < 32 && !failure_; ++i) {
    Lane& lane = warp.lanes[(first + i * stride) % 32];
    if (lane.state == Lane::ready) resume(lane);
  }
}

void Machine::resume(Lane& lane) {
  current_ = &lane;
  threadIdx = {static_cast<unsigned>(32 * lane.warp->number + lane.number), 0, 0};
  blockIdx = {lane.warp->cta->block, 0, 0};
  if (lane.started) {
    change(context_, lane.context);
  } else {
    lane.started = true;
    change_to_new(context_, lane.stack, fiber);
  }
  current_ = nullptr;
  std::uint64_t end = 0;
  std::memcpy(&end, lane.stack, sizeof(end));
  if (end != stack_end) throw Fault(name_of(lane) + " needs a larger stack");
}

// A fiber is a thread of one CTA after the other.
void Machine::fiber() {
  for (;;) {
    Lane& lane = *machine->current_;
    try {
      machine->thread_();
      if (lane.products != lane.warp->retired) fail("ends while products are under way");
      for (const Transfer& transfer : machine->transfers_)
        if (transfer.by == &lane && transfer.store_group >= 0)
          fail("ends while its stores still read shared memory");
    } catch (...) {
      machine->failure_ = std::current_exception();
    }
    lane.copies.clear();  // as hardware does, with whatever nobody waited for
    lane.copy_groups.clear();
    lane.unpublished.clear();
    lane.state = Lane::done;
    --lane.warp->ready;
    --machine->running_;
    change(lane.context, machine->context_);
  }
}

void Machine::wait(const char* what, const void* event, std::uint32_t parity) {
  Lane& lane = *current_;
  lane.state = Lane::waiting;
  --lane.warp->ready;
  lane.what = what, lane.event = event, lane.parity = parity;
  change(lane.context, context_);
}

void Machine::wake(Lane& lane) {
  lane.state = Lane::ready;
  ++lane.warp->ready;
}

void Machine::wake(const void* event) {
  for (Cta& cta : ctas_)
    for (Warp& warp : cta.warps)
      for (Lane& lane : warp.lanes)
        if (lane.state == Lane::waiting && lane.event == event) wake(lane);
}

void Machine::yield() { change(current_->context, context_); }

void Machine::maybe_yield(int odds) {
  if (draw() < yields_ / odds) yield();
}

std::uint64_t Machine::draw() { return mix(random_ += 0x9E3779B97F4A7C15u); }

std::string Machine::deadlock() const {
  std::map<std::tuple<unsigned, int, std::string>, int> waiting;  // lanes
  for (const Cta& cta : ctas_)
    for (const Warp& warp : cta.warps)
      for (const Lane& lane : warp.lanes) {
        if (lane.state != Lane::waiting) continue;
        std::string what = lane.what;
        if (what == "mbarrier")
          what += fmt::format(" {}, parity {}", describe_phase(lane.event), lane.parity);
        if (what == "barrier") {
          const auto& barrier = *static_cast<const NumberedBarrier*>(lane.event);
          what += fmt::format(" {}, where {} of {} threads have come", &barrier - cta.barriers,
                              barrier.come, barrier.threads);
        }
        ++waiting[{cta.block, warp.number, what}];
      }
  std::string report = "no thread can go on";
  for (const auto& [where, lanes] : waiting)
    report += fmt::format("\n  CTA {}, warp {}: {} lanes wait at {}", std::get<0>(where),
                          std::get<1>(where), lanes, std::get<2>(where));
  return report;
}

unsigned char* shared_memory() { return machine->lane()->warp->cta->shared; }

std::uint32_t shared_address(const void* x) {
  const auto offset = static_cast<const unsigned char*>(x) - shared_memory();
  if (offset < 0 || static_cast<std::size_t>(offset) > machine->grid().shared_bytes)
    fail("takes for shared memory what is not there");
  return static_cast<std::uint32_t>(first_address + offset);
}

void* at_shared(std::uint32_t address, int bytes) {
  if (address < first_address || address + bytes > first_address + machine->grid().shared_bytes)
    fail(fmt::format("goes to {} in shared memory, which ends at {}", address,
                     first_address + machine->grid().shared_bytes));
  if (address % bytes != 0) fail(fmt::format("goes to {} in shared memory, not aligned", address));
  return shared_memory() + (address - first_address);
}

std::string place_of_shared(const void* x) {
  for (const Cta& cta : machine->ctas()) {
    const auto offset = static_cast<const unsigned char*>(x) - cta.shared;
    if (offset >= 0 && static_cast<std::size_t>(offset) < machine->grid().shared_bytes)
      return fmt::format("at byte {} of Shared", offset);
  }
  return "outside of shared memory";
}

void note_written(const void* x) {
  Lane& lane = *machine->lane();
  const std::size_t unit = (static_cast<const unsigned char*>(x) - shared_memory()) / 16;
  lane.warp->cta->writers[unit] = static_cast<std::uint16_t>(threadIdx.x + 1);
  lane.unpublished.push_back(unit);
}

void publish() {
  Lane& lane = *machine->lane();
  for (const std::size_t unit : lane.unpublished) {
    std::uint16_t& writer = lane.warp->cta->writers[unit];
    if (writer == threadIdx.x + 1) writer = 0;
  }
  lane.unpublished.clear();
}

void publish(const void* x, std::size_t bytes) {
  std::vector<std::uint16_t>& writers = machine->lane()->warp->cta->writers;
  const std::size_t unit = (static_cast<const unsigned char*>(x) - shared_memory()) / 16;
  std::fill_n(writers.begin() + static_cast<std::ptrdiff_t>(unit), bytes / 16, std::uint16_t{0});
}

void expect_published(const Cta& cta, std::size_t offset) {
  const int writer = cta.writers[offset / 16] - 1;
  if (writer >= 0)
    throw Fault(
        fmt::format("CTA {}: a product or the copy engine reads byte {} of Shared, which "
                    "thread {} wrote and did not publish",
                    cta.block, offset, writer));
}

void fail(const std::string& what) {
  const Lane* lane = machine->lane();
  throw Fault((lane != nullptr ? name_of(*lane) : "the copy engine") + " " + what);
}

void meet(const char* instruction, std::uint32_t mask, void* own,
          void (*together)(void* const* all)) {
  machine->maybe_yield(32);
  Lane& lane = *machine->lane();
  if (!(mask >> lane.number & 1)) fail(fmt::format("is not in the mask of {}", instruction));
  Meeting& meeting = lane.warp->meetings[std::countr_zero(mask)];
  if (meeting.come == 0) {
    meeting = {instruction, mask};
  } else if (meeting.mask != mask || (meeting.instruction != instruction &&
                                      std::strcmp(meeting.instruction, instruction) != 0)) {
    fail(fmt::format("comes to {}, and other lanes of its warp to {}", instruction,
                     meeting.instruction));
  }
  meeting.own[lane.number] = own;
  meeting.come |= 1U << lane.number;
  if (meeting.come != mask) return machine->wait(instruction, &meeting);
  meeting.come = 0;
  if (together != nullptr) together(meeting.own);
  for (Lane& other : lane.warp->lanes)
    if (other.state == Lane::waiting && other.event == &meeting) machine->wake(other);
}

}  // namespace gdn::emulator
