#include "src/backend.hpp"

#include <string>

#include "src/error.hpp"
#include "src/threads.hpp"

#ifdef GDNBENCH_WITH_CUDA
#include "src/backend_cuda.hpp"
#endif

namespace gdn {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.name == "cpu") return make_cpu_backend(options);
#ifdef GDNBENCH_WITH_CUDA
  const std::string obstacle = cuda_obstacle(options.device);
  if (obstacle.empty()) {
    require_threads();  // the reference is found on the CPU
    return make_cuda_backend(options);
  }
#else
  const std::string obstacle =
      "this build has no CUDA backend: configure with -DGDNBENCH_CUDA=ON where nvcc is";
#endif
  if (options.name == "cuda") throw UserError("--backend cuda: " + obstacle);
  if (options.device != 0)
    throw UserError("--device " + std::to_string(options.device) + ": " + obstacle);
  return make_cpu_backend(options);
}

}  // namespace gdn
