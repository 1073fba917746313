#include "src/workbench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "kernels/prepare/hash.hpp"
#include "src/check.hpp"
#include "src/safetensors.hpp"
#include "src/statistics.hpp"
#include "src/trace.hpp"

namespace gdn {
namespace {

constexpr std::size_t guard_bytes = 4096;

// An instance that did not keep to its contract; the row is `incorrect` with this reason.
struct Incorrect : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string hexadecimal(std::uint64_t x) { return fmt::format("{:016x}", x); }

template <class T>
std::vector<T> to_host(Backend& backend, const Guarded& tensor) {
  std::vector<T> host(tensor.bytes() / sizeof(T));
  backend.copy_out(host.data(), tensor.as<void>(), tensor.bytes());
  return host;
}

Launch set_up(const Instance& instance, const Problem& problem, const Tensors& tensors,
              const Guarded& workspace) {
  return instance.setup(problem, tensors, workspace.as<void>());
}

bool serves(const Variant& variant, Scope scope) {
  return std::ranges::find(variant.scopes, scope) != variant.scopes.end();
}

// Events and CUPTI may differ by what an empty kernel differs by, by the events' resolution
// (0.5 µs) and by 1 %.
bool timers_disagree(double events_s, double span_s, double offset_s) {
  return std::abs(events_s - offset_s - span_s) > 0.5e-6 + 0.01 * events_s;
}

// Does `work`; what goes wrong becomes the row's status.
void try_to(Row& row, const std::function<void()>& work) {
  try {
    work();
  } catch (const Unavailable& e) {
    give_up(row, Status::skipped, e.what());
  } catch (const Incorrect& e) {
    give_up(row, Status::incorrect, e.what());
  } catch (const std::bad_alloc&) {
    give_up(row, Status::failed, out_of_memory);
  } catch (const std::exception& e) {
    give_up(row, Status::failed, e.what());
  }
}

// Why an instance cannot be measured here at all; "" when it can.
std::string obstacle(const Variant& variant, const Instance& instance, Scope scope,
                     const Device& device, const Problem& problem, bool keys_normalised) {
  if (std::string why = obstacle(variant, instance, device); !why.empty()) return why;
  if (variant.accepts)
    if (std::string why = variant.accepts(problem); !why.empty()) return why;
  if (scope == Scope::core && !serves(variant, Scope::core))
    return "it does its own preparation: only the forward scope can be timed";
  if (!instance.bound.empty() && !keys_normalised)
    return "it " + instance.bound + ", which holds for keys of unit length: these are not";
  return "";
}

// Whether the preparation of a row folds A, for an instance that takes it so.
bool folds(const MeasureRequest& request) {
  return request.scope == Scope::forward && !serves(*request.variant, Scope::forward) &&
         !request.instance->folded_stages.empty();
}
const std::vector<Stage>& stages_of(const Instance& instance, bool folded) {
  return folded ? instance.folded_stages : instance.stages;
}

}  // namespace

Guarded::Guarded(Backend& backend, std::size_t bytes)
    : memory_(backend.allocate(bytes + 2 * guard_bytes)),
      data_(static_cast<std::byte*>(memory_.get()) + guard_bytes),
      bytes_(bytes) {
  backend.fill_nan(memory_.get(), bytes + 2 * guard_bytes);
}

bool Guarded::intact(Backend& backend) const {
  std::vector<unsigned char> guard(guard_bytes);
  for (const std::size_t at : {std::size_t{0}, guard_bytes + bytes_}) {
    backend.copy_out(guard.data(), static_cast<std::byte*>(memory_.get()) + at, guard_bytes);
    if (std::ranges::any_of(guard, [](unsigned char byte) { return byte != 0xFF; })) return false;
  }
  return true;
}

std::uint64_t Guarded::hash(Backend& backend) const { return backend.hash(data_, bytes_); }

Workbench::Workbench(Backend& backend, Case c, const InputFile* file)
    : backend_(backend), case_(std::move(c)) {
  const Problem& problem = case_.problem;
  const auto tokens = static_cast<std::size_t>(problem.tokens());
  const auto query_rows = tokens * problem.query_heads;
  const auto value_rows = tokens * problem.value_heads;
  const auto states =
      static_cast<std::size_t>(problem.sequences()) * problem.value_heads * head_dim * head_dim;
  const auto make = [&](std::size_t bytes) { return Guarded(backend, bytes); };

  q_ = make(query_rows * head_dim * sizeof(BFloat16));
  k_ = make(query_rows * head_dim * sizeof(BFloat16));
  v_ = make(value_rows * head_dim * sizeof(BFloat16));
  raw_g_ = make(value_rows * sizeof(float));
  beta_ = make(value_rows * sizeof(float));
  if (problem.initial_state) initial_state_ = make(states * sizeof(float));

  const std::vector<Chunk> chunks = problem.chunks();
  std::vector<std::int32_t> first_chunk(problem.sequences() + 1, 0);
  for (const Chunk& chunk : chunks) ++first_chunk[chunk.sequence + 1];
  for (int s = 0; s < problem.sequences(); ++s) first_chunk[s + 1] += first_chunk[s];
  const auto upload = [&](const auto& host) {
    Guarded tensor = make(host.size() * sizeof(host[0]));
    backend.copy_in(tensor.as<void>(), host.data(), tensor.bytes());
    return tensor;
  };
  offsets_ = upload(problem.offsets);
  chunks_ = upload(chunks);
  first_chunk_ = upload(first_chunk);

  g_ = make(value_rows * sizeof(float));
  A_ = make(value_rows * chunk_tokens * sizeof(BFloat16));
  A_low_ = make(A_.bytes());
  output_ = make(value_rows * head_dim * sizeof(BFloat16));
  final_state_ = make(states * sizeof(float));

  tensors_ = {.q = q_.as<BFloat16>(),
              .k = k_.as<BFloat16>(),
              .v = v_.as<BFloat16>(),
              .raw_g = raw_g_.as<float>(),
              .beta = beta_.as<float>(),
              .initial_state = initial_state_.as<float>(),
              .offsets = offsets_.as<std::int32_t>(),
              .chunks = chunks_.as<Chunk>(),
              .first_chunk = first_chunk_.as<std::int32_t>(),
              .g = g_.as<float>(),
              .A = A_.as<BFloat16>(),
              .A_low = A_low_.as<BFloat16>(),
              .output = output_.as<BFloat16>(),
              .final_state = final_state_.as<float>()};
  poison_prepared();

  std::optional<Range> range(std::in_place, phase::generate);
  if (file == nullptr) {
    recipe_ = case_.recipe;
    backend.generate(problem, case_.recipe,
                     {.q = q_.as<BFloat16>(),
                      .k = k_.as<BFloat16>(),
                      .v = v_.as<BFloat16>(),
                      .raw_g = raw_g_.as<float>(),
                      .beta = beta_.as<float>(),
                      .initial_state = initial_state_.as<float>()});
  } else {
    keys_normalised_ = file->keys_normalised;
    const auto load = [&](const Guarded& to, std::span<const std::byte> from) {
      if (to.bytes() > 0) backend.copy_in(to.as<void>(), from.data(), to.bytes());
    };
    load(q_, file->q);
    load(k_, file->k);
    load(v_, file->v);
    load(raw_g_, file->raw_g);
    load(beta_, file->beta);
    load(initial_state_, file->initial_state);
  }
  input_hash_ = hash_inputs();
  structure_hash_ = hash_structure();
  range.reset();
  range.emplace(phase::reference);
  reference_output_.resize(value_rows * head_dim);
  reference_state_.resize(states);
  backend.reference(problem, tensors_, reference_output_.data(), reference_state_.data());
}

std::vector<const Guarded*> Workbench::inputs() const {
  std::vector<const Guarded*> all = {&q_, &k_, &v_, &raw_g_, &beta_};
  if (case_.problem.initial_state) all.push_back(&initial_state_);
  all.push_back(&offsets_);
  return all;
}

std::string Workbench::hash_inputs() {
  std::uint64_t hash = 0;
  for (const Guarded* tensor : inputs()) hash = chain_hash(hash, tensor->hash(backend_));
  return hexadecimal(hash);
}

std::uint64_t Workbench::hash_structure() {
  return chain_hash(chunks_.hash(backend_), first_chunk_.hash(backend_));
}

std::uint64_t Workbench::hash_results() {
  return chain_hash(output_.hash(backend_), final_state_.hash(backend_));
}

std::uint64_t Workbench::hash_prepared() {
  return chain_hash(chain_hash(g_.hash(backend_), A_.hash(backend_)), A_low_.hash(backend_));
}

void Workbench::poison_results(bool preparation_too) {
  output_.poison(backend_);
  final_state_.poison(backend_);
  if (preparation_too) poison_prepared();
}

void Workbench::poison_prepared() {
  g_.poison(backend_);
  A_.poison(backend_);
  A_low_.poison(backend_);
  prepared_.reset();
  // What of A is 0 beforehand (variant.hpp).
  constexpr int half = chunk_tokens / 2;
  constexpr std::size_t row_bytes = chunk_tokens * sizeof(BFloat16);
  const int heads = case_.problem.value_heads;
  for (const Chunk& chunk : case_.problem.chunks()) {
    const std::size_t first = std::size_t{1} * chunk.token * heads;
    backend_.clear(A_.as<std::byte>() + first * row_bytes + row_bytes / 2, row_bytes, row_bytes / 2,
                   std::size_t{1} * std::min(chunk.length, half) * heads);
  }
}

void Workbench::verify_surroundings(const Guarded& workspace) {
  std::vector<std::pair<const char*, const Guarded*>> all = {
      {"q", &q_},           {"k", &k_},
      {"v", &v_},           {"raw_g", &raw_g_},
      {"beta", &beta_},     {"g", &g_},
      {"A", &A_},           {"A_low", &A_low_},
      {"output", &output_}, {"final_state", &final_state_},
      {"chunks", &chunks_}, {"offsets", &offsets_}};
  if (case_.problem.initial_state) all.emplace_back("initial_state", &initial_state_);
  if (workspace.bytes() > 0) all.emplace_back("workspace", &workspace);
  for (const auto& [name, tensor] : all)
    if (!tensor->intact(backend_)) throw Incorrect(fmt::format("it wrote past an end of {}", name));
  if (hash_structure() != structure_hash_) throw Incorrect("it wrote into the list of chunks");
  if (hash_inputs() != input_hash_) throw Incorrect("it wrote into its inputs");
  if (prepared_ && hash_prepared() != *prepared_) throw Incorrect("it wrote into g or A");
}

Row blank_row(const Case& c, const Variant& variant, const Instance& instance, Scope scope,
              Timing timing, Target target) {
  Row row;
  row.case_name = c.name;
  row.variant = variant_id(variant, instance);
  row.knobs = instance.knobs;
  row.bound = instance.bound;
  row.backend = name_of(target);
  row.scope = scope;
  row.timing = timing;
  row.chain_chunks = c.problem.chain_chunks();
  row.flop = c.problem.flop();
  row.bytes = c.problem.bytes(scope);
  return row;
}

std::string dump_name(const std::string& case_name, const std::string& variant, Scope scope) {
  return fmt::format("{}.{}.{}.safetensors", case_name, variant, name_of(scope));
}

// One file a row: output, reference and difference, and the same of the final state.
void Workbench::dump(const MeasureRequest& request, const Row& row) {
  const Problem& problem = case_.problem;
  std::filesystem::create_directories(request.dump_folder);
  const auto output = to_host<BFloat16>(backend_, output_);
  const auto state = to_host<float>(backend_, final_state_);
  std::vector<float> output_difference(output.size());
  std::vector<float> state_difference(state.size());
  for (std::size_t i = 0; i < output.size(); ++i)
    output_difference[i] = static_cast<float>(to_float(output[i]) - reference_output_[i]);
  for (std::size_t i = 0; i < state.size(); ++i)
    state_difference[i] = static_cast<float>(state[i] - reference_state_[i]);

  const std::vector<std::int64_t> tokens = {problem.tokens(), problem.value_heads, head_dim};
  const std::vector<std::int64_t> states = {problem.sequences(), problem.value_heads, head_dim,
                                            head_dim};
  const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
  SafeTensors content;
  content.metadata = {{"case", row.case_name}, {"variant", row.variant}};
  content.tensors = {{"output", "BF16", tokens, bytes(output)},
                     {"reference", "F64", tokens, bytes(reference_output_)},
                     {"difference", "F32", tokens, bytes(output_difference)},
                     {"final_state", "F32", states, bytes(state)},
                     {"state_reference", "F64", states, bytes(reference_state_)},
                     {"state_difference", "F32", states, bytes(state_difference)}};
  write_safetensors(
      std::filesystem::path(request.dump_folder) / dump_name(row.case_name, row.variant, row.scope),
      content);
}

Row Workbench::attempt(const MeasureRequest& request, const std::function<void(Row&)>& work) {
  Row row = blank_row(case_, *request.variant, *request.instance, request.scope, request.timing,
                      backend_.device().target);
  row.timer = backend_.timer();
  row.flush = backend_.flush(request.timing);
  row.input_hash = input_hash_;
  if (!keys_normalised_) row.flags.emplace_back("keys_not_normalised");
  if (std::string why = obstacle(*request.variant, *request.instance, request.scope,
                                 backend_.device(), case_.problem, keys_normalised_);
      !why.empty()) {
    give_up(row, Status::skipped, why);
    return row;
  }
  try_to(row, [&] {
    std::optional<Range> of_case, of_variant;
    if (!request.instead_of_timing) {  // which opens them itself, within what profilers record
      of_case.emplace(row.case_name);
      of_variant.emplace(row.variant, row.flop);
    }
    row.resources = backend_.resources(stages_of(*request.instance, folds(request)));
    work(row);
  });
  return row;
}

Row Workbench::measure(const MeasureRequest& request) {
  return attempt(request, [&](Row& row) {
    const Checked checked = make_checked(request, row);
    if (request.instead_of_timing) {
      poison_results(checked.forward);
      request.instead_of_timing(checked.launch);
      recheck(checked, "after its launches");
      verify_surroundings(checked.workspace);
      return;
    }
    time(request, checked, row);
  });
}

// Right, and the same twice, before anything is timed.
Workbench::Checked Workbench::make_checked(const MeasureRequest& request, Row& row) {
  const Problem& problem = case_.problem;
  const auto room = [&](const Instance& instance) {
    return Guarded(backend_,
                   instance.workspace_bytes ? instance.workspace_bytes(problem) : std::size_t{0});
  };
  const Instance& preparing = preparation(backend_.device().target, problem);
  Checked checked{.forward = request.scope == Scope::forward,
                  .workspace = room(*request.instance),
                  .preparation_workspace = room(preparing)};
  checked.prepares = checked.forward && !serves(*request.variant, Scope::forward);
  row.workspace_bytes = checked.workspace.bytes();

  Tensors tensors = tensors_;
  tensors.folded = folds(request);
  const Launch prepare = set_up(preparing, problem, tensors, checked.preparation_workspace);
  checked.launch = set_up(*request.instance, problem, tensors, checked.workspace);
  if (checked.prepares) {
    checked.launch = [prepare, core = std::move(checked.launch)](Stream stream) {
      prepare(stream);
      core(stream);
    };
    row.workspace_bytes += checked.preparation_workspace.bytes();
  } else if (!checked.forward && !prepared_) {
    const Range range(phase::prepare);
    backend_.run(prepare);
    prepared_ = hash_prepared();
  }

  const Range range(phase::check);
  poison_results(checked.forward);
  backend_.run(checked.launch);
  checked.hash = hash_results();
  const Finding& finding = finding_on_results(checked.hash);
  row.error = finding.error;
  if (!request.dump_folder.empty()) dump(request, row);
  if (!finding.reason.empty()) throw Incorrect(finding.reason);
  row.output_hash = hexadecimal(checked.hash);
  poison_results(checked.forward);
  backend_.run(checked.launch);
  recheck(checked, "on a second run");
  verify_surroundings(checked.workspace);
  return checked;
}

// Many instances give the same results bit for bit: these are held against the reference once.
const Finding& Workbench::finding_on_results(std::uint64_t hash) {
  if (const auto known = findings_.find(hash); known != findings_.end()) return known->second;
  const auto output = to_host<BFloat16>(backend_, output_);
  const auto state = to_host<float>(backend_, final_state_);
  return findings_
      .emplace(hash, check(case_.problem, recipe_, {output.data(), state.data()},
                           {reference_output_.data(), reference_state_.data()}))
      .first->second;
}

void Workbench::recheck(const Checked& checked, const char* when) {
  if (hash_results() != checked.hash)
    throw Incorrect(fmt::format("{}, the result differs from the checked one bit for bit", when));
}

SpotChecks Workbench::spot_checks(const Checked& checked) {
  return {[this, &checked] { poison_results(checked.forward); },
          [this, &checked] { recheck(checked, "during the timed runs"); }};
}

void Workbench::time(const MeasureRequest& request, const Checked& checked, Row& row) {
  std::unique_ptr<Sampler> sampler = [&] {
    const Range range(phase::warm_up);
    return backend_.sampler(request.timing, checked.launch);
  }();
  backend_.begin_telemetry();
  const Samples samples = [&] {
    const Range range(phase::time);
    return take_samples(*sampler, request.timing, request.sampling, spot_checks(checked));
  }();
  end_telemetry(row);
  sampler.reset();  // it may hold CUPTI, which the pass below attaches anew
  verify_surroundings(checked.workspace);

  const KernelPass pass = [&] {
    const Range range(phase::kernels);
    const bool folded = folds(request);
    std::vector<Stage> stages = stages_of(*request.instance, folded);
    if (checked.prepares) {
      const std::vector<Stage>& before =
          stages_of(preparation(backend_.device().target, case_.problem), folded);
      stages.insert(stages.begin(), before.begin(), before.end());
    }
    return backend_.kernel_pass(request.timing, checked.launch, stages);
  }();
  row.kernels = pass.kernels;
  row.flags.insert(row.flags.end(), pass.flags.begin(), pass.flags.end());
  if (!pass.obstacle.empty()) row.telemetry["cupti"] = pass.obstacle;
  if (pass.span_s) row.telemetry["cupti_span_s"] = *pass.span_s;
  row.time_s = summarize(samples.seconds);
  // In `lab` timing the host's launches are inside, which CUPTI makes longer.
  if (pass.span_s && request.timing != Timing::lab &&
      timers_disagree(row.time_s->median, *pass.span_s, pass.offset_s))
    row.flags.emplace_back("timers_disagree");
  row.samples = static_cast<std::int64_t>(samples.seconds.size());
  row.samples_s = thin(samples.seconds, kept_samples);
  row.round_medians_s = {row.time_s->median};
  row.host_s = samples.host_s;
  row.flags.insert(row.flags.end(), samples.flags.begin(), samples.flags.end());
}

void Workbench::end_telemetry(Row& row) {
  const TelemetrySummary telemetry = backend_.end_telemetry();
  row.telemetry = telemetry.json;
  if (telemetry.throttled) row.flags.emplace_back("throttled");
  if (const double offset = backend_.timer_offset_s(row.timing); offset > 0)
    row.telemetry["empty_kernel_s"] = offset;
}

// A checked instance with its sampler.
struct Workbench::Stand {
  Row row;
  Checked checked;
  std::unique_ptr<Sampler> sampler;
  std::optional<SpotChecks> checks;
  std::size_t taken = 0;
};

Workbench::~Workbench() = default;

Workbench::Opened Workbench::open(const MeasureRequest& request) {
  for (const auto& [number, stand] : stands_)
    if (stand->row.scope != request.scope)
      throw std::logic_error("stands of two scopes, which prepare g and A each in its way");
  auto stand = std::make_unique<Stand>();
  stand->row = attempt(request, [&](Row& row) {
    stand->checked = make_checked(request, row);
    const Range range(phase::warm_up);
    stand->sampler = backend_.sampler(request.timing, stand->checked.launch);
    stand->checks.emplace(spot_checks(stand->checked));
  });
  Opened opened{.row = stand->row, .number = std::nullopt};
  if (opened.row.status != Status::passed) return opened;
  if (stands_.empty()) backend_.begin_telemetry();
  opened.number = next_stand_++;
  stands_.emplace(*opened.number, std::move(stand));
  return opened;
}

std::vector<double> Workbench::take(int number) {
  Stand& stand = *stands_.at(number);
  std::vector<double> samples;
  try_to(stand.row, [&] {
    const Range range(phase::time);
    // What another instance left in the caches is not what its own launches find there.
    if (last_taken_ != number && stand.row.timing != Timing::cold) stand.sampler->take(samples);
    samples.clear();
    last_taken_ = number;
    stand.sampler->take(samples);
    stand.taken += samples.size();
    stand.checks->maybe(*stand.sampler, stand.taken);
  });
  if (stand.row.status != Status::passed) samples.clear();
  return samples;
}

Row Workbench::settle(int number, bool ends) {
  Stand& stand = *stands_.at(number);
  if (stand.row.status == Status::passed)
    try_to(stand.row, [&] {
      stand.checks->last(*stand.sampler);
      verify_surroundings(stand.checked.workspace);
    });
  Row row = stand.row;
  for (const std::string& flag : stand.sampler->flags()) row.flags.push_back(flag);
  if (!ends) {
    end_telemetry(row);  // since the last look
    backend_.begin_telemetry();
    return row;
  }
  row.host_s = stand.sampler->host_s();
  stands_.erase(number);
  if (stands_.empty()) end_telemetry(row);
  return row;
}

}  // namespace gdn
