// Runs the finished program and keeps what it said.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace gdn::test {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

// A folder of a test's own, gone when the test ends.
class Folder {
 public:
  Folder() {
    std::string name = (std::filesystem::temp_directory_path() / "gdnbench-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

struct Ended {
  int exit_code = -1;  // 128 + signal when it was killed
  std::string out, err;
};

// A program started in a folder; its output goes to files there.
class Process {
 public:
  Process(const Folder& folder, const std::string& program,
          const std::vector<std::string>& arguments)
      : out_(folder / "stdout.txt"), err_(folder / "stderr.txt") {
    std::vector<std::string> all = {program};
    all.insert(all.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& a : all) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      setenv("GDNBENCH_CASES", GDNBENCH_SOURCE_DIR "/cases", 1);
      setenv("OMP_WAIT_POLICY", "passive", 1);  // tests share the cores
      // A sanitizer must not stand between a crash and who waits for it.
      setenv("ASAN_OPTIONS", "handle_segv=0:allocator_may_return_null=1", 1);
      if (chdir(folder.path().c_str()) != 0) _exit(126);
      dup2(open(out_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDOUT_FILENO);
      dup2(open(err_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666), STDERR_FILENO);
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }

  void kill_now() const { send(SIGKILL); }
  void send(int signal) const { kill(pid_, signal); }

  // Whether there is nothing left to wait for; wait() is still to be called.
  bool has_ended() const {
    siginfo_t info{};
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  }

  // Whether the program, which has taken this process's place, has the file open.
  bool has_open(const std::filesystem::path& file) const {
    namespace fs = std::filesystem;
    const fs::path process = "/proc/" + std::to_string(pid_);
    std::error_code gone;
    if (fs::equivalent(process / "exe", "/proc/self/exe", gone) || gone) return false;
    for (fs::directory_iterator open(process / "fd", gone), end; !gone && open != end;
         open.increment(gone)) {
      std::error_code closed;
      if (fs::equivalent(open->path(), file, closed)) return true;
    }
    return false;
  }

  Ended wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_file(out_),
            read_file(err_)};
  }

 private:
  std::string out_, err_;
  int pid_;
};

inline Ended run_program(const Folder& folder, const std::string& program,
                         const std::vector<std::string>& arguments) {
  return Process(folder, program, arguments).wait();
}

}  // namespace gdn::test
