// A 64-bit fingerprint of a tensor's bytes whose parts can be summed in any order, so that threads
// and devices reach the same value. It tells inputs apart; it is no defence against forgery.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/prepare/random.hpp"

namespace gdn {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
GDN_HOST_DEVICE inline std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// The share of 4-byte word `index`; a tensor's hash is the wrapping sum of its words' shares.
GDN_HOST_DEVICE inline std::uint64_t hash_share(std::uint64_t index, std::uint32_t word) {
  return mix((index + 1) * 0x9E3779B97F4A7C15u ^ mix(word + 0x632BE59BD9B4E019u));
}

std::uint64_t hash_bytes(const void* data, std::size_t bytes);  // last word padded with zeros

// The same for device memory; adds to *sum, which is device memory too and 0 before.
void enqueue_hash(const void* data, std::size_t bytes, unsigned long long* sum, void* stream);

// Chains the hashes of several tensors; the order matters.
inline std::uint64_t chain_hash(std::uint64_t so_far, std::uint64_t next) {
  return mix(so_far * 0x9E3779B97F4A7C15u + next);
}

}  // namespace gdn
