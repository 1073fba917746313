// The threads that OpenMP takes.
#pragma once

namespace gdn {

// That they can be had. Where not, OpenMP's library would end the process by itself, with exit code
// 1. Throws UserError.
void require_threads();

}  // namespace gdn
