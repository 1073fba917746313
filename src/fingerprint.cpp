#include "src/fingerprint.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <fstream>
#include <revision.hpp>
#include <string_view>
#include <vector>

#include "kernels/prepare/hash.hpp"

namespace gdn {
namespace {

std::string binary_hash() {
  std::ifstream file("/proc/self/exe", std::ios::binary | std::ios::ate);
  std::vector<char> bytes(std::max<std::streamoff>(file.tellg(), 0));
  file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return fmt::format("{:016x}", hash_bytes(bytes.data(), bytes.size()));
}

std::string system_name() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return fmt::format("{} {} {}", name.sysname, name.release, name.machine);
}

std::string shown(const nlohmann::json& fingerprint, const char* pointer) {
  const nlohmann::json::json_pointer place(pointer);
  if (!fingerprint.contains(place)) return "(not given)";
  return fingerprint.at(place).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

nlohmann::json fingerprint(const nlohmann::json& of_backend) {
  nlohmann::json all = of_backend;
  all["version"] = version_text;
  all["revision"] = revision_text;
  all["binary_hash"] = binary_hash();
  all["kernels"] = kernels_text;
  all["compiler"] = "g++ " __VERSION__;
  if (std::string_view(kernel_checks_text) != "") all["kernel_checks"] = kernel_checks_text;
  all["system"] = system_name();
  return all;
}

std::vector<std::string> differing(std::span<const Fact> facts, const nlohmann::json& a,
                                   const std::string& where_a, const nlohmann::json& b,
                                   const std::string& where_b) {
  std::vector<std::string> found;
  for (const auto& [pointer, name] : facts) {
    const std::string in_a = shown(a, pointer);
    const std::string in_b = shown(b, pointer);
    if (in_a != in_b)
      found.push_back(
          fmt::format("the {} differs: {} {}, {} {}", name, in_a, where_a, in_b, where_b));
  }
  return found;
}

}  // namespace gdn
