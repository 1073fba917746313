#include "src/shared_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

namespace gdn {

SharedLibrary::SharedLibrary(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ != nullptr) {
      path_ = path;
      obstacle_.clear();
      return;
    }
    const char* const said = dlerror();
    const std::string_view why = said == nullptr ? "" : said;
    // That it is not there is no news; a wrong architecture or a missing symbol is.
    const bool absent = why.find("No such file") != std::string_view::npos;
    obstacle_ += fmt::format("{}{}", obstacle_.empty() ? "tried " : ", ",
                             absent ? path : fmt::format("{} ({})", path, why));
  }
}

void* SharedLibrary::address_of(const char* name) const {
  return handle_ == nullptr ? nullptr : dlsym(handle_, name);
}

void SharedLibrary::lacks(const char* name) {
  if (obstacle_.empty()) obstacle_ = fmt::format("{} has no function {}", path_, name);
}

}  // namespace gdn
