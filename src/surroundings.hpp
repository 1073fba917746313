// What stands around this process: profilers and sanitizers, found without touching CUPTI.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gdn {

struct Surroundings {
  std::vector<std::string> environment;  // NAME=VALUE
  std::string maps;                      // the text of /proc/self/maps
  std::vector<std::string> ancestors;    // names of parent, grandparent, …
};

Surroundings surroundings_of_this_process();

// The tool that runs this process and how that shows, e.g. "nsys (NSYS_PROFILING_SESSION_ID is
// set)"; "" for none.
std::string profiler_in(const Surroundings& surroundings);

// Names what may hold CUPTI in this process as far as can be known: the profiler, else a foreign
// library in it.
std::string cupti_holder_in(const Surroundings& surroundings);

std::string process_name(int pid);  // "" when it cannot be known

}  // namespace gdn
