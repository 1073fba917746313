// What a result depends on besides the kernel: build and machine.
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

namespace gdn {

// version, revision, binary_hash, kernels (hash of their sources), kernel_checks (of a build that
// has some), compiler and system; `device`, `driver`, … of the backend are merged in.
nlohmann::json fingerprint(const nlohmann::json& of_backend);

// One fact of a fingerprint: its JSON pointer, and what people call it.
struct Fact {
  const char* pointer;
  const char* name;
};

// Without these being the same, times say nothing about each other.
inline constexpr std::array facts_of_times = {
    Fact{"/device/name", "device"}, Fact{"/device/target", "target"},
    Fact{"/device/processors", "number of processors"}, Fact{"/driver", "driver"},
    Fact{"/cuda", "CUDA version"}};

// Which of the facts differ, each in one sentence: `the driver differs: "580" in BASE, "590" in
// HEAD`, where `where_a` is "in BASE".
std::vector<std::string> differing(std::span<const Fact> facts, const nlohmann::json& a,
                                   const std::string& where_a, const nlohmann::json& b,
                                   const std::string& where_b);

}  // namespace gdn
