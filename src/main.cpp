// gdnbench: options → cases → variants → run → report. Each command is one function.
#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/options.hpp"

namespace {

struct Execute {
  int operator()(const gdn::RunOptions& options) const { return gdn::run(options); }
  int operator()(const gdn::ListOptions& options) const { return gdn::list(options); }
  int operator()(const gdn::InputsOptions& options) const { return gdn::inputs(options); }
  int operator()(const gdn::CompareCommand& command) const { return gdn::compare(command); }
  int operator()(const gdn::ProfileOptions& options) const { return gdn::profile(options); }
  int operator()(const gdn::ReportCommand& command) const { return gdn::report(command); }
  int operator()(const gdn::DoctorOptions& options) const { return gdn::doctor(options); }
  int operator()(const gdn::WorkCommand&) const { return gdn::serve(gdn::worker_socket); }
  int operator()(const gdn::Leave& leave) const { return leave.exit_code; }
};

}  // namespace

int main(int argc, char** argv) {
  try {
    return std::visit(Execute{}, gdn::parse_command_line(argc, argv));
  } catch (const gdn::UserError& e) {
    fmt::print(stderr, "gdnbench: {}\n", e.what());
  } catch (const std::exception& e) {
    fmt::print(stderr, "gdnbench: unexpected: {}\n", e.what());
  }
  return static_cast<int>(gdn::Exit::usage);
}
