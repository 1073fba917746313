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

// Without these being the same of two devices of one machine, a winner of one is none of the other.
inline constexpr std::array facts_of_twins = {Fact{"/device/name", "device"},
                                              Fact{"/device/processors", "number of processors"},
                                              Fact{"/device/memory_bytes", "memory"},
                                              Fact{"/device/ecc", "ECC mode"},
                                              Fact{"/mig", "MIG mode"},
                                              Fact{"/power_limit_w", "power limit"},
                                              Fact{"/max_sm_clock_mhz", "largest SM clock"},
                                              Fact{"/max_memory_clock_mhz", "largest memory clock"},
                                              Fact{"/application_clock_mhz", "application clock"}};

// Which of the facts differ, each in one sentence: `the driver differs: "580" in BASE, "590" in
// HEAD`, where `where_a` is "in BASE".
std::vector<std::string> differing(std::span<const Fact> facts, const nlohmann::json& a,
                                   const std::string& where_a, const nlohmann::json& b,
                                   const std::string& where_b);

}  // namespace gdn
