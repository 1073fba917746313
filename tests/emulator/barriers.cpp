// Barriers with phases (mbarrier), the sixteen numbered ones of a CTA, and that of a cluster.
#include <fmt/format.h>

#include <cstring>

#include "tests/emulator/machine.hpp"

namespace gdn::emulator {
namespace {

// What the 64 bits of an mbarrier hold here, with counters as wide as the hardware's.
struct Phases {
  static constexpr std::uint64_t initialised = 1;  // memory that nobody wrote has 3

  std::uint64_t state : 2, parity : 1, count : 20, pending : 20;
  std::int64_t bytes : 21;  // announced, and not yet come
};
static_assert(sizeof(Phases) == sizeof(std::uint64_t));

Phases read(const void* word) {
  Phases phases;
  std::memcpy(&phases, word, sizeof(phases));
  if (phases.state != Phases::initialised)
    fail(fmt::format("uses the barrier {}, which is not initialised", place_of_shared(word)));
  return phases;
}

void write(std::uint64_t& word, Phases phases) {
  const bool ends = phases.pending == 0 && phases.bytes == 0;
  if (ends) phases.parity ^= 1, phases.pending = phases.count;
  std::memcpy(&word, &phases, sizeof(phases));
  if (ends) Machine::now().wake(&word);
}

void come(NumberedBarrier& barrier, int threads, int who, const std::string& name) {
  if (barrier.come == 0) barrier.threads = threads, barrier.who.reset();
  if (barrier.threads != threads)
    fail(fmt::format("comes to {} of {} threads, which is for {}", name, threads, barrier.threads));
  if (barrier.who.test(who)) fail(fmt::format("comes to {} twice before it opens", name));
  barrier.who.set(who);
  if (++barrier.come < threads) return;
  barrier.come = 0;
  ++barrier.turn;
  Machine::now().wake(&barrier);
}

NumberedBarrier& numbered(int id, int threads) {
  if (id < 0 || id > 15 || threads % 32 != 0)
    fail(fmt::format("comes to barrier {} of {} threads", id, threads));
  return Machine::now().lane()->warp->cta->barriers[id];
}

int number_of(const Lane& lane) { return 32 * lane.warp->number + lane.number; }

}  // namespace

void initialise_phases(std::uint64_t& word, int count) {
  Phases phases{};
  phases.state = Phases::initialised;
  phases.count = phases.pending = static_cast<std::uint64_t>(count);
  std::memcpy(&word, &phases, sizeof(phases));
}

void arrive_at_phase(std::uint64_t& word) {
  Phases phases = read(&word);
  if (phases.pending == 0)
    fail(fmt::format("is one arrival too many for the barrier {}", describe_phase(&word)));
  --phases.pending;
  write(word, phases);
  Machine::now().maybe_yield();
}

void expect_bytes(std::uint64_t& word, std::uint32_t bytes) {
  Phases phases = read(&word);
  phases.bytes += bytes;
  std::memcpy(&word, &phases, sizeof(phases));  // the arrival that follows may end the phase
}

void bring_bytes(std::uint64_t& word, std::uint32_t bytes) {
  Phases phases = read(&word);
  phases.bytes -= bytes;
  write(word, phases);
}

bool has_phase_ended(std::uint64_t& word, std::uint32_t parity) {
  Machine::now().yield();
  return read(&word).parity != parity;
}

void wait_for_phase(std::uint64_t& word, std::uint32_t parity) {
  Machine::now().maybe_yield();
  while (read(&word).parity == parity) Machine::now().wait("mbarrier", &word, parity);
}

std::string describe_phase(const void* word) {
  const Phases phases = read(word);
  return fmt::format("{}, of whose {} arrivals {} and {} bytes are missing", place_of_shared(word),
                     std::uint64_t{phases.count}, std::uint64_t{phases.pending},
                     std::int64_t{phases.bytes});
}

void arrive_at(int id, int threads) {
  come(numbered(id, threads), threads, number_of(*Machine::now().lane()),
       fmt::format("barrier {}", id));
  Machine::now().maybe_yield();
}

void wait_at(int id, int threads) {
  NumberedBarrier& barrier = numbered(id, threads);
  const std::uint64_t turn = barrier.turn;
  arrive_at(id, threads);
  while (barrier.turn == turn) Machine::now().wait("barrier", &barrier);
}

void wait_for_cta() { wait_at(0, static_cast<int>(Machine::now().grid().threads)); }

unsigned cluster_rank() { return Machine::now().lane()->warp->cta->rank; }

void arrive_at_cluster() {
  Machine& machine = Machine::now();
  Lane& lane = *machine.lane();
  lane.cluster_turn = machine.cluster_barrier().turn;
  const Grid& grid = machine.grid();
  come(machine.cluster_barrier(), static_cast<int>(grid.cluster * grid.threads),
       static_cast<int>(lane.warp->cta->rank * grid.threads) + number_of(lane),
       "the cluster's barrier");
  machine.maybe_yield();
}

void wait_at_cluster() {
  Machine& machine = Machine::now();
  while (machine.cluster_barrier().turn == machine.lane()->cluster_turn)
    machine.wait("the cluster's barrier", &machine.cluster_barrier());
}

}  // namespace gdn::emulator
