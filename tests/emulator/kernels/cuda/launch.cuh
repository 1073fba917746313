// As the original says; a launch has run when it returns, and throws what went wrong.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "kernels/variant.hpp"

namespace gdn {

template <class Kernel>
void entry(const typename Kernel::Arguments& arguments) {
  Kernel::run(arguments, *reinterpret_cast<typename Kernel::Shared*>(emulator::shared_memory()));
}

template <class Kernel>
constexpr int shared_bytes = std::is_empty_v<typename Kernel::Shared>
                                 ? 0
                                 : static_cast<int>(sizeof(typename Kernel::Shared));

inline void throw_on_error(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

template <class Kernel>
Stage stage_of() {
  return {.name = Kernel::name,
          .entry = reinterpret_cast<const void*>(&entry<Kernel>),
          .threads = Kernel::threads,
          .shared_bytes = shared_bytes<Kernel>};
}

template <class Kernel>
Launch launcher(std::int64_t blocks, const typename Kernel::Arguments& arguments,
                int shared = shared_bytes<Kernel>) {
  if (blocks == 0) return [](Stream) {};
  return [blocks = static_cast<unsigned>(blocks), arguments, shared](Stream) {
    emulator::launch({.blocks = blocks,
                      .threads = Kernel::threads,
                      .shared_bytes = static_cast<std::size_t>(shared)},
                     [&] { entry<Kernel>(arguments); });
  };
}

}  // namespace gdn
