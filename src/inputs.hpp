// Inputs as files: safetensors with q k v raw_g beta [initial_state] [cu_seqlens], the shapes of
// kernels/variant.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "kernels/prepare/generate.hpp"
#include "src/case.hpp"

namespace gdn {

// A user's own inputs in place of a case, checked: shapes agree, everything is finite, gates are
// log α <= 0 (-inf is a reset), 0 <= beta <= 2. The bytes may lie unaligned.
struct InputFile {
  std::string name;  // the row's case: the file's name without its ending
  Problem problem;
  std::span<const std::byte> q, k, v, raw_g, beta, initial_state;
  bool keys_normalised = true;  // every |‖k‖ − 1| <= 0.02
  std::shared_ptr<const void> storage;
};

// q, k, v may be [tokens, heads, 128] or [batch, tokens, heads, 128]; raw_g and beta likewise
// without the last; cu_seqlens is I32 or I64 [sequences + 1]. Throws UserError.
InputFile read_inputs(const std::string& path);

// Generates the inputs of a case and writes them. Throws UserError when the file cannot be written.
void write_inputs(const Case& c, const std::string& path);

}  // namespace gdn
