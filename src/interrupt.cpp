#include "src/interrupt.hpp"

#include <unistd.h>

#include <csignal>
#include <tuple>

namespace gdn {
namespace {

std::string last_words;  // not changed any more once the handlers stand

// Only what is safe in a handler. It was reset to the default when it was entered: the signal that
// is raised again ends the process as soon as it returns.
void say_last_words(int signal) {
  std::ignore = ::write(STDERR_FILENO, last_words.data(), last_words.size());
  std::raise(signal);
}

}  // namespace

void say_when_interrupted(const std::string& text) {
  last_words = text;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup, or a shell's background job
    action = {};
    action.sa_handler = say_last_words;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    sigaction(signal, &action, nullptr);
  }
}

void outlive_readers() { std::signal(SIGPIPE, SIG_IGN); }

}  // namespace gdn
