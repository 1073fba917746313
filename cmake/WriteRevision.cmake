set(REVISION "unknown")
if(GIT)
  execute_process(COMMAND ${GIT} -C ${SOURCE} describe --always --dirty --abbrev=12
                  OUTPUT_VARIABLE described OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                  RESULT_VARIABLE failed)
  if(NOT failed)
    set(REVISION ${described})
  endif()
endif()
configure_file(${TEMPLATE} ${OUTPUT} @ONLY)  # writes only on a change
