// The barriers between the warpgroups of a chunk chain in form 4 of kernels/README.md: what every
// warpgroup does, to be read beside a kernel, and what all interleavings of that come to.
#include "tests/protocol.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

namespace gdn::protocol {
namespace {

using enum FaultKind;

std::string name_of(FaultKind kind) {
  static constexpr std::array names = {"deadlock", "overwrite before read", "read before write",
                                       "barrier misuse", "left over"};
  return names[static_cast<std::size_t>(kind)];
}

std::string text_of(const Findings& findings) {
  std::string text = std::to_string(findings.states) + " states" +
                     (findings.finishes ? "" : ", and no interleaving comes to an end");
  for (const Fault& fault : findings.faults) {
    text += "\n" + name_of(fault.kind) + ": " + fault.what + ", after";
    for (const std::string& operation : fault.trace) text += "\n  " + operation;
  }
  return text;
}

// All of it is in order, whichever way it goes.
::testing::AssertionResult is_ordered(const Protocol& protocol) {
  const Findings findings = explore(protocol);
  if (findings.finishes && findings.faults.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << text_of(findings);
}

// What goes wrong first, in the fewest operations.
::testing::AssertionResult fails_by(FaultKind kind, const std::string& what,
                                    const Protocol& protocol) {
  const Findings findings = explore(protocol);
  if (!findings.faults.empty() && findings.faults[0].kind == kind &&
      findings.faults[0].what == what)
    return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << text_of(findings);
}

// The explorer itself, on protocols of a few operations.

TEST(Protocol, PhasesOfAnMbarrierAreToldByParity) {
  Protocol protocol;
  const Mbarrier full = protocol.mbarriers("full", 1, 1)[0];
  const Mbarrier free = protocol.mbarriers("free", 1, 1)[0];
  const Tile x = protocol.tile("x");
  protocol.role("Load", 4, [&](Role& self, int c) {
    self.wait(free, (c % 2) ^ 1);
    self.copy({x(c)}, full);
  });
  protocol.role("User", 4, [&](Role& self, int c) {
    self.wait(full, c % 2);
    self.read({x(c)});
    self.arrive(free);
  });
  EXPECT_TRUE(is_ordered(protocol));
  EXPECT_TRUE(fails_by(read_before_write, "x(0), by User(0)", protocol.without("full", "User")));
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "x(0), by Load(1)", protocol.without("free", "Load")));
  EXPECT_TRUE(fails_by(deadlock, "Load(1) at free, User(1) at full",  //
                       protocol.without("free", "User")));
}

TEST(Protocol, APhaseThatSomeoneMissesIsAMisuse) {
  Protocol protocol;
  const Mbarrier ready = protocol.mbarriers("ready", 1, 1)[0];
  protocol.role("Ahead", 2, [&](Role& self, int) { self.arrive(ready); });
  protocol.role("Behind", 2, [&](Role& self, int c) { self.wait(ready, c % 2); });
  EXPECT_TRUE(fails_by(barrier_misuse, "ready, by Ahead(1)", protocol));
}

TEST(Protocol, ARoleComesToANamedBarrierOnceInAGeneration) {
  Protocol protocol;
  const NamedBarrier ready = protocol.named_barrier("ready");
  const NamedBarrier seen = protocol.named_barrier("seen");
  protocol.role("Ahead", 3, [&](Role& self, int) { self.arrive(ready), self.sync(seen); });
  protocol.role("Behind", 3, [&](Role& self, int) { self.sync(ready), self.arrive(seen); });
  EXPECT_TRUE(is_ordered(protocol));
  EXPECT_TRUE(fails_by(barrier_misuse, "ready, by Ahead(1)", protocol.without("seen")));
  EXPECT_TRUE(fails_by(deadlock, "Ahead(0) at seen, Behind(0) at ready",
                       protocol.without("ready", "Ahead")));
}

TEST(Protocol, WhatNobodyWaitedForIsLeftOver) {
  Protocol protocol;
  const NamedBarrier ready = protocol.named_barrier("ready");
  protocol.role("Ahead", 1, [&](Role& self, int) { self.arrive(ready); });
  EXPECT_TRUE(fails_by(left_over, "ready", protocol));
}

TEST(Protocol, AccessesTakeTime) {
  Protocol protocol;
  const NamedBarrier begun = protocol.named_barrier("begun");
  const Tile x = protocol.tile("x");
  protocol.role("Writer", 1, [&](Role& self, int) {
    self.begin_write({x(0)});
    self.arrive(begun);
    self.end_write({x(0)});
  });
  Protocol with_reader = protocol;
  with_reader.role("Reader", 1, [&](Role& self, int) { self.sync(begun), self.read({x(0)}); });
  EXPECT_TRUE(fails_by(read_before_write, "x(0), by Reader(0)", with_reader));
  Protocol with_writer = protocol;
  with_writer.role("Other", 1, [&](Role& self, int) { self.sync(begun), self.write({x(1)}); });
  EXPECT_TRUE(fails_by(overwrite_before_read, "x(0), by Other(0)", with_writer));
}

TEST(Protocol, ATraceIsAShortestOne) {
  Protocol protocol;
  const NamedBarrier ready = protocol.named_barrier("ready");
  const Tile x = protocol.tile("x");
  protocol.role("Writer", 2, [&](Role& self, int c) { self.write({x(c)}), self.arrive(ready); });
  protocol.role("Reader", 2, [&](Role& self, int c) { self.sync(ready), self.read({x(c)}); });
  const std::vector<std::string> trace = {"Writer(0): begin write x(0)",
                                          "Writer(0): end write x(0)", "Writer(0): arrive ready",
                                          "Writer(1): begin write x(1)"};
  const Findings findings = explore(protocol);
  ASSERT_FALSE(findings.faults.empty());
  EXPECT_EQ(findings.faults[0].trace, trace);
}

// The chain, in two protocols. In the joint one State waits for Value and Output at once before its
// product; in the split one for Value alone, and Output has the time until S is overwritten.

struct Options {
  int chunks = 4;  // of a sequence
  int sequences = 1;
  int stages = 2;
  bool joint = false;
  int frees = 3;         // arrivals that make a stage free
  int value_readys = 2;  // barriers that the chunks take in turns
  // Mistakes:
  bool last_frees_decayed = false;     // though the next chunk, of another sequence, does not wait
  bool frees_before_store = false;     // while O is still read
  bool state_waits_for_value = false;  // before it hands out the S that the value is made of
};

// Shared memory and barriers of a block, and its four warpgroups, chunk by chunk. Chunks are
// counted on from sequence to sequence.
struct Chain {
  Options options;
  Protocol protocol = {};

  Tile Q = protocol.tile("Q", options.stages);
  Tile K = protocol.tile("K", options.stages);
  Tile V = protocol.tile("V", options.stages);
  Tile R = V.in_place("R");
  Tile V_hat = V.in_place("V_hat");
  Tile O = V.in_place("O");
  Tile A = protocol.tile("A", options.stages);
  Tile gates = protocol.tile("gates", options.stages);
  Tile S = protocol.tile("S");  // what a chunk starts from, rounded
  Tile D = protocol.tile("D");  // diag(exp(g_C − g)) V̂
  Tile P = protocol.tile("P");

  std::vector<Mbarrier> full = protocol.mbarriers("full", options.stages, 1);
  std::vector<Mbarrier> free = protocol.mbarriers("free", options.stages, options.frees);
  NamedBarrier state_for_value = protocol.named_barrier("state_for_value");
  NamedBarrier state_for_output = protocol.named_barrier("state_for_output");
  NamedBarrier state_read_by_value = protocol.named_barrier("state_read_by_value");
  NamedBarrier state_read_by_output = protocol.named_barrier("state_read_by_output");
  NamedBarrier decayed_free = protocol.named_barrier("decayed_free");
  NamedBarrier decayed_ready = options.joint ? protocol.named_barrier("joint_ready", 3)
                                             : protocol.named_barrier("decayed_ready");
  std::vector<NamedBarrier> value_ready = protocol.named_barriers(
      "value_ready", options.value_readys, options.state_waits_for_value ? 3 : 2);

  int stage(int c) const { return c % options.stages; }
  int parity(int c) const { return c / options.stages % 2; }
  bool is_first(int c) const { return c % options.chunks == 0; }
  bool is_last(int c) const { return is_first(c + 1); }

  void load(Role& self, int c) const {
    self.wait(free[stage(c)], parity(c) ^ 1);  // passes in the first round
    self.copy({Q(c), K(c), V(c), A(c), gates(c)}, full[stage(c)]);
  }

  void value(Role& self, int c) const {
    self.wait(full[stage(c)], parity(c));
    self.sync(state_for_value);
    self.read({K(c), S(c)});
    self.arrive(state_read_by_value);
    self.read({V(c), gates(c)});
    self.write({R(c)});  // R = V − Γ K S
    self.read({A(c), R(c)});
    if (!is_first(c)) self.sync(decayed_free);
    self.write({D(c)});  // V̂ = A B R, faded
    self.arrive(decayed_ready);
    self.write({V_hat(c)});
    self.arrive(value_ready[c % options.value_readys]);
    self.arrive(free[stage(c)]);
  }

  void state(Role& self, int c) const {
    if (is_first(c)) self.write({S(c)});
    if (options.state_waits_for_value) self.sync(value_ready[c % options.value_readys]);
    self.arrive(state_for_value);
    self.arrive(state_for_output);
    self.wait(full[stage(c)], parity(c));
    self.read({gates(c)});  // γ_C S
    self.sync(decayed_ready);
    self.read({K(c), D(c)});  // S' = γ_C S + Kᵀ D
    if (!is_last(c) || options.last_frees_decayed) self.arrive(decayed_free);
    self.arrive(free[stage(c)]);
    self.sync(state_read_by_value);
    self.sync(state_read_by_output);
    if (!is_last(c)) self.write({S(c + 1)});
  }

  void output(Role& self, int c) const {
    self.wait(full[stage(c)], parity(c));
    self.read({Q(c), K(c), gates(c)});
    self.write({P(c)});  // P = tril(Q Kᵀ ∘ exp(g_i − g_j))
    self.sync(state_for_output);
    self.read({Q(c), S(c)});
    self.arrive(state_read_by_output);
    self.sync(value_ready[c % options.value_readys]);
    self.read({P(c), V_hat(c)});
    self.write({O(c)});       // O = scale (Γ Q S + P V̂)
    self.begin_read({O(c)});  // the store
    if (options.frees_before_store) self.arrive(free[stage(c)]);
    self.end_read({O(c)});
    if (options.joint) self.arrive(decayed_ready);
    if (!options.frees_before_store) self.arrive(free[stage(c)]);
  }
};

Protocol chain(const Options& options) {
  Chain chain{options};
  const auto role = [&](const char* name, auto body) {
    chain.protocol.role(name, options.chunks * options.sequences,
                        [&](Role& self, int c) { (chain.*body)(self, c); });
  };
  role("Load", &Chain::load);
  role("Value", &Chain::value);
  role("State", &Chain::state);
  role("Output", &Chain::output);
  return std::move(chain.protocol);
}

// The fewest barriers that will do. D is free when there is the next S, which is made of it. Value
// has read S when D is ready, and it is done with a stage before Output is. In the joint one State
// waits for the store of O as well: that Output has read S, and that it is done with the stage,
// goes without saying, and Value stays within a chunk of it.
Protocol lean(Options options) {
  options.frees = options.joint ? 1 : 2;
  options.value_readys = options.joint ? 1 : 2;
  Protocol protocol = chain(options)
                          .without("decayed_free")
                          .without("state_read_by_value")
                          .without("free", "Value");
  if (!options.joint) return protocol;
  return protocol.without("state_read_by_output").without("free", "Output");
}

const std::vector<Options> shapes = {
    {.chunks = 3, .stages = 2},
    {.chunks = 5, .stages = 2},
    {.chunks = 5, .stages = 3},
    {.chunks = 1, .sequences = 4, .stages = 2},
    {.chunks = 2, .sequences = 3, .stages = 3},
};

std::string shape_of(const Options& o) {
  return (o.joint ? "joint, " : "split, ") + std::to_string(o.sequences) + " × " +
         std::to_string(o.chunks) + " chunks, " + std::to_string(o.stages) + " stages";
}

TEST(ChunkChain, IsOrdered) {
  for (Options options : shapes)
    for (const bool joint : {false, true}) {
      options.joint = joint;
      SCOPED_TRACE(shape_of(options));
      EXPECT_TRUE(is_ordered(chain(options)));
      EXPECT_TRUE(is_ordered(lean(options)));
    }
}

// Value may have a chunk's V̂ before Output has waited for that of the chunk before. It is never two
// ahead: for that it takes an S that State cannot write before Output has read the last one.
TEST(ChunkChain, ValueReadyTakesTwoBarriersInTurns) {
  EXPECT_TRUE(fails_by(barrier_misuse, "value_ready, by Value(1)", chain({.value_readys = 1})));
  EXPECT_TRUE(is_ordered(chain({.joint = true, .value_readys = 1})));
}

TEST(ChunkChain, StateWaitsUntilOutputHasReadIt) {
  const Protocol split = chain({});
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "S(0), by State(0)", split.without("state_read_by_output")));
  EXPECT_TRUE(fails_by(overwrite_before_read, "S(0), by State(0)",
                       split.without("state_read_by_output", "State")));
  EXPECT_TRUE(is_ordered(chain({.joint = true}).without("state_read_by_output")));
}

// No fault: D(c) has been read when S(c + 1) is written, and without that there is no D(c + 1).
TEST(ChunkChain, DecayedFreeSaysNothingNew) {
  EXPECT_TRUE(is_ordered(chain({}).without("decayed_free")));
  EXPECT_TRUE(is_ordered(chain({.joint = true}).without("decayed_free")));
  // But whoever has it must wait for it.
  EXPECT_TRUE(fails_by(barrier_misuse, "decayed_free, by State(1)",
                       chain({}).without("decayed_free", "Value")));
}

TEST(ChunkChain, TheLastChunkDoesNotFreeDecayed) {
  EXPECT_TRUE(fails_by(left_over, "decayed_free", chain({.last_frees_decayed = true})));
  EXPECT_TRUE(fails_by(barrier_misuse, "decayed_free, by State(2)",
                       chain({.chunks = 2, .sequences = 2, .last_frees_decayed = true})));
}

TEST(ChunkChain, AStageIsFreeWhenTheStoreHasReadIt) {
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "O(0), by Load(2)", chain({.frees_before_store = true})));
  // Here State has waited for the store before it frees the stage in its turn.
  EXPECT_TRUE(is_ordered(chain({.joint = true, .frees_before_store = true})));
}

TEST(ChunkChain, StateCannotWaitForWhatIsMadeOfIt) {
  EXPECT_TRUE(fails_by(deadlock,
                       "Load(2) at free[0], Value(0) at state_for_value, "
                       "State(0) at value_ready[0], Output(0) at state_for_output",
                       chain({.state_waits_for_value = true})));
}

TEST(ChunkChain, LoadWaitsUntilAStageIsFree) {
  EXPECT_TRUE(fails_by(overwrite_before_read, "Q(0), by Load(2)", chain({}).without("free")));
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "Q(0), by Load(2)", chain({}).without("free", "Load")));
}

// Nothing more can be left out of the lean ones.
TEST(ChunkChain, EveryOtherBarrierIsNeeded) {
  for (const bool joint : {false, true}) {
    SCOPED_TRACE(joint ? "joint" : "split");
    const Protocol protocol = lean({.joint = joint});
    const auto needs = [&](const std::string& barrier, FaultKind kind, const std::string& what) {
      EXPECT_TRUE(fails_by(kind, what, protocol.without(barrier))) << barrier;
    };
    needs("free", overwrite_before_read, "Q(0), by Load(2)");
    needs("state_for_value", read_before_write, "S(0), by Value(0)");
    needs("state_for_output", read_before_write, "S(0), by Output(0)");
    needs("value_ready", read_before_write, "V_hat(0), by Output(0)");
    needs(joint ? "joint_ready" : "decayed_ready", read_before_write, "D(0), by State(0)");
    if (!joint) needs("state_read_by_output", overwrite_before_read, "S(0), by State(0)");
    EXPECT_TRUE(
        fails_by(read_before_write, "K(0), by Value(0)", protocol.without("full", "Value")));
    EXPECT_TRUE(
        fails_by(read_before_write, "Q(0), by Output(0)", protocol.without("full", "Output")));
  }
  // Of the split one's two arrivals that free a stage, neither implies the other.
  const Protocol freed_once = chain({.frees = 1}).without("free", "Value");
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "K(0), by Load(2)", freed_once.without("free", "State")));
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "Q(0), by Load(2)", freed_once.without("free", "Output")));
}

// The chain of kernels/cuda/register_chain.cuh: State warpgroups that never meet, each with its
// half of the values, and nothing between one S and the next but what the inputs wait for.

struct RegisterOptions {
  int chunks = 4;        // of a segment
  int first_output = 0;  // the chunks before only bring S about
  int stages = 2;
  int state_groups = 2;
  int gates_slots = 4;  // that a chunk's gates go round
  int fills = 4;        // arrivals that make a stage full
  // Chunks with low halves, for which there is one place: the first ones. Behind others Scores
  // waits for a phase of `free` where it has waited for none before, but Load has.
  int split = 0;
  bool late = false;  // State waits for the inputs of no chunk but its own (forward_chain.cuh)
  // 1: Load waits for each place in the first round as well, until State has released it.
  int first_parity = 0;
  bool short_end = false;  // the last chunk is not for the copy engine: Gates brings it as well
  // Mistakes:
  bool skips_scores = false;    // State, where there is no output
  bool takes_one_turn = false;  // all outputs have one barrier
};

struct RegisterChain {
  RegisterOptions options;
  Protocol protocol = {};

  Tile inputs = protocol.tile("inputs", options.stages);  // Q, K
  Tile A = protocol.tile("A", options.stages);
  std::vector<Tile> V = halves();
  Tile gates = protocol.tile("gates", options.gates_slots);
  Tile P = protocol.tile("P", options.stages);
  Tile low = protocol.tile("low");

  std::vector<Mbarrier> full = protocol.mbarriers("full", options.stages, options.fills);
  std::vector<Mbarrier> free = protocol.mbarriers("free", options.stages, options.state_groups);
  std::vector<Mbarrier> scores_full = protocol.mbarriers("scores_full", options.stages, 1);
  std::vector<Mbarrier> output_full = protocol.mbarriers(
      "output_full", options.takes_one_turn ? 1 : options.stages, options.state_groups);
  std::vector<Mbarrier> stored = protocol.mbarriers("stored", options.stages, 1);

  std::vector<Tile> halves() {
    std::vector<Tile> tiles;
    for (int i = 0; i < options.state_groups; ++i)
      tiles.push_back(protocol.tile("V" + std::to_string(i), options.stages));
    return tiles;
  }
  Contents O(int group, int c) const { return V[group].in_place("O" + std::to_string(group))(c); }
  Tiles values(int c) const {
    Tiles all;
    for (const Tile& half : V) all.push_back(half(c));
    return all;
  }
  int stage(int c) const { return c % options.stages; }
  int parity(int c) const { return c / options.stages % 2; }
  bool is_last(int c) const { return c + 1 == options.chunks; }
  bool is_short(int c) const { return options.short_end && is_last(c); }
  bool has_output(int c) const { return c >= options.first_output; }
  bool is_split(int c) const { return c < options.split; }
  int outputs() const { return options.chunks - options.first_output; }
  Mbarrier output_full_of(int output) const { return output_full[output % output_full.size()]; }

  void wait_for_place(Role& self, int c) const {
    // Passes in a first round of parity 0.
    self.wait(free[stage(c)], parity(c) ^ 1 ^ options.first_parity);
  }
  void load_gates(Role& self, int c) const {
    wait_for_place(self, c);
    self.write({gates(c)});
    if (is_short(c)) {
      wait_until_stored(self, c);
      self.write({inputs(c), A(c)});
      self.write(values(c));
    }
    self.arrive(full[stage(c)]);
  }
  void load(Role& self, int c) const {
    wait_for_place(self, c);
    if (is_short(c)) {  // of which this is a part, and arrives for what it copies else
      for (int arrival = 1; arrival < options.fills; ++arrival) self.arrive(full[stage(c)]);
      return;
    }
    self.copy({inputs(c), A(c)}, full[stage(c)]);
    wait_until_stored(self, c);
    self.copy(values(c), full[stage(c)]);
    self.arrive(full[stage(c)]);
  }
  // What was in the place of chunk c's V, if that was an output.
  void wait_until_stored(Role& self, int c) const {
    const int output = c - options.stages - options.first_output;
    if (output >= 0) self.wait(stored[stage(output)], parity(output));
  }

  // Until State has read the low halves that are there, if this chunk has some.
  void wait_for_place_of_low(Role& self, int c) const {
    if (!is_split(c)) return;
    const int before = c - 1 + options.stages;  // in the round ahead: at once in the first chunk
    self.wait(free[stage(before)], parity(before) ^ 1);
  }
  void scores(Role& self, int c) const {
    self.wait(full[stage(c)], parity(c));
    self.read({gates(c)});
    wait_for_place_of_low(self, c);
    if (is_split(c)) self.write({low(c)});
    if (has_output(c)) {
      self.read({inputs(c), gates(c)});
      self.write({P(c)});
    }
    self.arrive(scores_full[stage(c)]);
  }

  void put_output(Role& self, int group, int c) const {
    self.write({O(group, c)});
    self.arrive(output_full_of(c - options.first_output));
  }
  void wait_for_inputs(Role& self, int group, int c) const {
    self.wait(full[stage(c)], parity(c));
    self.read({V[group](c), gates(c)});  // −V/γ
  }

  void state(Role& self, int group, int c) const {
    if (c == 0 || options.late) wait_for_inputs(self, group, c);
    const bool after_output = !options.late && c > 0 && has_output(c - 1);
    if (after_output) self.begin_read({P(c - 1), gates(c - 1)});  // W P', and O's factors
    self.begin_read({inputs(c), A(c), gates(c)});                 // K S, Q S
    if (after_output) {
      self.end_read({P(c - 1), gates(c - 1)});
      self.arrive(free[stage(c - 1)]);
      put_output(self, group, c - 1);
    }
    if (has_output(c) || !options.skips_scores) self.wait(scores_full[stage(c)], parity(c));
    if (is_split(c)) self.read({low(c)});
    if (!options.late && !is_last(c)) wait_for_inputs(self, group, c + 1);
    if (options.late && has_output(c)) self.read({P(c)});
    self.end_read({inputs(c), A(c), gates(c)});  // S'
    if (!has_output(c)) self.arrive(free[stage(c)]);
    if (!has_output(c) || (!options.late && !is_last(c))) return;
    if (!options.late) self.read({P(c)});
    if (options.late) self.arrive(free[stage(c)]);  // behind the last chunk nobody waits for it
    self.read({gates(c)});
    put_output(self, group, c);
  }

  void store(Role& self, int output) const {
    const int c = options.first_output + output;
    self.wait(output_full_of(output), output / static_cast<int>(output_full.size()) % 2);
    Tiles all;
    for (int group = 0; group < options.state_groups; ++group) all.push_back(O(group, c));
    self.read(all);
    self.arrive(stored[stage(output)]);
  }

  void add_load() {
    protocol.role("Gates", options.chunks, [&](Role& self, int c) { load_gates(self, c); });
    protocol.role("Load", options.chunks, [&](Role& self, int c) { load(self, c); });
  }
  // `own` is this chain, which may have a state of its own.
  template <typename Own>
  void add_state_and_store(const Own& own) {
    for (int group = 0; group < options.state_groups; ++group)
      protocol.role("State" + std::to_string(group), options.chunks,
                    [&](Role& self, int c) { own.state(self, group, c); });
    protocol.role("Store", outputs(), [&](Role& self, int output) { store(self, output); });
  }
};

Protocol register_chain(const RegisterOptions& options) {
  RegisterChain chain{options};
  const int chunks = options.chunks;
  chain.add_load();
  chain.protocol.role("Scores", chunks, [&](Role& self, int c) { chain.scores(self, c); });
  chain.add_state_and_store(chain);
  return std::move(chain.protocol);
}

TEST(RegisterChain, IsOrdered) {
  for (const RegisterOptions& options :
       std::vector<RegisterOptions>{{.chunks = 1},
                                    {.chunks = 5, .state_groups = 1},
                                    {.chunks = 5, .stages = 3, .state_groups = 1},
                                    {.chunks = 4},
                                    {.chunks = 4, .stages = 3},
                                    {.chunks = 4, .first_output = 1},
                                    {.chunks = 4, .first_output = 2},
                                    {.chunks = 2, .first_output = 2},
                                    {.chunks = 4, .split = 4},
                                    {.chunks = 5, .stages = 3, .state_groups = 1, .split = 5},
                                    {.chunks = 4, .first_output = 2, .split = 3},
                                    {.chunks = 1, .short_end = true},
                                    {.chunks = 4, .short_end = true},
                                    {.chunks = 4, .first_output = 1, .short_end = true}}) {
    SCOPED_TRACE(std::to_string(options.chunks) + " chunks");
    EXPECT_TRUE(is_ordered(register_chain(options)));
  }
}

// A chunk's gates are read as long as its inputs; by a late State longer, which scales O when it
// has freed these.
TEST(RegisterChain, GatesNeedASlotMoreThanStagesWhereStateIsLate) {
  EXPECT_TRUE(is_ordered(register_chain({.gates_slots = 2})));
  EXPECT_TRUE(is_ordered(register_chain({.gates_slots = 3, .late = true})));
  EXPECT_TRUE(fails_by(overwrite_before_read, "gates(0), by Gates(2)",
                       register_chain({.gates_slots = 2, .late = true})));
  EXPECT_TRUE(is_ordered(register_chain({.first_output = 2, .stages = 3, .gates_slots = 3})));
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "gates(0), by Gates(1)", register_chain({.gates_slots = 1})));
}

// Else a phase that State has passed by would be taken for one that it waits for.
TEST(RegisterChain, StateGoesThroughTheScoresOfChunksWithoutOutputToo) {
  EXPECT_TRUE(fails_by(barrier_misuse, "scores_full[0], by Scores(0)",
                       register_chain({.first_output = 2, .skips_scores = true})));
}

// One group may have the last O when another has yet to put the one before.
TEST(RegisterChain, OutputsTakeBarriersInTurns) {
  EXPECT_TRUE(
      fails_by(read_before_write, "O1(2), by Store(2)", register_chain({.takes_one_turn = true})));
}

TEST(RegisterChain, EveryBarrierIsNeeded) {
  const Protocol protocol = register_chain({});
  const auto needs = [&](const std::string& barrier, const char* role, FaultKind kind,
                         const std::string& what) {
    EXPECT_TRUE(fails_by(kind, what, protocol.without(barrier, role))) << barrier << ' ' << role;
  };
  needs("full", "Scores", read_before_write, "gates(0), by Scores(0)");
  needs("full", "State0", read_before_write, "V0(0), by State0(0)");
  needs("free", "", overwrite_before_read, "inputs(0), by Load(2)");
  needs("free", "Load", overwrite_before_read, "inputs(0), by Load(2)");
  needs("free", "Gates", read_before_write, "V0(0), by State0(0)");
  needs("stored", "", overwrite_before_read, "O0(0), by Load(2)");
  needs("stored", "Load", overwrite_before_read, "O0(0), by Load(2)");
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "O0(1), by Gates(3)",
               register_chain({.chunks = 4, .short_end = true}).without("stored", "Gates")));
  needs("scores_full", "", read_before_write, "P(0), by State0(1)");
  needs("scores_full", "State1", read_before_write, "P(0), by State1(1)");
  needs("output_full", "", read_before_write, "O0(0), by Store(0)");
  needs("output_full", "Store", read_before_write, "O0(0), by Store(0)");
  EXPECT_TRUE(fails_by(overwrite_before_read, "low(0), by Scores(1)",
                       register_chain({.split = 2}).without("free", "Scores")));
}

// The last launch of rung 10 (kernels/cuda/two_pass_chain.cuh): before its first chunk State finds
// S in steps, whose M lie where inputs will, but for the first ones. So it releases the places that
// Load begins with: the first one at once, the others when it has taken its steps.

struct OutputsOptions {
  int chunks = 3;
  int first_output = 0;  // behind a warm-up, which takes no steps
  int steps = 3;
  int state_groups = 2;
  // Mistakes:
  int first_parity = 1;         // 0: Load takes each place as free in the first round
  bool releases_early = false;  // all places at once, though there are steps to take
};

struct OutputsChain : RegisterChain {
  int steps;
  bool releases_early;

  Tile M = {"M", inputs.first_buffer + 1, options.stages - 1};
  std::vector<Mbarrier> brought = protocol.mbarriers("brought", M.buffers, 1);
  NamedBarrier read_by_all = protocol.named_barrier("read_by_all", options.state_groups);

  void release_other_places(Role& self) const {
    for (int place = 1; place < options.stages; ++place) self.arrive(free[place]);
  }
  void bring(Role& self, int group, int step) const {  // by one thread
    if (group == 0 && step < steps) self.copy({M(step)}, brought[step % M.buffers]);
  }
  void state(Role& self, int group, int c) const {
    if (c == 0) {
      self.arrive(free[0]);
      if (steps == 0 || releases_early) release_other_places(self);
      for (int step = 0; step < M.buffers; ++step) bring(self, group, step);
      for (int step = 0; step < steps; ++step) {
        self.wait(brought[step % M.buffers], step / M.buffers % 2);
        self.read({M(step)});
        self.sync(read_by_all);
        bring(self, group, step + M.buffers);
      }
      if (steps > 0 && !releases_early) release_other_places(self);
    }
    RegisterChain::state(self, group, c);
  }
};

Protocol outputs_chain(const OutputsOptions& options) {
  OutputsChain chain{{{.chunks = options.chunks,
                       .first_output = options.first_output,
                       .stages = 3,
                       .state_groups = options.state_groups,
                       .first_parity = options.first_parity}},
                     options.steps,
                     options.releases_early};
  chain.add_load();
  chain.protocol.role("Scores", options.chunks, [&](Role& self, int c) { chain.scores(self, c); });
  chain.add_state_and_store(chain);
  return std::move(chain.protocol);
}

TEST(OutputsChain, IsOrdered) {
  for (const OutputsOptions& options :
       std::vector<OutputsOptions>{{.steps = 0},
                                   {.steps = 1},
                                   {.steps = 2},
                                   {.steps = 3},
                                   {.chunks = 1},
                                   {.chunks = 4, .steps = 1, .state_groups = 1},
                                   {.chunks = 4, .first_output = 2, .steps = 0}}) {
    SCOPED_TRACE(std::to_string(options.chunks) + " chunks, " + std::to_string(options.steps) +
                 " steps");
    EXPECT_TRUE(is_ordered(outputs_chain(options)));
  }
}

TEST(OutputsChain, PlacesAreReleasedBehindTheSteps) {
  EXPECT_TRUE(
      fails_by(overwrite_before_read, "M(0), by Load(1)", outputs_chain({.releases_early = true})));
  EXPECT_TRUE(
      fails_by(barrier_misuse, "free[0], by State1(0)", outputs_chain({.first_parity = 0})));
}

TEST(OutputsChain, EveryBarrierIsNeeded) {
  const Protocol protocol = outputs_chain({});
  const auto needs = [&](const std::string& barrier, const char* role, FaultKind kind,
                         const std::string& what) {
    EXPECT_TRUE(fails_by(kind, what, protocol.without(barrier, role))) << barrier << ' ' << role;
  };
  needs("brought", "State0", read_before_write, "M(0), by State0(0)");
  needs("brought", "State1", read_before_write, "M(0), by State1(0)");
  needs("read_by_all", "", overwrite_before_read, "M(0), by State0(0)");
  needs("free", "Load", overwrite_before_read, "inputs(1), by State0(0)");
  for (const char* role : {"State0", "State1"}) {
    needs("free[0]", role, deadlock,
          "Gates(0) at free[0], Load(0) at free[0], Scores(0) at full[0], "
          "State0(0) at full[0], State1(0) at full[0], "
          "Store(0) at output_full[0]");
    needs("free[1]", role, deadlock,
          "Gates(1) at free[1], Load(1) at free[1], Scores(1) at full[1], "
          "State0(0) at full[1], State1(0) at full[1], "
          "Store(0) at output_full[0]");
    needs("free[2]", role, deadlock,
          "Gates(2) at free[2], Load(2) at free[2], Scores(2) at full[2], "
          "State0(1) at full[2], State1(1) at full[2], "
          "Store(1) at output_full[1]");
  }
  needs("full", "Scores", read_before_write, "gates(0), by Scores(0)");
  needs("full", "State0", read_before_write, "V0(0), by State0(0)");
  needs("full", "State1", read_before_write, "V1(0), by State1(0)");
  needs("scores_full", "State0", read_before_write, "P(0), by State0(1)");
  needs("output_full", "Store", read_before_write, "O0(0), by Store(0)");
  EXPECT_TRUE(fails_by(overwrite_before_read, "O0(0), by Load(3)",
                       outputs_chain({.chunks = 4, .steps = 1}).without("stored", "Load")));
}

// The X form (kernels/cuda/x_chain.cuh): Keys makes X beside Scores, and State waits for each of
// the two where it needs it. Load, Scores and Store are those of the W form.

struct XChain : RegisterChain {
  Tile X = protocol.tile("X", options.stages);
  std::vector<Mbarrier> x_full = protocol.mbarriers("x_full", options.stages, 1);

  void keys(Role& self, int c) const {
    self.wait(full[stage(c)], parity(c));
    self.read({inputs(c), A(c), gates(c)});
    self.write({X(c)});
    self.arrive(x_full[stage(c)]);
  }
  void scores(Role& self, int c) const {
    self.wait(full[stage(c)], parity(c));
    if (has_output(c)) {
      self.read({inputs(c), A(c), gates(c)});
      self.write({P(c)});
    }
    self.arrive(scores_full[stage(c)]);
  }
  void state(Role& self, int group, int c) const {
    if (c == 0) wait_for_inputs(self, group, c);
    const bool after_output = c > 0 && has_output(c - 1);
    if (after_output) self.begin_read({P(c - 1), gates(c - 1)});  // R P', and O's factors
    self.begin_read({inputs(c), gates(c)});                       // K S, Q S
    if (after_output) {
      self.end_read({P(c - 1), gates(c - 1)});
      self.arrive(free[stage(c - 1)]);
      put_output(self, group, c - 1);
    }
    self.wait(x_full[stage(c)], parity(c));
    self.begin_read({X(c)});  // S'
    if (!is_last(c)) wait_for_inputs(self, group, c + 1);
    self.wait(scores_full[stage(c)], parity(c));
    self.end_read({inputs(c), gates(c)});
    self.end_read({X(c)});
    if (!has_output(c)) self.arrive(free[stage(c)]);
    if (!has_output(c) || !is_last(c)) return;
    self.read({P(c), gates(c)});
    put_output(self, group, c);
  }
};

Protocol x_chain(const RegisterOptions& options) {
  XChain chain{{options}};
  const int chunks = options.chunks;
  chain.add_load();
  chain.protocol.role("Keys", chunks, [&](Role& self, int c) { chain.keys(self, c); });
  chain.protocol.role("Scores", chunks, [&](Role& self, int c) { chain.scores(self, c); });
  chain.add_state_and_store(chain);
  return std::move(chain.protocol);
}

TEST(XChain, IsOrdered) {
  for (const auto& [chunks, first_output, stages] :
       std::vector<std::array<int, 3>>{{1, 0, 3}, {4, 0, 2}, {4, 0, 3}, {4, 2, 3}, {2, 2, 3}}) {
    SCOPED_TRACE(std::to_string(chunks) + " chunks");
    EXPECT_TRUE(is_ordered(x_chain(
        {.chunks = chunks, .first_output = first_output, .stages = stages, .state_groups = 1})));
  }
}

TEST(XChain, EveryBarrierIsNeeded) {
  const Protocol protocol = x_chain({.state_groups = 1});
  const auto needs = [&](const std::string& barrier, const char* role, FaultKind kind,
                         const std::string& what) {
    EXPECT_TRUE(fails_by(kind, what, protocol.without(barrier, role))) << barrier << ' ' << role;
  };
  needs("full", "Keys", read_before_write, "inputs(0), by Keys(0)");
  needs("full", "Scores", read_before_write, "inputs(0), by Scores(0)");
  needs("full", "State0", read_before_write, "V0(0), by State0(0)");
  needs("free", "", overwrite_before_read, "inputs(0), by Load(2)");
  needs("stored", "", overwrite_before_read, "V0(2), by State0(1)");
  needs("x_full", "", read_before_write, "X(0), by State0(0)");
  needs("scores_full", "", read_before_write, "P(0), by State0(1)");
  needs("output_full", "", read_before_write, "O0(0), by Store(0)");
}

// The whole forward (kernels/cuda/forward_chain.cuh): groups of Make take turns at chunks, and make
// A and P' of what Load has brought. State and Store are rung 8's; with 128 values State is late.

struct ForwardOptions {
  int chunks = 4;        // of a segment
  int first_output = 0;  // the chunks before only bring S about
  int stages = 3;
  int make_groups = 2, state_groups = 1;
  bool late = false;
  int split = 0;  // chunks with low halves: the first ones
  // Mistakes:
  bool skips_others = false;    // Make waits for the inputs of its own chunks alone
  bool puts_low_first = false;  // before it says that A is there
};

struct ForwardChain : RegisterChain {
  int make_groups;
  bool skips_others, puts_low_first;

  Tile N = P.in_place("N");
  std::vector<Mbarrier> loaded = protocol.mbarriers("loaded", options.stages, 2);

  // By one role, where the kernel has two: RegisterChain's has them apart, and here it takes
  // minutes.
  void load(Role& self, int c) const {
    wait_for_place(self, c);
    self.write({gates(c)});
    self.copy({inputs(c)}, loaded[stage(c)]);
    self.arrive(loaded[stage(c)]);
    wait_until_stored(self, c);
    self.copy(values(c), full[stage(c)]);
    self.arrive(full[stage(c)]);
  }

  // From chunk `from` on, for chunk c.
  void wait_for_keys(Role& self, int from, int c) const {
    for (int i = skips_others ? c : from; i <= c && i < options.chunks; ++i)
      self.wait(loaded[stage(i)], parity(i));
  }
  void make(Role& self, int group, int turn) const {
    const int c = group + turn * make_groups, next = c + make_groups;
    if (turn == 0) {
      wait_for_keys(self, 0, c);
      self.begin_read({inputs(c)});  // K Kᵀ
    }
    self.end_read({inputs(c)});
    self.read({gates(c)});
    self.write({N(c)});
    self.write({A(c)});
    self.read({N(c)});
    if (puts_low_first) wait_for_place_of_low(self, c);
    self.arrive(full[stage(c)]);
    if (!puts_low_first) wait_for_place_of_low(self, c);
    if (is_split(c)) self.write({low(c)});
    wait_for_keys(self, c + 1, next);
    self.begin_read({inputs(c)});                                // Q Kᵀ
    if (next < options.chunks) self.begin_read({inputs(next)});  // K Kᵀ
    self.end_read({inputs(c)});
    self.read({gates(c)});
    self.write({P(c)});
    self.arrive(scores_full[stage(c)]);
  }
};

Protocol forward_chain(const ForwardOptions& options) {
  ForwardChain chain{{{.chunks = options.chunks,
                       .first_output = options.first_output,
                       .stages = options.stages,
                       .state_groups = options.state_groups,
                       .fills = 3,
                       .split = options.split,
                       .late = options.late}},
                     options.make_groups,
                     options.skips_others,
                     options.puts_low_first};
  chain.protocol.role("Load", options.chunks, [&](Role& self, int c) { chain.load(self, c); });
  for (int group = 0; group < options.make_groups; ++group) {
    const int turns = (options.chunks - group + options.make_groups - 1) / options.make_groups;
    chain.protocol.role("Make" + std::to_string(group), std::max(0, turns),
                        [&](Role& self, int turn) { chain.make(self, group, turn); });
  }
  chain.add_state_and_store(chain);
  return std::move(chain.protocol);
}

TEST(ForwardChain, IsOrdered) {
  for (const auto& [chunks, first_output, split] : std::vector<std::array<int, 3>>{
           {1, 0, 0}, {2, 0, 0}, {4, 0, 0}, {4, 2, 0}, {4, 0, 4}, {3, 1, 2}}) {
    SCOPED_TRACE(std::to_string(chunks) + " chunks, " + std::to_string(split) + " of them split");
    EXPECT_TRUE(is_ordered(
        forward_chain({.chunks = chunks, .first_output = first_output, .split = split})));
    EXPECT_TRUE(is_ordered(forward_chain({.chunks = chunks,
                                          .first_output = first_output,
                                          .make_groups = 1,
                                          .state_groups = 2,
                                          .late = true,
                                          .split = split})));
  }
}

// A group that takes each second chunk of a ring of three meets each second phase of a barrier. The
// emulator found it.
TEST(ForwardChain, MakeWaitsForTheInputsOfChunksThatAreNotItsOwnToo) {
  const Findings findings = explore(forward_chain({.skips_others = true}));
  ASSERT_FALSE(findings.faults.empty());
  EXPECT_EQ(findings.faults[0].kind, barrier_misuse) << text_of(findings);
}

// Of as many groups as stages none would get its next chunk before it has made P' of this one.
TEST(ForwardChain, ThereAreMoreStagesThanGroups) {
  const Findings findings = explore(forward_chain({.stages = 2}));
  ASSERT_FALSE(findings.faults.empty());
  EXPECT_EQ(findings.faults[0].kind, deadlock) << text_of(findings);
}

// State gives a chunk back when the next one is under way, and for that it waits for A.
TEST(ForwardChain, AIsThereBeforeMakeWaitsForThePlaceOfLowHalves) {
  const Findings findings = explore(forward_chain({.split = 2, .puts_low_first = true}));
  ASSERT_FALSE(findings.faults.empty());
  EXPECT_EQ(findings.faults[0].kind, deadlock) << text_of(findings);
}

TEST(ForwardChain, EveryBarrierIsNeeded) {
  const auto needs = [](int chunks, const std::string& barrier, const char* role, FaultKind kind,
                        const std::string& what) {
    const Protocol protocol = forward_chain({.chunks = chunks});
    EXPECT_TRUE(fails_by(kind, what, protocol.without(barrier, role))) << barrier << ' ' << role;
  };
  needs(2, "loaded", "Make0", read_before_write, "inputs(0), by Make0(0)");
  needs(2, "loaded", "Make1", read_before_write, "inputs(1), by Make1(0)");
  needs(2, "full", "State0", read_before_write, "V0(0), by State0(0)");
  needs(2, "scores_full", "State0", read_before_write, "P(0), by State0(1)");
  needs(2, "output_full", "Store", read_before_write, "O0(0), by Store(0)");
  needs(4, "free", "", overwrite_before_read, "inputs(0), by Load(3)");
  EXPECT_TRUE(fails_by(overwrite_before_read, "low(0), by Make1(0)",
                       forward_chain({.chunks = 2, .split = 2}).without("free", "Make1")));
}

// With 128 values.
TEST(ForwardChain, EveryBarrierOfALateStateIsNeeded) {
  const auto needs = [](int chunks, const std::string& barrier, const char* role, FaultKind kind,
                        const std::string& what) {
    const Protocol protocol =
        forward_chain({.chunks = chunks, .make_groups = 1, .state_groups = 2, .late = true});
    EXPECT_TRUE(fails_by(kind, what, protocol.without(barrier, role))) << barrier << ' ' << role;
  };
  needs(1, "loaded", "Make0", read_before_write, "inputs(0), by Make0(0)");
  needs(1, "full", "State1", read_before_write, "V1(0), by State1(0)");
  needs(1, "scores_full", "State0", read_before_write, "P(0), by State0(0)");
  needs(1, "output_full", "Store", read_before_write, "O0(0), by Store(0)");
  needs(4, "free", "", overwrite_before_read, "inputs(0), by Load(3)");
  EXPECT_TRUE(fails_by(
      overwrite_before_read, "low(0), by Make0(1)",
      forward_chain({.chunks = 2, .make_groups = 1, .state_groups = 2, .late = true, .split = 2})
          .without("free", "Make0")));
}

// The preparation on a Hopper (kernels/prepare/chunk_inverse_hopper.cu): warps that do the same,
// each with its head, go through works and meet at barriers of the CTA. Of these each place in the
// program has one of its own here, so that it can be taken away. A head of three passes has its A
// before it releases L, which is its own matter.

// What is begun at one place and waited for at another.
enum class Begun { none, gates, keys, products, l_read, store };

struct PreparationOptions {
  std::string works = "ww";  // w: a whole chunk, whose K the copy engine brings; s: a short one
  int warps = 4;
  int heads = 3;    // the other warps only help with L and gates
  int bringer = 0;  // the warp that asks for K
  // Mistakes:
  Begun not_waited_for = Begun::none;
  bool stores_g_early = false;  // ahead of the barrier behind sum_gates
};

struct Preparation {
  PreparationOptions options;
  Protocol protocol = {};

  // Of K what a warp brings of a short chunk, and of L what it makes, in the place of another part.
  std::vector<Tile> K = tiles("K");
  // Of head and warp: what the warp brings, and stores when it is g. β goes the same way, but that
  // nothing is written over it.
  std::vector<std::vector<Tile>> raw_g = gates();
  std::vector<Tile> A = tiles("A");  // and N and D before it

  Mbarrier k_full = protocol.mbarriers("k_full", 1, 1)[0];
  NamedBarrier begun = protocol.named_barrier("begun", options.warps);
  NamedBarrier place_free = protocol.named_barrier("place_free", options.warps);
  NamedBarrier keys_there = protocol.named_barrier("keys_there", options.warps);
  NamedBarrier keys_read = protocol.named_barrier("keys_read", options.warps);
  NamedBarrier l_there = protocol.named_barrier("l_there", options.warps);
  NamedBarrier released = protocol.named_barrier("released", options.warps);  // the partial one

  std::vector<Tile> tiles(const std::string& name) {
    std::vector<Tile> tiles;
    for (int warp = 0; warp < options.warps; ++warp)
      tiles.push_back(protocol.tile(name + std::to_string(warp)));
    return tiles;
  }
  std::vector<std::vector<Tile>> gates() {
    std::vector<std::vector<Tile>> gates;
    for (int head = 0; head < options.warps; ++head)
      gates.push_back(tiles("raw_g" + std::to_string(head)));
    return gates;
  }
  Contents L(int warp, int c) const {
    return K[(warp + 1) % options.warps].in_place("L" + std::to_string(warp))(c);
  }
  Contents g(int head, int warp, int c) const {
    return raw_g[head][warp].in_place("g" + std::to_string(head) + std::to_string(warp))(c);
  }

  template <typename Part>
  static Tiles all(int count, Part part) {
    Tiles all;
    for (int i = 0; i < count; ++i) all.push_back(part(i));
    return all;
  }
  Tiles all_of_K(int c) const {
    return all(options.warps, [&](int warp) { return K[warp](c); });
  }
  Tiles all_of_L(int c) const {
    return all(options.warps, [&](int warp) { return L(warp, c); });
  }
  Tiles raw_g_of_head(int head, int c) const {
    return all(options.warps, [&](int warp) { return raw_g[head][warp](c); });
  }
  Tiles g_of_head(int head, int c) const {
    return all(options.warps, [&](int warp) { return g(head, warp, c); });
  }
  Tiles raw_g_by(int warp, int c) const {
    return all(options.warps, [&](int head) { return raw_g[head][warp](c); });
  }
  Tiles g_by(int warp, int c) const {  // that is stored
    return all(options.heads, [&](int head) { return g(head, warp, c); });
  }

  int works() const { return static_cast<int>(options.works.size()); }
  bool is_whole(int c) const { return options.works[c] == 'w'; }
  int parity(int c) const {  // there are phases of whole chunks alone
    return std::count(options.works.begin(), options.works.begin() + c, 'w') % 2 == 0 ? 0 : 1;
  }

  // The end of what was begun is waited for before `next`; or, by mistake, comes behind it.
  template <typename End, typename Next>
  void wait_for(Begun what, End end, Next next) const {
    if (what != options.not_waited_for) end();
    next();
    if (what == options.not_waited_for) end();
  }

  void bring_keys(Role& self, int warp, int c) const {
    if (warp == options.bringer && c < works() && is_whole(c)) self.copy(all_of_K(c), k_full);
  }
  void load_keys(Role& self, int warp, int c) const {
    self.sync(place_free);
    self.begin_write({K[warp](c)});
    wait_for(
        Begun::keys, [&] { self.end_write({K[warp](c)}); }, [&] { self.sync(keys_there); });
  }
  void begin(Role& self, int warp) const {
    self.begin_write(raw_g_by(warp, 0));
    bring_keys(self, warp, 0);
    wait_for(
        Begun::gates, [&] { self.end_write(raw_g_by(warp, 0)); }, [&] { self.sync(begun); });
  }
  void release(Role& self, int warp, int c) const {
    wait_for(
        Begun::gates, [&] { self.end_write(raw_g_by(warp, c + 1)); },
        [&] {
          if (warp == options.bringer) {
            self.sync(released);
          } else {
            self.arrive(released);
          }
        });
    bring_keys(self, warp, c + 1);
  }
  void store(Role& self, int warp, int c) const {
    self.begin_read({A[warp](c)});
    if (!is_whole(c)) self.end_read({A[warp](c)});  // by the warp itself
  }
  void wait_stored(Role& self, int warp, int c) const {
    if (c >= 0 && is_whole(c)) self.end_read({A[warp](c)});
  }

  void work(Role& self, int warp, int c) const {
    if (c == 0) begin(self, warp);
    if (is_whole(c)) {
      self.wait(k_full, parity(c));
    } else {
      load_keys(self, warp, c);
    }
    self.begin_read(all_of_K(c));  // K Kᵀ
    self.read(raw_g_of_head(warp, c));
    self.write(g_of_head(warp, c));
    if (options.stores_g_early) self.read(g_by(warp, c));
    wait_for(
        Begun::products, [&] { self.end_read(all_of_K(c)); }, [&] { self.sync(keys_read); });
    self.write({L(warp, c)});
    if (!options.stores_g_early) self.read(g_by(warp, c));
    self.sync(l_there);
    // The next gates, behind the last work all 0.
    const auto begin_gates = [&] { self.begin_write(raw_g_by(warp, c + 1)); };
    if (warp >= options.heads) {
      begin_gates();
      release(self, warp, c);
      return;
    }
    wait_for(
        Begun::store, [&] { wait_stored(self, warp, c - 1); },
        [&] { begin_gates(), self.begin_write({A[warp](c)}); });
    self.begin_read(all_of_L(c));
    wait_for(
        Begun::l_read, [&] { self.end_read(all_of_L(c)); }, [&] { release(self, warp, c); });
    self.end_write({A[warp](c)});
    store(self, warp, c);
    if (c + 1 == works()) wait_stored(self, warp, c);
  }
};

Protocol preparation(const PreparationOptions& options) {
  Preparation preparation{options};
  for (int warp = 0; warp < options.warps; ++warp)
    preparation.protocol.role("Warp" + std::to_string(warp), preparation.works(),
                              [&](Role& self, int c) { preparation.work(self, warp, c); });
  return std::move(preparation.protocol);
}

TEST(Preparation, IsOrdered) {
  for (const char* works : {"w", "s", "www", "sss", "sws", "wsw", "wwsw"})
    for (const int heads : {1, 3, 4})
      for (const int bringer : {0, 3}) {
        SCOPED_TRACE(std::string(works) + ", " + std::to_string(heads) + " heads, K by Warp" +
                     std::to_string(bringer));
        EXPECT_TRUE(is_ordered(preparation({.works = works, .heads = heads, .bringer = bringer})));
      }
}

// A head's g is written on the one side of a barrier of the CTA and read by all warps on the other,
// which alone orders it; racecheck takes them for hazards. What is stored has another such barrier
// behind it, and its place is brought anew by the same warp.
TEST(Preparation, GIsStoredBehindABarrierOfTheCta) {
  for (const char* works : {"ww", "ss"})
    EXPECT_TRUE(fails_by(read_before_write, "g10(0), by Warp0(0)",
                         preparation({.works = works, .stores_g_early = true})));
}

TEST(Preparation, EveryBarrierIsNeeded) {
  const auto needs = [](const char* works, const std::string& barrier, const char* role,
                        FaultKind kind, const std::string& what) {
    const Protocol protocol = preparation({.works = works});
    EXPECT_TRUE(fails_by(kind, what, protocol.without(barrier, role))) << barrier << ' ' << role;
  };
  needs("ww", "begun", "", read_before_write, "raw_g01(0), by Warp0(0)");
  needs("ww", "k_full", "Warp1", read_before_write, "K0(0), by Warp1(0)");
  needs("ww", "keys_read", "", overwrite_before_read, "K1(0), by Warp0(0)");
  needs("ww", "l_there", "", read_before_write, "L1(0), by Warp0(0)");
  needs("ww", "released", "", overwrite_before_read, "L3(0), by Warp0(0)");
  needs("ww", "released", "Warp0", overwrite_before_read, "L3(0), by Warp0(0)");
  needs("ww", "released", "Warp3", deadlock,
        "Warp0(0) at released, Warp1(1) at k_full, Warp2(1) at k_full, Warp3(1) at k_full");
  needs("ws", "place_free", "", overwrite_before_read, "L2(0), by Warp3(1)");
  needs("ss", "place_free", "", overwrite_before_read, "L2(0), by Warp3(1)");
  needs("ss", "keys_there", "", read_before_write, "K1(0), by Warp0(0)");
}

// A whole chunk's warps have met at `begun` or `released` before they wait for its K, which brings
// gates of all of them. Those of a short one meet at `place_free` anyway.
TEST(Preparation, GatesOfShortChunksNeedNoBarrierOfTheirOwn) {
  EXPECT_TRUE(is_ordered(preparation({.works = "ss"}).without("begun").without("released")));
  EXPECT_TRUE(is_ordered(preparation({.works = "ws"}).without("released")));
}

TEST(Preparation, EveryWaitIsNeeded) {
  const auto needs = [](const char* works, Begun what, FaultKind kind, const std::string& fault) {
    EXPECT_TRUE(fails_by(kind, fault, preparation({.works = works, .not_waited_for = what})))
        << works;
  };
  needs("ww", Begun::gates, read_before_write, "raw_g01(0), by Warp0(0)");
  needs("sw", Begun::gates, read_before_write, "raw_g31(1), by Warp3(1)");
  needs("ss", Begun::keys, read_before_write, "K1(0), by Warp0(0)");
  needs("ww", Begun::products, overwrite_before_read, "K1(0), by Warp0(0)");
  needs("ww", Begun::l_read, overwrite_before_read, "L3(0), by Warp0(0)");
  needs("ww", Begun::store, overwrite_before_read, "A0(0), by Warp0(1)");
}

}  // namespace
}  // namespace gdn::protocol
