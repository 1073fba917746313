# The git revision, looked up at every build so that a binary never names another commit.
find_package(Git QUIET)
add_custom_target(gdnbench_revision
  BYPRODUCTS ${PROJECT_BINARY_DIR}/generated/revision.hpp
  COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE=${PROJECT_SOURCE_DIR}
          -DTEMPLATE=${PROJECT_SOURCE_DIR}/src/revision.hpp.in
          -DOUTPUT=${PROJECT_BINARY_DIR}/generated/revision.hpp
          -DVERSION=${PROJECT_VERSION} -P ${PROJECT_SOURCE_DIR}/cmake/WriteRevision.cmake
  COMMENT "" VERBATIM)
