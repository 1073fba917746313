# Every library is a distribution package; bootstrap installs what is missing here.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)        # threads of the CPU backend: the compiler's own
find_package(CLI11 REQUIRED)                        # command line: help, validation and suggestions by declaration
find_package(fmt REQUIRED)                          # text: std::format is absent from Debian 12's compiler
find_package(yaml-cpp REQUIRED)                     # case files: the YAML reader that knows line and column
find_package(nlohmann_json REQUIRED)                # results, safetensors headers: the field's usual JSON
find_package(Eigen3 REQUIRED NO_MODULE)             # matrix products of the CPU variants, vectorised
find_package(pugixml QUIET)                         # JUnit XML: escaping and encoding done right; optional
if(GDNBENCH_TESTS)
  find_package(GTest REQUIRED)                      # tests under ctest
endif()

if(NOT TARGET yaml-cpp::yaml-cpp)                   # yaml-cpp 0.7 exports the plain name
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
