#include "src/backend.hpp"

#include "src/error.hpp"

#ifdef GDNBENCH_WITH_CUDA
#include "src/backend_cuda.hpp"
#endif

namespace gdn {

std::unique_ptr<Backend> make_backend(const std::string& name, int device) {
  if (name == "cpu") return make_cpu_backend();
#ifdef GDNBENCH_WITH_CUDA
  const std::string obstacle = cuda_obstacle(device);
  if (obstacle.empty()) return make_cuda_backend(device);
#else
  (void)device;
  const std::string obstacle =
      "this build has no CUDA backend: configure with -DGDNBENCH_CUDA=ON where nvcc is";
#endif
  if (name == "cuda") throw UserError("--backend cuda: " + obstacle);
  return make_cpu_backend();
}

}  // namespace gdn
