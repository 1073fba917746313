// A ladder of variants that are wrong in one way each, beside some that are right. Linked into
// gdnbench_faulty in the place of kernels/ladder.cpp.
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "kernels/cpu/cpu.hpp"
#include "kernels/variant.hpp"
#include "tests/faulty_cuda.hpp"

namespace gdn {
namespace {

// The first instance of a variant, and no knobs: its id is its name.
Variant plain(Variant variant) {
  variant.instances.resize(1);
  variant.instances[0].knobs.clear();
  return variant;
}

using Fault = void (*)(const Problem& problem, const Tensors& tensors, int launch);

// A variant that computes what is right and then does `fault`, which knows how often it was
// launched.
Variant faulty(const char* name, Fault fault) {
  const Instance right = plain(cpu::chunked()).instances[0];
  Instance instance = right;
  instance.setup = [right, fault](const Problem& problem, const Tensors& tensors,
                                  void* workspace) -> Launch {
    Launch launch = right.setup(problem, tensors, workspace);
    return [=, launches = 0](Stream stream) mutable {
      launch(stream);
      fault(problem, tensors, launches++);
    };
  };
  return {.name = name,
          .idea = "Wrong on purpose.",
          .target = Target::cpu,
          .scopes = {Scope::core},
          .needs = nullptr,
          .accepts = nullptr,
          .instances = {instance}};
}

// Right as long as it is checked before the timing; then it does nothing, very fast.
Variant lazy() {
  Variant variant = plain(cpu::chunked());
  variant.name = "lazy";
  const Instance right = variant.instances.front();
  variant.instances[0].setup = [right](const Problem& problem, const Tensors& tensors,
                                       void* workspace) -> Launch {
    return
        [launch = right.setup(problem, tensors, workspace), launches = 0](Stream stream) mutable {
          if (launches++ < 3) launch(stream);
        };
  };
  return variant;
}

constexpr const char* hanging = "hanging.pid";  // in the folder of the run

[[noreturn]] void hang() {
  std::ofstream(hanging) << getpid() << std::endl;
  while (true) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Fails where the process that hung is still there, be it only as one that nobody waited for.
void expect_alone() {
  pid_t pid = 0;
  std::ifstream(hanging) >> pid;
  if (pid == 0) throw std::runtime_error("nothing has hung");
  if (kill(pid, 0) == 0 || errno != ESRCH) throw std::runtime_error("what hung is still there");
}

void add(BFloat16& x, float amount) { x = to_bfloat16(to_float(x) + amount); }

Variant knobs() {
  Variant variant = plain(cpu::xform());
  variant.name = "knobs";
  Instance wide = variant.instances.front();
  wide.knobs = {{"threads", "512"}, {"width", "128"}};
  Instance narrow = wide;
  narrow.knobs[0].value = "64";
  variant.instances = {narrow, wide};
  return variant;
}

// The right launch, and so many per cent of what it took are spent once more.
Variant slowed() {
  using Clock = std::chrono::steady_clock;
  Variant variant = plain(cpu::chunked());
  variant.name = "slowed";
  const Instance right = variant.instances.front();
  variant.instances.clear();
  for (const int percent : {0, 10, 400}) {
    Instance instance = right;
    instance.knobs = {{"percent", std::to_string(percent)}};
    instance.setup = [right, percent](const Problem& problem, const Tensors& tensors,
                                      void* workspace) -> Launch {
      return [launch = right.setup(problem, tensors, workspace), percent](Stream stream) {
        const Clock::time_point start = Clock::now();
        launch(stream);
        const Clock::time_point until = Clock::now() + (Clock::now() - start) * percent / 100;
        while (Clock::now() < until) continue;
      };
    };
    variant.instances.push_back(instance);
  }
  return variant;
}

Variant picky() {
  Variant variant = plain(cpu::xform());
  variant.name = "picky";
  variant.accepts = [](const Problem&) { return std::string("it likes no problem at all"); };
  return variant;
}

Variant greedy() {
  Variant variant = plain(cpu::xform());
  variant.name = "greedy";
  variant.instances[0].workspace_bytes = [](const Problem&) { return std::size_t{1} << 60; };
  return variant;
}

Variant bounded() {
  Variant variant = plain(cpu::xform());
  variant.name = "bounded";
  variant.instances[0].bound = "drops at most a little";
  return variant;
}

std::vector<Variant> on_cpu() {
  return {
      plain(cpu::recurrent()),
      faulty("wrong", [](const Problem&, const Tensors& t, int) { add(t.output[300], 5); }),
      faulty("nan", [](const Problem&, const Tensors& t, int) { t.output[300] = {0x7FC0}; }),
      faulty("forgets_state",
             [](const Problem& p, const Tensors& t, int) {
               std::memset(t.final_state, 0xFF, sizeof(float) * 128 * 128 * p.value_heads);
             }),
      faulty("flaky",
             [](const Problem&, const Tensors& t, int n) {
               if (n == 1) add(t.output[7], 0.01F);
             }),
      faulty("tires",
             [](const Problem&, const Tensors& t, int n) {
               if (n >= 4) add(t.output[7], 0.01F);
             }),
      lazy(),
      faulty("moody",  // right, and always the same, but not in another process
             [](const Problem&, const Tensors& t, int) {
               t.final_state[7] += 1e-6F * static_cast<float>(getpid() % 1000);
             }),
      faulty("overruns", [](const Problem& p, const Tensors& t,
                            int) { t.output[p.tokens() * p.value_heads * 128 + 3] = {0}; }),
      faulty("underruns", [](const Problem&, const Tensors& t, int) { t.g[-1] = 1; }),
      faulty("scribbles",
             [](const Problem&, const Tensors& t, int) {
               const_cast<float*>(t.raw_g)[0] = -1;  // which the core scope does not read
             }),
      faulty("throws", [](const Problem&, const Tensors&,
                          int) { throw std::runtime_error("no launch today"); }),
      faulty("crashes", [](const Problem&, const Tensors&, int) { std::raise(SIGSEGV); }),
      faulty("exits", [](const Problem&, const Tensors&, int) { std::_Exit(17); }),
      faulty("hangs", [](const Problem&, const Tensors&, int) { hang(); }),
      faulty("alone", [](const Problem&, const Tensors&, int) { expect_alone(); }),
      knobs(),
      slowed(),
      picky(),
      greedy(),
      bounded(),
      plain(cpu::chunked()),
  };
}

}  // namespace

std::span<const Variant> ladder() {
  static const std::vector<Variant> rungs = [] {
    std::vector<Variant> all = on_cpu();
#ifdef GDNBENCH_WITH_CUDA
    for (const Variant& variant : test::faulty_cuda()) all.push_back(variant);
#endif
    return all;
  }();
  return rungs;
}

}  // namespace gdn
