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

}  // namespace gdn
