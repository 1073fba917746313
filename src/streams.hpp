// The three standard streams: always there, told apart from terminals, and never lost in silence.
#pragma once

#include <cstddef>
#include <cstdio>
#include <string>
#include <string_view>

namespace gdn {

// What was started with a closed stream gets an empty one, so that no file or socket takes its
// number; what a file-size limit cuts off is an error to be told, not a signal to die of.
void prepare_process();

// Prints now. What cannot be written is no reason to stop measuring: flush_standard_output tells.
void print(std::FILE* to, std::string_view text);

// What to say of it.
std::string output_lost(const std::string& reason);

// Throws UserError when something printed to standard output has not arrived. A reader that has
// left (`| head -1`) wanted no more.
void flush_standard_output();

bool is_terminal(std::FILE* stream);  // one that knows escape sequences
bool in_colour(std::FILE* stream);
std::size_t columns(std::FILE* terminal);

}  // namespace gdn
