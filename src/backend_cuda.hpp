// The CUDA backend. Host-only declarations: nothing of CUDA's headers reaches what includes this.
#pragma once

#include <memory>
#include <string>

#include "src/backend.hpp"

namespace gdn {

// "" when device `device` can be used, else why not and what to do about it. Needs no driver.
std::string cuda_obstacle(int device);

std::unique_ptr<Backend> make_cuda_backend(const BackendOptions& options);

}  // namespace gdn
