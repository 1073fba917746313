#include "src/profile.hpp"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>

#include "src/shared_library.hpp"
#include "src/statistics.hpp"
#include "src/surroundings.hpp"

#ifdef GDNBENCH_WITH_CUDA
#include <cupti.h>
#endif

namespace gdn {

std::string demangled(const char* symbol) {
  if (std::string_view(symbol).substr(0, 2) != "_Z") return symbol;  // "a" is also a type's symbol
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 ? name.get() : symbol;
}

namespace {

double seconds(std::uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// Time by name within one run, in order of start.
std::vector<KernelTime> sums_by_name(const std::vector<Activity>& run) {
  std::vector<KernelTime> sums;
  for (const Activity& activity : run) {
    auto sum = std::ranges::find(sums, activity.name, &KernelTime::name);
    if (sum == sums.end()) sum = sums.insert(sums.end(), {activity.name, 0});
    sum->time_s += seconds(activity.end_ns - activity.start_ns);
  }
  return sums;
}

// In alphabetical order: that of start may differ where kernels overlap.
std::vector<std::string> names_in(const std::vector<Activity>& run) {
  std::vector<std::string> names;
  for (const Activity& activity : run) names.push_back(activity.name);
  std::ranges::sort(names);
  return names;
}

void require_alike(const std::vector<std::vector<Activity>>& runs) {
  const std::vector<std::string> expected = names_in(runs.front());
  for (const std::vector<Activity>& run : runs)
    if (const std::vector<std::string> names = names_in(run); names != expected)
      throw ActivityError(
          fmt::format("CUPTI records are missing: one run of the same launch has {}, another {}",
                      fmt::join(expected, " and "), fmt::join(names, " and ")));
}

double span_of(const std::vector<Activity>& run) {
  std::uint64_t first = UINT64_MAX, last = 0;
  for (const Activity& activity : run) {
    first = std::min(first, activity.start_ns);
    last = std::max(last, activity.end_ns);
  }
  return seconds(last - first);
}

}  // namespace

ActivityTimes times_of(const std::vector<std::vector<Activity>>& runs) {
  if (runs.empty() || runs.front().empty()) throw ActivityError("CUPTI recorded nothing");
  require_alike(runs);
  std::map<std::string, std::vector<double>> times;
  std::vector<double> spans;
  for (const std::vector<Activity>& run : runs) {
    for (const auto& [name, time_s] : sums_by_name(run)) times[name].push_back(time_s);
    spans.push_back(span_of(run));
  }
  ActivityTimes result{.kernels = sums_by_name(runs.front()), .span_s = median(spans)};
  for (KernelTime& kernel : result.kernels) kernel.time_s = median(times[kernel.name]);
  return result;
}

std::vector<std::vector<Activity>> runs_of(const std::vector<Activity>& kernels,
                                           std::size_t launches) {
  const std::size_t each = kernels.size() / launches;
  if (each == 0 || kernels.size() % launches != 0)
    throw ActivityError(fmt::format("{} kernels were seen in {} launches that are alike",
                                    kernels.size(), launches));
  std::vector<std::vector<Activity>> runs;
  for (auto first = kernels.begin(); first != kernels.end(); first += each)
    runs.emplace_back(first, first + each);
  require_alike(runs);
  return runs;
}

#ifdef GDNBENCH_WITH_CUDA

namespace {

void require_kernels(const std::vector<Activity>& activities, std::size_t expected) {
  const auto kernels = static_cast<std::size_t>(
      std::ranges::count(activities, Activity::Kind::kernel, &Activity::kind));
  if (kernels < expected)
    throw ActivityError(
        fmt::format("CUPTI recorded {} kernels of {} that were launched", kernels, expected));
}

constexpr std::size_t buffer_bytes = std::size_t{1} << 20;
constexpr std::size_t buffer_alignment = 8;  // CUPTI asks for it

constexpr CUpti_ActivityKind recorded_kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY};

std::vector<std::string> library_paths() {
  if (const char* path = std::getenv("GDNBENCH_CUPTI"); path != nullptr) return {path};
  const std::string name = fmt::format("libcupti.so.{}", CUPTI_API_VERSION / 10000);
  std::vector<std::string> paths = {name};
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH", ""}) {
    const char* root = *variable == '\0' ? "/usr/local/cuda" : std::getenv(variable);
    if (root == nullptr) continue;
    for (const char* folder : {"extras/CUPTI/lib64", "lib64", "lib"})
      paths.push_back(fmt::format("{}/{}/{}", root, folder, name));
  }
  return paths;
}

// The library and its functions.
struct Cupti {
  SharedLibrary library{library_paths()};
  decltype(&cuptiSubscribe) subscribe = nullptr;
  decltype(&cuptiUnsubscribe) unsubscribe = nullptr;
  decltype(&cuptiActivityRegisterCallbacks) register_callbacks = nullptr;
  decltype(&cuptiActivityEnable) enable = nullptr;
  decltype(&cuptiActivityDisable) disable = nullptr;
  decltype(&cuptiActivityFlushAll) flush_all = nullptr;
  decltype(&cuptiActivityGetNextRecord) next_record = nullptr;
  decltype(&cuptiActivityGetNumDroppedRecords) dropped_records = nullptr;
  decltype(&cuptiGetResultString) result_string = nullptr;
  decltype(&cuptiFinalize) finalize = nullptr;

  Cupti() {
    library.need("cuptiSubscribe", subscribe);
    library.need("cuptiUnsubscribe", unsubscribe);
    library.need("cuptiActivityRegisterCallbacks", register_callbacks);
    library.need("cuptiActivityEnable", enable);
    library.need("cuptiActivityDisable", disable);
    library.need("cuptiActivityFlushAll", flush_all);
    library.need("cuptiActivityGetNextRecord", next_record);
    library.need("cuptiActivityGetNumDroppedRecords", dropped_records);
    library.need("cuptiGetResultString", result_string);
    library.need("cuptiFinalize", finalize);
  }

  std::string text_of(CUptiResult result) const {
    const char* text = nullptr;
    if (result_string(result, &text) != CUPTI_SUCCESS || text == nullptr) return "unknown error";
    return text;
  }
};

std::string held_by_another() {
  const std::string holder = cupti_holder_in(surroundings_of_this_process());
  return fmt::format(
      "CUPTI is held by {}; it serves one tool at a time: run without the other for times by "
      "kernel",
      holder.empty() ? "another tool in this process, which does not show itself" : holder);
}

std::string explained(const Cupti& cupti, CUptiResult result) {
  const std::string text =
      fmt::format("{} (CUPTI error {})", cupti.text_of(result), static_cast<int>(result));
  switch (result) {
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
      return held_by_another();
    case CUPTI_ERROR_INSUFFICIENT_PRIVILEGES:
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES:
      return text +
             ": profiling is for administrators here; as root, put `options nvidia "
             "NVreg_RestrictProfilingToAdminUsers=0` into /etc/modprobe.d/ and reload the driver, "
             "or give the container CAP_SYS_ADMIN";
    case CUPTI_ERROR_CONFIDENTIAL_COMPUTING_NOT_SUPPORTED:
      return text + ": the device is in confidential computing mode, which allows no profiling";
    case CUPTI_ERROR_MIG_DEVICE_NOT_SUPPORTED:
      return text + ": the device is a MIG slice; take a whole device (nvidia-smi -mig 0 as root)";
    case CUPTI_ERROR_VIRTUALIZED_DEVICE_NOT_SUPPORTED:
      return text + ": the virtual GPU was set up without profiling";
    case CUPTI_ERROR_NOT_INITIALIZED:
      return text + ": no usable driver, or one that is older than this CUPTI";
    default:
      return text;
  }
}

// Where records go while a pass is attached. CUPTI's callbacks have no argument for it, and come on
// a thread of its own.
struct Collector {
  std::mutex mutex;
  const Cupti* cupti = nullptr;  // of the attached pass, or null
  CUpti_SubscriberHandle subscriber = nullptr;
  std::vector<Activity> activities;
  std::size_t dropped = 0;
  std::string failure;

  void add(const CUpti_Activity& record);
};

Collector& collector() {
  static Collector the_only;
  return the_only;
}

void Collector::add(const CUpti_Activity& record) {
  Activity activity;
  const auto take = [&activity](const auto& r) {
    activity.start_ns = r.start;
    activity.end_ns = r.end;
    activity.stream = r.streamId;
    activity.correlation = r.correlationId;
  };
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: {
      const auto& kernel = reinterpret_cast<const CUpti_ActivityKernel10&>(record);
      take(kernel);
      activity.name = demangled(kernel.name == nullptr ? "[kernel]" : kernel.name);
      activity.grid = {kernel.gridX, kernel.gridY, kernel.gridZ};
      activity.block = {kernel.blockX, kernel.blockY, kernel.blockZ};
      activity.registers = kernel.registersPerThread;
      activity.static_shared_bytes = kernel.staticSharedMemory;
      activity.dynamic_shared_bytes = kernel.dynamicSharedMemory;
      break;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET:
      take(reinterpret_cast<const CUpti_ActivityMemset4&>(record));
      activity.bytes = reinterpret_cast<const CUpti_ActivityMemset4&>(record).bytes;
      activity.kind = Activity::Kind::memset;
      activity.name = "[memset]";
      break;
    case CUPTI_ACTIVITY_KIND_MEMCPY:
      take(reinterpret_cast<const CUpti_ActivityMemcpy6&>(record));
      activity.bytes = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record).bytes;
      activity.kind = Activity::Kind::memcpy;
      activity.name = "[memcpy]";
      break;
    default:
      return;
  }
  // CUPTI writes zeros where it could not tell the time.
  if (activity.start_ns == 0 || activity.end_ns < activity.start_ns)
    failure = fmt::format("CUPTI has no time for {}", activity.name);
  activities.push_back(std::move(activity));
}

void CUPTIAPI buffer_requested(std::uint8_t** buffer, std::size_t* bytes, std::size_t* records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(buffer_alignment, buffer_bytes));
  *bytes = *buffer == nullptr ? 0 : buffer_bytes;  // without one, CUPTI drops and counts
  *records = 0;                                    // as many as fit
}

void CUPTIAPI buffer_completed(CUcontext context, std::uint32_t stream, std::uint8_t* buffer,
                               std::size_t, std::size_t valid_bytes) {
  const std::unique_ptr<std::uint8_t, void (*)(void*)> owner(buffer, std::free);
  Collector& to = collector();
  const std::lock_guard lock(to.mutex);
  if (to.cupti == nullptr) return;  // late, of a pass that has ended
  try {
    CUpti_Activity* record = nullptr;
    while (valid_bytes > 0 && to.cupti->next_record(buffer, valid_bytes, &record) == CUPTI_SUCCESS)
      to.add(*record);
    std::size_t dropped = 0;
    if (to.cupti->dropped_records(context, stream, &dropped) == CUPTI_SUCCESS)
      to.dropped += dropped;
  } catch (const std::exception& e) {  // must not leave into C
    to.failure = e.what();
  }
}

void CUPTIAPI no_callback(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void*) {}

void detach() {
  Collector& to = collector();
  const Cupti& cupti = *to.cupti;
  for (const CUpti_ActivityKind kind : recorded_kinds) cupti.disable(kind);
  cupti.flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  if (to.subscriber != nullptr) cupti.unsubscribe(to.subscriber);
  // Safe here: the device is idle, all is flushed, and no other thread of the tool calls CUDA.
  cupti.finalize();
  const std::lock_guard lock(to.mutex);
  to.cupti = nullptr;
  to.subscriber = nullptr;
}

// Returns why it does not go, and then leaves CUPTI as it was.
std::string attach(const Cupti& cupti) {
  Collector& to = collector();
  CUpti_SubscriberHandle subscriber = nullptr;
  // Nothing is called back for; but whoever subscribes first is the one that CUPTI serves.
  CUptiResult result = cupti.subscribe(&subscriber, no_callback, nullptr);
  if (result != CUPTI_SUCCESS) return explained(cupti, result);
  {
    const std::lock_guard lock(to.mutex);
    to.cupti = &cupti;
    to.subscriber = subscriber;
    to.activities.clear();
    to.dropped = 0;
    to.failure.clear();
  }
  result = cupti.register_callbacks(buffer_requested, buffer_completed);
  for (const CUpti_ActivityKind kind : recorded_kinds)
    if (result == CUPTI_SUCCESS) result = cupti.enable(kind);
  if (result == CUPTI_SUCCESS) return "";
  detach();
  return explained(cupti, result);
}

std::string try_to_attach() {
  if (const std::string tool = profiler_in(surroundings_of_this_process()); !tool.empty())
    return fmt::format(
        "this runs under {}, which uses CUPTI itself: it is left alone; run without it for times "
        "by kernel",
        tool);
  // Opened when first needed, and again only after it was not found.
  static std::unique_ptr<Cupti> cupti;
  if (cupti == nullptr || !cupti->library.obstacle().empty()) cupti = std::make_unique<Cupti>();
  if (const std::string& why = cupti->library.obstacle(); !why.empty())
    return fmt::format(
        "CUPTI was not found: {}; it comes with the CUDA toolkit (package cuda-cupti): set "
        "CUDA_HOME to the toolkit, or GDNBENCH_CUPTI to the library itself",
        why);
  if (collector().cupti != nullptr) return "another pass of this tool holds CUPTI";
  return attach(*cupti);
}

}  // namespace

CuptiState cupti_state() {
  const std::string obstacle = try_to_attach();
  if (obstacle.empty()) detach();
  return {obstacle.empty(), obstacle};
}

ActivityPass::ActivityPass() {
  if (const std::string obstacle = try_to_attach(); !obstacle.empty())
    throw ActivityError(obstacle);
}

ActivityPass::~ActivityPass() { detach(); }

std::vector<Activity> ActivityPass::record(const std::function<void()>& work,
                                           std::size_t expected_kernels) {
  Collector& to = collector();
  const auto flush = [&to] {
    if (const CUptiResult result = to.cupti->flush_all(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
        result != CUPTI_SUCCESS)
      throw ActivityError("CUPTI does not hand over its records: " + explained(*to.cupti, result));
  };
  flush();  // of what was done before
  {
    const std::lock_guard lock(to.mutex);
    to.activities.clear();
    to.dropped = 0;
    to.failure.clear();
  }
  work();
  flush();

  const std::lock_guard lock(to.mutex);
  if (to.dropped > 0)
    throw ActivityError(
        fmt::format("CUPTI dropped {} records: its times would be wrong", to.dropped));
  if (!to.failure.empty()) throw ActivityError(to.failure);
  std::vector<Activity> activities = std::move(to.activities);
  to.activities.clear();
  require_kernels(activities, expected_kernels);
  std::ranges::stable_sort(activities, {}, &Activity::start_ns);
  return activities;
}

ActivityTimes time_by_activity(const std::function<void()>& repeat,
                               const std::function<bool(const Activity&)>& counts, int runs,
                               std::size_t expected_kernels) {
  ActivityPass pass;
  repeat();  // CUPTI prepares each kernel when it first sees it
  std::vector<std::vector<Activity>> recorded;
  for (int i = 0; i < runs; ++i) {
    std::vector<Activity> run = pass.record(repeat, expected_kernels);
    if (counts) std::erase_if(run, [&](const Activity& activity) { return !counts(activity); });
    require_kernels(run, expected_kernels);
    recorded.push_back(std::move(run));
  }
  return times_of(recorded);
}

#endif

}  // namespace gdn
