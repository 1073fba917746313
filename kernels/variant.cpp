#include "kernels/variant.hpp"

#include <algorithm>

namespace gdn {

std::vector<Chunk> Problem::chunks() const {
  std::vector<Chunk> chunks;
  for (int sequence = 0; sequence < sequences(); ++sequence) {
    for (std::int32_t index = 0, done = 0; done < length(sequence); ++index) {
      const std::int32_t tokens = std::min(chunk_tokens, length(sequence) - done);
      chunks.push_back({sequence, index, offsets[sequence] + done, tokens});
      done += tokens;
    }
  }
  return chunks;
}

std::int64_t Problem::chain_chunks() const {
  int longest = 0;
  for (int sequence = 0; sequence < sequences(); ++sequence) {
    longest = std::max(longest, length(sequence));
  }
  return chunks_of(longest);
}

double Problem::flop() const {
  const auto of_chunk = [](double l) { return 6 * l * head_dim * head_dim + 6 * l * l * head_dim; };
  double per_head = 0;
  for (int sequence = 0; sequence < sequences(); ++sequence) {
    const int full = length(sequence) / chunk_tokens;
    const int tail = length(sequence) % chunk_tokens;
    per_head += full * of_chunk(chunk_tokens) + of_chunk(tail);
  }
  return value_heads * per_head;
}

double Problem::bytes(Scope scope) const {
  const double a_row = scope == Scope::core ? 2 * chunk_tokens : 0;  // forward makes its own A
  const double query_row = 2 * 2 * head_dim;                         // q, k
  const double value_row = 2 * 2 * head_dim + 2 * 4 + a_row;         // v, output; g or raw_g, beta
  const double state = 4.0 * head_dim * head_dim;
  const double states = initial_state ? 2 : 1;
  return static_cast<double>(tokens()) * (query_row * query_heads + value_row * value_heads) +
         state * states * sequences() * value_heads;
}

std::string variant_id(const Variant& variant, const Instance& instance) {
  std::string id = variant.name;
  for (const Knob& knob : instance.knobs) id += ":" + knob.name + "=" + knob.value;
  return id;
}

std::string obstacle(const Variant& variant, const Instance& instance, const Device& device) {
  if (!instance.obstacle.empty()) return instance.obstacle;
  if (variant.needs)
    if (std::string why = variant.needs(device); !why.empty()) return why;
  for (const Stage& stage : instance.stages)
    if (static_cast<std::size_t>(stage.shared_bytes) > device.shared_bytes_per_block)
      return stage.name + " needs " + std::to_string(stage.shared_bytes) +
             " bytes of shared memory a block; the device has " +
             std::to_string(device.shared_bytes_per_block);
  return "";
}

std::string_view name_of(Target target) { return target == Target::cpu ? "cpu" : "cuda"; }
std::string_view name_of(Scope scope) { return scope == Scope::core ? "core" : "forward"; }

}  // namespace gdn
