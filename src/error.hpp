// How the tool fails: one exception for what the user can mend, and the exit codes of every
// command.
#pragma once

#include <stdexcept>
#include <string>

namespace gdn {

// Of several that apply, the first of 4, 2, 1, 3 is the exit code.
enum class Exit : int { fine = 0, regression = 1, incorrect = 2, inconclusive = 3, usage = 4 };

// Bad input or a bad environment. The message says what, where and what to do; main prints it and
// exits with 4.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace gdn
