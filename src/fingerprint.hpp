// What a result depends on besides the kernel: build and machine.
#pragma once

#include <nlohmann/json.hpp>

namespace gdn {

// version, revision, binary_hash, kernels (hash of their sources), kernel_checks (of a build that
// has some), compiler and system; `device`, `driver`, … of the backend are merged in.
nlohmann::json fingerprint(const nlohmann::json& of_backend);

}  // namespace gdn
