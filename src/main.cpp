// gdnbench: options → cases → variants → run → report. Each command is one function.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <filesystem>
#include <system_error>

#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/options.hpp"
#include "src/streams.hpp"

namespace {

struct Execute {
  int operator()(const gdn::RunOptions& options) const { return gdn::run(options); }
  int operator()(const gdn::TuneOptions& options) const { return gdn::tune(options); }
  int operator()(const gdn::ListOptions& options) const { return gdn::list(options); }
  int operator()(const gdn::InputsOptions& options) const { return gdn::inputs(options); }
  int operator()(const gdn::CompareCommand& command) const { return gdn::compare(command); }
  int operator()(const gdn::ProfileOptions& options) const { return gdn::profile(options); }
  int operator()(const gdn::ReportCommand& command) const { return gdn::report(command); }
  int operator()(const gdn::WisdomCommand& command) const { return gdn::wisdom(command); }
  int operator()(const gdn::MergeCommand& command) const { return gdn::merge(command); }
  int operator()(const gdn::DoctorOptions& options) const { return gdn::doctor(options); }
  int operator()(const gdn::WorkCommand&) const { return gdn::serve(gdn::worker_socket); }
  int operator()(const gdn::Leave& leave) const { return leave.exit_code; }
};

void complain(const std::string& what) { gdn::print(stderr, "gdnbench: " + what + "\n"); }

std::string unexpected(const std::exception& e) {
  return fmt::format("unexpected: {}; please report it with what `gdnbench doctor` says", e.what());
}

}  // namespace

int main(int argc, char** argv) {
  gdn::prepare_process();
  try {
    const int exit_code = std::visit(Execute{}, gdn::parse_command_line(argc, argv));
    gdn::flush_standard_output();
    return exit_code;
  } catch (const gdn::UserError& e) {
    complain(e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    complain(fmt::format("{}: {}; check the path and its permissions", e.path1().string(),
                         e.code().message()));
  } catch (const std::system_error& e) {  // of a print, when it comes from standard output
    complain(std::ferror(stdout) != 0 ? gdn::output_lost(e.code().message()) : unexpected(e));
  } catch (const std::exception& e) {
    complain(unexpected(e));
  }
  return static_cast<int>(gdn::Exit::usage);
}
