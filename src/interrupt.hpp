// How a run ends when it is told to by a signal.
#pragma once

#include <string>

namespace gdn {

// SIGINT, SIGTERM and SIGHUP print `text` to standard error and then end the process as ever.
void say_when_interrupted(const std::string& text);

// A run whose results go to files goes on when the reader of its tables has left (`| head -1`).
void outlive_readers();

}  // namespace gdn
