// As the original says; here every launch has ended when the next one begins.
#pragma once

namespace gdn {

inline void let_next_launch_begin() {}
inline void wait_for_launch_ahead() {}

}  // namespace gdn
