// A library that is opened at run time, so that the program also starts where there is none.
#pragma once

#include <string>
#include <vector>

namespace gdn {

class SharedLibrary {
 public:
  // The first of these that can be opened. It stays open: what it starts may outlive its user.
  explicit SharedLibrary(const std::vector<std::string>& paths);

  // "" when it is open and whole, else what was tried, or which function it lacks.
  const std::string& obstacle() const { return obstacle_; }

  template <class Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(address_of(name));
    return function != nullptr;
  }

  // A function that there is no doing without.
  template <class Function>
  void need(const char* name, Function*& function) {
    if (!find(name, function)) lacks(name);
  }

 private:
  void* address_of(const char* name) const;
  void lacks(const char* name);

  void* handle_ = nullptr;
  std::string path_;
  std::string obstacle_;
};

}  // namespace gdn
