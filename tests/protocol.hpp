// A model checker for the barriers of a kernel whose warpgroups have different roles. A protocol is
// what every role does, in order: arrivals and waits, and the intervals in which it reads and
// writes shared memory. explore() goes through all interleavings and finds what can go wrong:
//   * a deadlock;
//   * overwrite before read: a write begins while the buffer is still being written, or before all
//     reads of what it holds have ended. Nobody declares the reads: they are those of the programs;
//   * read before write: what is read is not there, or not all of it yet;
//   * misuse of a barrier: a role comes to a named barrier twice in one generation, or an mbarrier
//     completes a phase while someone has yet to wait for the phase before, and would miss it;
//   * left over: arrivals at a barrier when all is done, which its next user would inherit.
// Not in the model: the fences between proxies. A barrier orders what lies before its arrivals and
// what follows its waits, as if every fence that this takes were there.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gdn::protocol {

struct Mbarrier {
  int index;
};
struct NamedBarrier {
  int index;
};

// What there is of every chunk, the ring of buffers that it goes round, and one chunk's.
struct Contents {
  std::string name;
  int buffer;
};
struct Tile {
  std::string name;
  int first_buffer, buffers;
  Contents operator()(int chunk) const {
    return {name + "(" + std::to_string(chunk) + ")", first_buffer + chunk % buffers};
  }
  Tile in_place(std::string other) const { return {std::move(other), first_buffer, buffers}; }
};
using Tiles = std::vector<Contents>;

enum class Action {
  dormant,       // a copy before it is issued
  arrive,        // mbarrier.arrive
  wait,          // mbarrier.try_wait.parity until it succeeds
  named_arrive,  // barrier.arrive
  named_sync,    // barrier.sync
  begin_read,
  end_read,
  begin_write,
  end_write,
};

struct Operation {
  struct Access {
    int version, buffer;
  };
  Action action;
  std::string who, text;
  int barrier = -1;
  int parity = 0;
  std::vector<Access> accesses = {};
  int issues = -1;  // the copy that this sets off
};

struct Protocol {
  struct Barrier {
    std::string name;
    int arrivals;  // that complete a phase or a generation
  };
  struct Agent {  // a role, or a copy, which goes its own way once it is issued
    std::string name;
    std::vector<Operation> program;
  };
  std::vector<Barrier> barriers;
  std::vector<std::string> versions = {"nothing"};  // all contents that any buffer ever has
  std::vector<Agent> agents;
  int buffers = 0;

  Tile tile(std::string name, int count = 1) {
    buffers += count;
    return {std::move(name), buffers - count, count};
  }
  std::vector<Mbarrier> mbarriers(const std::string& name, int count, int arrivals) {
    return ring<Mbarrier>(name, count, arrivals);
  }
  std::vector<NamedBarrier> named_barriers(const std::string& name, int count, int roles) {
    return ring<NamedBarrier>(name, count, roles);
  }
  NamedBarrier named_barrier(const std::string& name, int roles = 2) {
    return named_barriers(name, 1, roles).front();
  }
  template <typename Body>
  void role(const std::string& name, int chunks, Body body);

  // The same, but nobody, or this role not, ever comes to the barriers of that name.
  Protocol without(const std::string& name, std::string_view role = "") const {
    Protocol rest = *this;
    for (Agent& agent : rest.agents)
      if (role.empty() || agent.name == role)
        std::erase_if(agent.program, [&](const Operation& operation) {
          return operation.barrier >= 0 &&
                 (barriers[operation.barrier].name + "[").starts_with(name + "[");
        });
    return rest;
  }

 private:
  template <typename Kind>
  std::vector<Kind> ring(const std::string& name, int count, int arrivals) {
    std::vector<Kind> made;
    for (int i = 0; i < count; ++i) {
      made.push_back({static_cast<int>(barriers.size())});
      barriers.push_back({count == 1 ? name : name + "[" + std::to_string(i) + "]", arrivals});
    }
    return made;
  }
};

// Writes what a role does for one chunk. Tiles that one operation names are accessed together, from
// the first one's begin to the last one's end: whatever the hardware does lies in between.
class Role {
 public:
  Role(Protocol& protocol, std::size_t agent, int chunk)
      : protocol_(protocol), agent_(agent), chunk_(chunk) {}
  void arrive(Mbarrier b) { add(Action::arrive, "arrive", b.index); }
  void wait(Mbarrier b, int parity) { add(Action::wait, "wait", b.index).parity = parity; }
  void arrive(NamedBarrier b) { add(Action::named_arrive, "arrive", b.index); }
  void sync(NamedBarrier b) { add(Action::named_sync, "sync", b.index); }
  void begin_read(const Tiles& tiles) { add(Action::begin_read, "begin read", -1, tiles); }
  void end_read(const Tiles& tiles) { add(Action::end_read, "end read", -1, tiles); }
  void begin_write(const Tiles& tiles) { add(Action::begin_write, "begin write", -1, tiles); }
  void end_write(const Tiles& tiles) { add(Action::end_write, "end write", -1, tiles); }
  void read(const Tiles& tiles) { begin_read(tiles), end_read(tiles); }
  void write(const Tiles& tiles) { begin_write(tiles), end_write(tiles); }
  // By the tensor memory accelerator: the role goes on, and the copy arrives when it is there.
  void copy(const Tiles& tiles, Mbarrier full) {
    begin_write(tiles);
    protocol_.agents[agent_].program.back().issues = static_cast<int>(protocol_.agents.size());
    protocol_.agents.push_back({"Copy", {}});
    Role engine(protocol_, protocol_.agents.size() - 1, chunk_);
    engine.add(Action::dormant, "");
    engine.end_write(tiles);
    engine.arrive(full);
  }

 private:
  Operation& add(Action action, std::string text, int barrier = -1, const Tiles& tiles = {}) {
    if (barrier >= 0) text += " " + protocol_.barriers[barrier].name;
    std::vector<Operation::Access> accesses;
    std::vector<std::string>& versions = protocol_.versions;
    for (const Contents& tile : tiles) {
      text += " " + tile.name;
      const auto known = std::find(versions.begin(), versions.end(), tile.name);
      accesses.push_back({static_cast<int>(known - versions.begin()), tile.buffer});
      if (known == versions.end()) versions.push_back(tile.name);
    }
    Protocol::Agent& self = protocol_.agents[agent_];
    const std::string who = self.name + "(" + std::to_string(chunk_) + ")";
    self.program.push_back({action, who, std::move(text), barrier, 0, std::move(accesses)});
    return self.program.back();
  }
  Protocol& protocol_;
  std::size_t agent_;
  int chunk_;
};

template <typename Body>
void Protocol::role(const std::string& name, int chunks, Body body) {
  const std::size_t agent = agents.size();
  agents.push_back({name, {}});
  for (int c = 0; c < chunks; ++c) {
    Role role(*this, agent, c);
    body(role, c);
  }
}

enum class FaultKind {
  deadlock,
  overwrite_before_read,
  read_before_write,
  barrier_misuse,
  left_over
};

struct Fault {
  FaultKind kind;
  std::string what;                     // the contents or the barrier, and who is at it
  std::vector<std::string> trace = {};  // all operations, up to the one at fault
};

struct Findings {
  std::size_t states = 0;
  bool finishes = false;           // in some interleaving
  std::vector<Fault> faults = {};  // a shortest one of every kind there is, shortest first
};

class Explorer {
 public:
  explicit Explorer(const Protocol& protocol)
      : barriers_(protocol.barriers), versions_(protocol.versions), agents_(protocol.agents) {
    bool fits = agents_.size() <= State{}.position.size() && versions_.size() <= 256 &&
                barriers_.size() <= State{}.barriers.size() &&
                static_cast<std::size_t>(protocol.buffers) <= State{}.buffers.size();
    for (const Protocol::Agent& agent : agents_) {
      fits = fits && agent.program.size() < 256;
      for (const Operation& operation : agent.program)
        if (operation.action == Action::begin_read)
          for (const auto& [version, buffer] : operation.accesses) ++reads_.at(version);
    }
    if (!fits) throw std::length_error("Explorer::State has no room for the protocol");
  }

  // Breadth first, so that the first trace to a fault is a shortest one.
  Findings explore() {
    Findings findings;
    std::deque<const State*> open = {&seen_.try_emplace(State{}).first->first};
    for (; !open.empty(); open.pop_front()) {
      const State& state = *open.front();
      bool stuck = true;
      for (std::size_t agent = 0; agent < agents_.size(); ++agent) {
        if (is_blocked(state, agent)) continue;
        stuck = false;
        State next = state;
        if (std::optional<Fault> fault = step(next, agent)) {
          const Operation& operation = at(state, agent);
          fault->what += ", by " + operation.who;
          fault->trace = {operation.who + ": " + operation.text};
          report(findings, *std::move(fault), state);
        } else if (const auto [entry, is_new] = seen_.try_emplace(next, Origin{&state, agent});
                   is_new) {
          open.push_back(&entry->first);
        }
      }
      if (!stuck) continue;
      if (std::string who = unfinished(state); !who.empty()) {
        report(findings, {FaultKind::deadlock, std::move(who)}, state);
        continue;
      }
      findings.finishes = true;
      for (std::size_t i = 0; i < barriers_.size(); ++i)
        if (state.barriers[i].arrived != 0 || state.barriers[i].arrivals != 0)
          report(findings, {FaultKind::left_over, barriers_[i].name}, state);
    }
    findings.states = seen_.size();
    return findings;
  }

 private:
  // Without padding: states are compared and hashed as bytes.
  struct State {
    struct Barrier {
      std::uint16_t arrived = 0;  // which agents, in this generation of a named barrier
      std::uint16_t waiting = 0;  // those of them that are blocked in it
      std::uint8_t arrivals = 0;  // in this phase of an mbarrier
      std::uint8_t parity = 0;    // of this phase
    };
    struct Buffer {
      std::uint8_t version = 0;  // of its contents
      std::uint8_t reads = 0;    // of this version, that have ended
      std::uint8_t is_written = 0;
    };
    std::array<Barrier, 20> barriers;
    std::array<Buffer, 24> buffers;
    std::array<std::uint8_t, 16> position = {};  // of every agent in its program

    std::string_view bytes() const { return {reinterpret_cast<const char*>(this), sizeof *this}; }
    bool operator==(const State& other) const { return bytes() == other.bytes(); }
  };
  static_assert(std::has_unique_object_representations_v<State>);
  struct Hash {
    std::size_t operator()(const State& s) const {
      return std::hash<std::string_view>{}(s.bytes());
    }
  };
  struct Origin {
    const State* state = nullptr;
    std::size_t agent = 0;
  };

  bool is_finished(const State& state, std::size_t agent) const {
    return state.position[agent] == agents_[agent].program.size();
  }
  const Operation& at(const State& state, std::size_t agent) const {
    return agents_[agent].program[state.position[agent]];
  }
  bool is_blocked(const State& state, std::size_t agent) const {
    if (is_finished(state, agent)) return true;
    const Operation& operation = at(state, agent);
    if (operation.action == Action::wait)  // passes once the phase of that parity is over
      return state.barriers[operation.barrier].parity == operation.parity;
    if (operation.action == Action::named_sync)  // has it arrived? Then the last one lets it go.
      return (state.barriers[operation.barrier].waiting & (1u << agent)) != 0;
    return operation.action == Action::dormant;
  }

  std::optional<Fault> step(State& state, std::size_t agent) const {
    const Operation& operation = at(state, agent);
    if (operation.action != Action::named_sync) ++state.position[agent];
    if (operation.issues >= 0) ++state.position[operation.issues];
    if (operation.action == Action::arrive) return arrive_at_mbarrier(state, operation.barrier);
    if (operation.action == Action::named_arrive || operation.action == Action::named_sync)
      return come_to_named_barrier(state, operation, agent);
    for (const auto& [version, index] : operation.accesses) {
      State::Buffer& buffer = state.buffers[index];
      if (operation.action == Action::begin_read) {
        if (buffer.version != version || buffer.is_written != 0)
          return Fault{FaultKind::read_before_write, versions_[version]};
      } else if (operation.action == Action::end_read) {
        ++buffer.reads;
      } else if (operation.action == Action::begin_write) {
        if (buffer.is_written != 0 || buffer.reads < reads_[buffer.version])
          return Fault{FaultKind::overwrite_before_read, versions_[buffer.version]};
        buffer = {.version = static_cast<std::uint8_t>(version), .is_written = 1};
      } else {
        buffer.is_written = 0;
      }
    }
    return std::nullopt;
  }

  std::optional<Fault> arrive_at_mbarrier(State& state, int index) const {
    State::Barrier& barrier = state.barriers[index];
    if (++barrier.arrivals < barriers_[index].arrivals) return std::nullopt;
    // The phase is over. Whoever has yet to wait for the one before would have passed, and will now
    // be blocked: the phase that begins has the parity of that one.
    for (std::size_t agent = 0; agent < agents_.size(); ++agent) {
      const std::vector<Operation>& program = agents_[agent].program;
      const auto next_wait = std::find_if(
          program.begin() + state.position[agent], program.end(), [&](const Operation& operation) {
            return operation.action == Action::wait && operation.barrier == index;
          });
      if (next_wait != program.end() && next_wait->parity != barrier.parity)
        return Fault{FaultKind::barrier_misuse, barriers_[index].name};
    }
    barrier.arrivals = 0;
    barrier.parity ^= 1;
    return std::nullopt;
  }

  std::optional<Fault> come_to_named_barrier(State& state, const Operation& operation,
                                             std::size_t agent) const {
    State::Barrier& barrier = state.barriers[operation.barrier];
    const Protocol::Barrier& fixed = barriers_[operation.barrier];
    const unsigned self = 1u << agent;
    if ((barrier.arrived & self) != 0) return Fault{FaultKind::barrier_misuse, fixed.name};
    barrier.arrived |= self;
    if (operation.action == Action::named_sync) barrier.waiting |= self;
    if (std::popcount(barrier.arrived) < fixed.arrivals) return std::nullopt;
    for (std::size_t other = 0; other < agents_.size(); ++other)
      if ((barrier.waiting & (1u << other)) != 0) ++state.position[other];
    barrier = {};
    return std::nullopt;
  }

  std::string unfinished(const State& state) const {
    std::string text;
    for (std::size_t agent = 0; agent < agents_.size(); ++agent) {
      if (is_finished(state, agent) || at(state, agent).action == Action::dormant) continue;
      if (!text.empty()) text += ", ";
      text += at(state, agent).who + " at " + barriers_[at(state, agent).barrier].name;
    }
    return text;
  }

  void report(Findings& findings, Fault fault, const State& state) const {
    for (const Fault& known : findings.faults)
      if (known.kind == fault.kind) return;
    for (Origin from = seen_.at(state); from.state != nullptr; from = seen_.at(*from.state)) {
      const Operation& operation = at(*from.state, from.agent);
      fault.trace.insert(fault.trace.begin(), operation.who + ": " + operation.text);
    }
    findings.faults.push_back(std::move(fault));
  }

  const std::vector<Protocol::Barrier>& barriers_;
  const std::vector<std::string>& versions_;
  const std::vector<Protocol::Agent>& agents_;
  std::array<int, 256> reads_ = {};               // of every version, in all programs
  std::unordered_map<State, Origin, Hash> seen_;  // nodes do not move: Origin points at them
};

inline Findings explore(const Protocol& protocol) { return Explorer(protocol).explore(); }

}  // namespace gdn::protocol
