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
#include "src/inputs.hpp"
#include "src/workbench.hpp"

namespace gdn {
namespace {

using nlohmann::json;

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

constexpr int worker_socket = 3;  // the descriptor that a worker is started with

[[noreturn]] void become_worker(int socket, const WorkerOptions& options, int parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // no worker outlives the run, even a hanging one
  if (getppid() != parent) _exit(1);
  if (socket == worker_socket)
    fcntl(socket, F_SETFD, 0);
  else
    dup2(socket, worker_socket);
  const std::string device = std::to_string(options.device);
  const std::string noise = fmt::format("{}", options.sampling.max_noise_percent);
  const std::string timeout = fmt::format("{}", options.sampling.timeout_s);
  const std::string samples = std::to_string(options.sampling.min_samples);
  execl("/proc/self/exe", "gdnbench", "worker", "--backend", options.backend.c_str(), "--device",
        device.c_str(), "--max-noise", noise.c_str(), "--timeout", timeout.c_str(), "--min-samples",
        samples.c_str(), "--inputs", options.inputs_file.c_str(), "--dump",
        options.dump_folder.c_str(), static_cast<char*>(nullptr));
  _exit(127);
}

}  // namespace

Worker::Worker(const WorkerOptions& options) : options_(options) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    throw std::runtime_error(fmt::format("socketpair: {}", std::strerror(errno)));
  const int parent = getpid();
  pid_ = fork();
  if (pid_ < 0) {
    close(pair[0]);
    close(pair[1]);
    throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  }
  if (pid_ == 0) become_worker(pair[1], options, parent);
  close(pair[1]);
  socket_ = pair[0];
  const json hello = ask(nullptr);
  device_ = device_from(hello.at("device"));
  fingerprint_ = hello.at("fingerprint");
}

Worker::~Worker() {
  if (socket_ >= 0) close(socket_);
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

std::string Worker::post_mortem() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  if (WIFSIGNALED(status))
    return fmt::format("crashed: {} (signal {})", strsignal(WTERMSIG(status)), WTERMSIG(status));
  return fmt::format("the worker process ended with exit code {}", WEXITSTATUS(status));
}

json Worker::ask(const json& question) {
  if (!question.is_null()) send_line(socket_, question);  // a failure shows in the answer
  std::string line;
  switch (receive_line(socket_, received_, options_.deadline_s, line)) {
    case Received::end:
      throw WorkerDied(post_mortem());
    case Received::timeout:
      kill(pid_, SIGKILL);
      post_mortem();
      throw WorkerDied(
          fmt::format("no answer within {:g} s (--deadline): killed", options_.deadline_s));
    case Received::line:
      break;
  }
  json answer = json::parse(line);
  if (answer.contains("user_error")) throw UserError(answer["user_error"].get<std::string>());
  if (answer.contains("error")) throw std::runtime_error(answer["error"].get<std::string>());
  return answer;
}

std::string Worker::load(const Case& c) { return ask({{"load", to_yaml(c)}}).at("input_hash"); }

Row Worker::measure(const std::string& variant, Scope scope, Timing timing) {
  return row_from_json(ask({{"measure", variant},
                            {"scope", static_cast<int>(scope)},
                            {"timing", static_cast<int>(timing)}})
                           .at("row"));
}

int serve(const WorkerOptions& options, int socket) {
  std::unique_ptr<Backend> backend;
  std::optional<InputFile> file;
  std::unique_ptr<Workbench> bench;

  const auto answer = [&](const json& question) -> json {
    if (question.is_null()) {
      backend = make_backend(options.backend, options.device);
      if (!options.inputs_file.empty()) file = read_inputs(options.inputs_file);
      return {{"device", to_json(backend->device())}, {"fingerprint", backend->fingerprint()}};
    }
    if (question.contains("load")) {
      bench.reset();  // frees the last case's memory first
      Case c;
      if (file) {
        c.name = file->name;
        c.problem = file->problem;
      } else {
        c = parse_cases(question["load"].get<std::string>(), "worker", {}, SIZE_MAX).at(0);
      }
      bench = std::make_unique<Workbench>(*backend, c, file ? &*file : nullptr);
      return {{"input_hash", bench->input_hash()}};
    }
    MeasureRequest request{.scope = static_cast<Scope>(question.at("scope").get<int>()),
                           .timing = static_cast<Timing>(question.at("timing").get<int>()),
                           .sampling = options.sampling,
                           .dump_folder = options.dump_folder};
    for (const Variant& variant : ladder())
      for (const Instance& instance : variant.instances)
        if (variant_id(variant, instance) == question.at("measure")) {
          request.variant = &variant;
          request.instance = &instance;
        }
    return {{"row", to_json(bench->measure(request))}};
  };

  std::string buffer;
  json question = nullptr;  // the first answer is given unasked
  while (true) {
    json reply;
    try {
      reply = answer(question);
    } catch (const UserError& e) {
      reply = {{"user_error", e.what()}};
    } catch (const std::bad_alloc&) {
      reply = {{"error", "out of memory"}};
    } catch (const std::exception& e) {
      reply = {{"error", e.what()}};
    }
    std::string line;
    if (!send_line(socket, reply)) return 0;
    if (receive_line(socket, buffer, 1e9, line) != Received::line) return 0;
    question = json::parse(line);
  }
}

}  // namespace gdn
