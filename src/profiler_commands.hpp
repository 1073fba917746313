// The command lines by which nsys and ncu catch just what `gdnbench profile` marks.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gdn {

std::string shell_quoted(std::string_view word);  // as it is, where that means itself to a shell
std::string shell_line(std::span<const std::string> words);

// The range of a variant directly within that of a case, in ncu's language for push/pop ranges.
std::string ncu_filter(std::string_view case_name, std::string_view variant);

// Both run `command`, the words of a `gdnbench profile`.
std::string nsys_line(std::string_view case_name, std::string_view variant,
                      std::span<const std::string> command);
std::string ncu_line(std::string_view case_name, std::string_view variant,
                     std::span<const std::string> command);

}  // namespace gdn
