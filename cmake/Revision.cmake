# The git revision and a hash of the kernels' sources, looked up at every build so that a binary never
# names another commit.
find_package(Git QUIET)
list(JOIN GDNBENCH_KERNEL_CHECKS " " kernel_checks)
add_custom_target(gdnbench_revision
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/revision.hpp
  COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE=${PROJECT_SOURCE_DIR}
          -DTEMPLATE=${PROJECT_SOURCE_DIR}/src/revision.hpp.in
          -DOUTPUT=${PROJECT_BINARY_DIR}/generated/revision.hpp
          -DVERSION=${PROJECT_VERSION} "-DKERNEL_CHECKS=${kernel_checks}" -P ${PROJECT_SOURCE_DIR}/cmake/WriteRevision.cmake
  COMMENT "" VERBATIM)
