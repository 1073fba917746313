set(REVISION "unknown")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE failed)
  if(NOT failed)
    set(REVISION ${described})
  endif()
endif()
file(GLOB_RECURSE kernels LIST_DIRECTORIES false RELATIVE ${SOURCE} ${SOURCE}/kernels/*.cpp
     ${SOURCE}/kernels/*.hpp ${SOURCE}/kernels/*.cu ${SOURCE}/kernels/*.cuh)
set(hashes "")
foreach(kernel IN LISTS kernels)
  file(READ ${SOURCE}/${kernel} text)
  string(REGEX REPLACE "//[^\n]*" "" text "${text}")  # what a comment says changes no kernel (its lines still count)
  string(SHA256 hash "${text}")
  string(APPEND hashes "${kernel} ${hash}\n")
endforeach()
string(SHA256 KERNELS "${hashes}")
string(SUBSTRING ${KERNELS} 0 16 KERNELS)
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)  # writes only on a change
