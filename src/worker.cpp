#include "src/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "src/backend.hpp"
#include "src/error.hpp"
#include "src/fingerprint.hpp"
#include "src/inputs.hpp"
#include "src/variant_select.hpp"
#include "src/workbench.hpp"

namespace gdn {
namespace {

using nlohmann::json;

constexpr int protocol = 2;  // of the messages; counts up when one changes

// JSON lines over a socket. Reads give "" at its end.
bool send_line(int socket, const json& message) {
  const std::string line = message.dump(-1, ' ', false, json::error_handler_t::replace) + '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t n = send(socket, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

enum class Received { line, end, timeout };

Received receive_line(int socket, std::string& buffer, double timeout_s, std::string& line) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(timeout_s);
  while (true) {
    if (const std::size_t end = buffer.find('\n'); end != std::string::npos) {
      line = buffer.substr(0, end);
      buffer.erase(0, end + 1);
      return Received::line;
    }
    const double left_ms = std::chrono::duration<double, std::milli>(until - Clock::now()).count();
    if (left_ms <= 0) return Received::timeout;
    pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
    const int n = poll(&ready, 1, static_cast<int>(std::min(left_ms + 1, 1e9)));
    if (n < 0 && errno != EINTR) return Received::end;
    if (n <= 0) continue;
    char chunk[65536];
    const ssize_t got = recv(socket, chunk, sizeof chunk, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Received::end;
    buffer.append(chunk, static_cast<std::size_t>(got));
  }
}

json to_json(const Device& device) {
  return {{"target", device.target == Target::cuda ? "cuda" : "cpu"},
          {"name", device.name},
          {"processors", device.processors},
          {"capability", device.capability},
          {"memory_bytes", device.memory_bytes},
          {"shared_bytes_per_block", device.shared_bytes_per_block},
          {"cache_bytes", device.cache_bytes}};
}

Device device_from(const json& j) {
  return {.target = j.at("target") == "cuda" ? Target::cuda : Target::cpu,
          .name = j.at("name"),
          .processors = j.at("processors"),
          .capability = j.at("capability"),
          .memory_bytes = j.at("memory_bytes"),
          .shared_bytes_per_block = j.at("shared_bytes_per_block"),
          .cache_bytes = j.at("cache_bytes")};
}

json to_json(const WorkerOptions& options) {
  return {{"backend", options.backend.name},
          {"device", options.backend.device},
          {"timer", options.backend.timer},
          {"schedule", options.backend.schedule},
          {"batch", options.backend.batch},
          {"inputs_file", options.inputs_file},
          {"dump_folder", options.dump_folder},
          {"min_samples", options.sampling.min_samples},
          {"max_noise_percent", options.sampling.max_noise_percent},
          {"timeout_s", options.sampling.timeout_s}};
}

WorkerOptions options_from(const json& j) {
  return {.backend = {.name = j.at("backend"),
                      .device = j.at("device"),
                      .timer = j.at("timer"),
                      .schedule = j.at("schedule"),
                      .batch = j.at("batch")},
          .inputs_file = j.at("inputs_file"),
          .dump_folder = j.at("dump_folder"),
          .sampling = {.min_samples = j.at("min_samples"),
                       .max_noise_percent = j.at("max_noise_percent"),
                       .timeout_s = j.at("timeout_s")}};
}

// Between fork and exec, as all of these: nothing here may allocate, since other threads may hold
// locks. A program of another build leads a group of processes, as it may be a script that starts
// others.
[[noreturn]] void become_worker(const char* program, int socket, int parent, bool leads) {
  if (leads) setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no worker outlives the run, even a hanging one
  if (getppid() != parent) _exit(1);
  if (socket == worker_socket)
    fcntl(socket, F_SETFD, 0);
  else
    dup2(socket, worker_socket);
  execl(program, "gdnbench", "worker", static_cast<char*>(nullptr));
  _exit(127);
}

// Becomes one of the group, and ends all of it when the run has died and cannot.
[[noreturn]] void watch_over(int group, int parent) {
  if (setpgid(0, group) != 0) _exit(1);
  sigset_t death;
  sigemptyset(&death);
  sigaddset(&death, SIGTERM);
  sigprocmask(SIG_BLOCK, &death, nullptr);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  int signal = 0;
  if (getppid() == parent) sigwait(&death, &signal);
  kill(-group, SIGKILL);
  _exit(1);
}

}  // namespace

Worker::Worker(const WorkerOptions& options) : options_(options) {
  // Threads that spin while they wait take the time of those that work, where cores are scarce.
  setenv("OMP_WAIT_POLICY", "passive", 0);
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw std::runtime_error(fmt::format("socketpair: {}", std::strerror(errno)));
  const std::string program = options.program.empty() ? "/proc/self/exe" : options.program;
  const int parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    close(pair[0]);
    close(pair[1]);
    throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  }
  const bool leads = !options.program.empty();
  if (pid_ == 0) become_worker(program.c_str(), pair[1], parent, leads);
  close(pair[1]);
  if (leads) {
    group_ = pid_;
    setpgid(pid_, group_);  // whoever is first
    if (fork() == 0) watch_over(group_, parent);
  }
  socket_ = pair[0];
  try {
    greet();
  } catch (...) {
    end();
    throw;
  }
}

void Worker::greet() {
  const bool own = options_.program.empty();
  // This build's start is no row that may hang, and another program may never answer.
  const double patience_s =
      own ? std::max(options_.deadline_s, 30.0) : std::min(options_.deadline_s, 30.0);
  try {
    const json hello = ask({{"options", to_json(options_)}}, patience_s);
    if (const int spoken = hello.value("protocol", 1); spoken != protocol)
      throw UserError(
          fmt::format("{}: that build speaks version {} of the workers' protocol, this one {}; "
                      "build both from revisions that speak the same",
                      options_.program, spoken, protocol));
    device_ = device_from(hello.at("device"));
    of_backend_ = hello.at("fingerprint");
    build_ = hello.at("build");
  } catch (const UserError&) {
    throw;
  } catch (const std::exception& e) {
    if (own) throw;
    throw UserError(
        fmt::format("{}: it does not answer as gdnbench does ({}); give another build's gdnbench",
                    options_.program, e.what()));
  }
}

Worker::~Worker() { end(); }

void Worker::end() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_ = -1;
  if (group_ > 0) {
    kill(-group_, SIGKILL);
    while (waitpid(-group_, nullptr, 0) > 0) continue;
  }
  group_ = -1;
}

std::string Worker::post_mortem() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFSIGNALED(status))
    return fmt::format("crashed: {} (signal {})", strsignal(WTERMSIG(status)), WTERMSIG(status));
  return fmt::format("the worker process ended with exit code {}", WEXITSTATUS(status));
}

json Worker::ask(json question, double seconds) {
  question["id"] = ++questions_;
  send_line(socket_, question);  // a failure shows in the answer
  std::string line;
  switch (receive_line(socket_, received_, seconds, line)) {
    case Received::end:
      throw WorkerDied(post_mortem());
    case Received::timeout:
      kill(pid_, SIGKILL);
      post_mortem();
      throw WorkerDied(fmt::format("no answer within {:g} s (--deadline): killed", seconds));
    case Received::line:
      break;
  }
  json answer = json::parse(line);
  if (answer.at("id") != questions_) throw WorkerDied("it answered another question: killed");
  if (answer.contains("user_error")) throw UserError(answer["user_error"].get<std::string>());
  if (answer.contains("error")) throw std::runtime_error(answer["error"].get<std::string>());
  return answer;
}

std::string Worker::load(const Case& c) {
  return ask({{"load", to_yaml(c)}}, options_.deadline_s).at("input_hash");
}

Row Worker::measure(const std::string& variant, Scope scope, Timing timing) {
  return row_from_json(ask({{"measure", variant},
                            {"scope", static_cast<int>(scope)},
                            {"timing", static_cast<int>(timing)}},
                           options_.deadline_s + options_.sampling.timeout_s)
                           .at("row"));
}

Workbench::Opened Worker::open_stand(const std::string& variant, Scope scope, Timing timing) {
  const json answer = ask(
      {{"open", variant}, {"scope", static_cast<int>(scope)}, {"timing", static_cast<int>(timing)}},
      options_.deadline_s);
  Workbench::Opened opened{.row = row_from_json(answer.at("row")), .number = std::nullopt};
  if (!answer.at("stand").is_null()) opened.number = answer.at("stand").get<int>();
  return opened;
}

std::vector<double> Worker::take(int stand) {
  return ask({{"take", stand}}, options_.deadline_s).at("samples_s");
}

Row Worker::settle(int stand, bool ends) {
  return row_from_json(ask({{"settle", stand}, {"ends", ends}}, options_.deadline_s).at("row"));
}

namespace {

// What a worker holds: the backend, and the case that lies on it.
class Server {
 public:
  json answer(const json& question) {
    if (question.contains("options")) return start(options_from(question["options"]));
    if (question.contains("load")) return load(question["load"].get<std::string>());
    if (question.contains("open")) return open(question);
    if (question.contains("take"))
      return {{"samples_s", bench_->take(question["take"].get<int>())}};
    if (question.contains("settle"))
      return {{"row", to_json(bench_->settle(question["settle"].get<int>(),
                                             question.at("ends").get<bool>()))}};
    return {{"row", to_json(bench_->measure(request_of(question, "measure")))}};
  }

 private:
  json start(WorkerOptions options) {
    options_ = std::move(options);
    backend_ = make_backend(options_.backend);
    if (!options_.inputs_file.empty()) file_ = read_inputs(options_.inputs_file);
    return {{"protocol", protocol},
            {"device", to_json(backend_->device())},
            {"fingerprint", backend_->fingerprint()},
            {"build", fingerprint(json::object())}};
  }

  json load(const std::string& yaml) {
    bench_.reset();  // frees the last case's memory first
    Case c;
    if (file_) {
      c.name = file_->name;
      c.problem = file_->problem;
    } else {
      c = parse_cases(yaml, "worker", {}, SIZE_MAX).at(0);
    }
    bench_ = std::make_unique<Workbench>(*backend_, c, file_ ? &*file_ : nullptr);
    return {{"input_hash", bench_->input_hash()}};
  }

  json open(const json& question) {
    const Workbench::Opened opened = bench_->open(request_of(question, "open"));
    const json stand = opened.number ? json(*opened.number) : json();
    return {{"row", to_json(opened.row)}, {"stand", stand}};
  }

  MeasureRequest request_of(const json& question, const char* what) const {
    MeasureRequest request{.scope = static_cast<Scope>(question.at("scope").get<int>()),
                           .timing = static_cast<Timing>(question.at("timing").get<int>()),
                           .sampling = options_.sampling,
                           .dump_folder = options_.dump_folder};
    const auto id = question.at(what).get<std::string>();
    const std::optional<SelectedVariant> selected = instance_of(id);
    if (!selected) throw std::runtime_error(no_such_instance + id);
    request.variant = selected->variant;
    request.instance = selected->instance;
    return request;
  }

  WorkerOptions options_;
  std::unique_ptr<Backend> backend_;
  std::optional<InputFile> file_;
  std::unique_ptr<Workbench> bench_;
};

}  // namespace

int serve(int socket) {
  Server server;
  std::string buffer;
  std::string line;
  while (receive_line(socket, buffer, 1e9, line) == Received::line) {
    json reply;
    json id;
    try {
      const json question = json::parse(line);
      id = question.at("id");
      reply = server.answer(question);
    } catch (const UserError& e) {
      reply = {{"user_error", e.what()}};
    } catch (const std::bad_alloc&) {
      reply = {{"error", out_of_memory}};
    } catch (const std::exception& e) {
      reply = {{"error", e.what()}};
    }
    reply["id"] = id;
    if (!send_line(socket, reply)) break;
  }
  return 0;
}

}  // namespace gdn
