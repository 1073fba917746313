#include "src/fingerprint.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <fstream>
#include <iterator>
#include <revision.hpp>
#include <vector>

#include "kernels/prepare/hash.hpp"

namespace gdn {
namespace {

std::string binary_hash() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
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
  all["compiler"] = "g++ " __VERSION__;
  all["system"] = system_name();
  return all;
}

}  // namespace gdn
