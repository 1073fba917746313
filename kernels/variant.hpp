// What a kernel is to the tool: the problem it is given, the tensors it reads and writes, and how
// it is listed, set up and launched. Host-only C++: no CUDA header and nothing of src/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/bfloat16.hpp"

namespace gdn {

inline constexpr int head_dim = 128;                         // dk = dv
inline constexpr int chunk_tokens = 64;                      // C
inline constexpr float output_scale = 0.08838834764831845F;  // 128^-1/2

enum class Target { cpu, cuda };

// What is timed. core: g and A are given. forward: from raw_g (prefix sum, A, core).
enum class Scope { core, forward };

// One chunk of one sequence: at most 64 tokens of the packed token axis.
struct Chunk {
  std::int32_t sequence;  // which sequence
  std::int32_t index;     // which chunk of that sequence
  std::int32_t token;     // its first token, counted along the packed axis
  std::int32_t length;    // 1 … 64
};

// Of a sequence of `length` tokens.
constexpr int chunks_of(int length) { return (length + chunk_tokens - 1) / chunk_tokens; }

// The shape of the work. Sequences are packed along one token axis and may be empty; a dense batch
// [B, T, …] is the case of B equal lengths and has the same bytes.
struct Problem {
  std::vector<std::int32_t> offsets = {0};  // [sequences + 1] first token of each sequence
  int query_heads = 1;
  int value_heads = 1;         // a multiple of query_heads
  bool initial_state = false;  // whether S0 is given

  int sequences() const { return static_cast<int>(offsets.size()) - 1; }
  std::int64_t tokens() const { return offsets.back(); }
  int length(int sequence) const { return offsets[sequence + 1] - offsets[sequence]; }
  int heads_per_query() const { return value_heads / query_heads; }

  std::vector<Chunk> chunks() const;  // in token order; empty sequences have none
  std::int64_t chain_chunks() const;  // chunks of the longest sequence: the serial chain
  double flop() const;  // Hv · Σ over chunks of length l of (6·l·128² + 6·l²·128)
  double bytes(Scope scope) const;  // each tensor of the scope once through memory

  bool operator==(const Problem&) const = default;
};

// A chunk is ill-conditioned where A has many and large elements near its diagonal: where the
// squares of those below it in A's four blocks of 16 tokens, less half of those in the block below
// the first and below the third, come to more than this. Keys in random directions have as many
// large elements far from the diagonal as near it.
inline constexpr float most_squares = 5;

// The second element of A_low in a chunk that has no low half: 1, or 2 in a gentle one of a folded
// A.
inline constexpr BFloat16 plain_mark = {0x3F80}, gentle_mark = {0x4000};

// Where the tensors of a problem lie, in the memory of the backend. Row-major, last index fastest.
struct Tensors {
  const BFloat16* q = nullptr;           // [tokens][query_heads][128]
  const BFloat16* k = nullptr;           // [tokens][query_heads][128]
  const BFloat16* v = nullptr;           // [tokens][value_heads][128]
  const float* raw_g = nullptr;          // [tokens][value_heads]  log α, <= 0, -inf is legal
  const float* beta = nullptr;           // [tokens][value_heads]
  const float* initial_state = nullptr;  // [sequences][value_heads][dk][dv]; null when not given

  const std::int32_t* offsets = nullptr;      // [sequences + 1]
  const Chunk* chunks = nullptr;              // [chunks] in token order
  const std::int32_t* first_chunk = nullptr;  // [sequences + 1] first chunk of each sequence

  float* g = nullptr;  // [tokens][value_heads]  prefix sum of max(raw_g, -128) in a chunk
  // [tokens][value_heads][64]: row r of a chunk has r+1 columns, the rest is 0. Of its first 32
  // rows the columns from 32 on are 0 beforehand, and nobody need write them.
  BFloat16* A = nullptr;
  // As A: what rounding took from it where a chunk is ill-conditioned. The second element of
  // another chunk, here 0, is 1 then, or 2 in a folded and gentle one, and the rest of it is not
  // there. Null: nobody knows; not where A is folded.
  BFloat16* A_low = nullptr;
  // Whether A stands for F A G, with diagonal F of what a token's V̂ has left at the chunk's end and
  // G of γ: of a gentle chunk, whose gates and keys allow it, for G⁻¹ A G =
  // (I + strictly_lower(B KKᵀ))⁻¹, in which there are no gates. gates.cuh has the numbers.
  bool folded = false;

  BFloat16* output = nullptr;    // [tokens][value_heads][128]
  float* final_state = nullptr;  // [sequences][value_heads][dk][dv]
};

// What the kernels may ask of a device.
struct Device {
  Target target = Target::cpu;
  std::string name;              // "NVIDIA H200", "AMD EPYC 9654"
  int processors = 1;            // multiprocessors, or hardware threads
  int capability = 0;            // 10 · major + minor; 0 on the CPU
  std::size_t memory_bytes = 0;  // of the device, or of the machine
  std::size_t shared_bytes_per_block = 0;
  std::size_t cache_bytes = 0;  // last-level cache: what a cold sample must flush
};

// A stream of the backend (cudaStream_t); null on the CPU, where a launch has run when it returns.
using Stream = void*;

// Enqueues one execution. Allocates nothing, does not synchronise, can be captured in a graph.
using Launch = std::function<void(Stream)>;

// One kernel of an instance, by the name that reports and profilers show.
struct Stage {
  std::string name;
  const void* entry = nullptr;  // device function, for registers and occupancy; null on the CPU
  int threads = 0;
  int shared_bytes = 0;  // dynamic shared memory
};

struct Knob {
  std::string name;
  std::string value;
  bool operator==(const Knob&) const = default;
};

// One compiled configuration of a variant.
struct Instance {
  std::vector<Knob> knobs;
  std::vector<Stage> stages;
  // Of those that also take a folded A, or make one: what `setup` enqueues then. The tool has the
  // preparation fold A, in the forward scope, for whoever takes it.
  std::vector<Stage> folded_stages;
  std::function<std::size_t(const Problem&)> workspace_bytes;  // null: none
  // Untimed: tensor maps, work lists. The workspace (16-byte aligned at least) and the tensors
  // outlive the launch that is returned.
  std::function<Launch(const Problem&, const Tensors&, void* workspace)> setup;
  // Why this configuration cannot be had on any device: it is listed and skipped with this reason,
  // and has no stages and no setup.
  std::string obstacle;
  // What it leaves out on purpose, and how much that is at most; "" where it leaves out nothing.
  // Such a bound holds for keys of unit length, and the tool goes by that.
  std::string bound;
};

// A rung of the ladder.
struct Variant {
  std::string name;
  std::string idea;  // one sentence
  Target target = Target::cpu;
  std::vector<Scope> scopes;  // what it serves by itself. Where it lists only core, the tool times
                              // forward as preparation + core.
  std::function<std::string(const Device&)> needs;  // "" or why the device will not do; null: any
  std::function<std::string(const Problem&)>
      accepts;  // "" or why the problem will not do; null: any
  std::vector<Instance> instances;
};

// The id that --variant takes: "wide:stages=1:threads=512", or "wide" where there are no knobs.
std::string variant_id(const Variant& variant, const Instance& instance);

// Why an instance cannot run on a device, whatever the problem; "" when it can.
std::string obstacle(const Variant& variant, const Instance& instance, const Device& device);

// The rungs of this build, in ladder order, CPU variants first.
std::span<const Variant> ladder();

// The prefix sum and A as a launch of their own. Its stages stand before the core's in the forward
// scope.
const Instance& preparation(Target target, const Problem& problem);

std::string_view name_of(Target target);
std::string_view name_of(Scope scope);

}  // namespace gdn
