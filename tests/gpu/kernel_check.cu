// A developer's check of the device kernels alone, without the tool around them: preparation,
// oracle and baseline against fp64 on the host and against each other, on edge shapes with NaN
// around every tensor, then times of each kernel on the lab's cases.
//
//   nvcc -std=c++20 -O3 -arch=sm_90 -I. tests/gpu/kernel_check.cu kernels/variant.cpp
//        kernels/prepare/chunk_inverse.cu kernels/prepare/oracle.cu kernels/cuda/baseline.cu
//   kernel_check            everything
//   kernel_check edges      the edge shapes
//   kernel_check sanitize   two small shapes, for compute-sanitizer
//   kernel_check times      the lab's cases
//   kernel_check profile    two of the lab's cases, each kernel once, for ncu
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rungs.hpp"
#include "kernels/prepare/oracle.hpp"
#include "kernels/prepare/preparation.hpp"
#include "kernels/prepare/recipe.hpp"

namespace gdn {
namespace {

void must(cudaError_t status) { throw_on_error(status, "kernel_check"); }

int failures = 0;
void expect(bool good, const std::string& what) {
  if (good) return;
  ++failures;
  std::printf("    FAILED: %s\n", what.c_str());
}

// ---- memory with NaN on both sides

template <class T>
class Guarded {
 public:
  explicit Guarded(std::size_t count) : bytes_(std::max<std::size_t>(count, 1) * sizeof(T)) {
    bytes_ = (bytes_ + 255) / 256 * 256;
    must(cudaMalloc(&memory_, bytes_ + 2 * guard));
    must(cudaMemset(memory_, 0xFF, bytes_ + 2 * guard));
  }
  ~Guarded() { cudaFree(memory_); }
  Guarded(const Guarded&) = delete;
  T* get() const { return reinterpret_cast<T*>(memory_ + guard); }
  void poison() const { must(cudaMemset(get(), 0xFF, bytes_)); }
  bool intact() const {
    std::vector<unsigned char> side(guard);
    for (const std::size_t offset : {std::size_t{0}, guard + bytes_}) {
      must(cudaMemcpy(side.data(), memory_ + offset, guard, cudaMemcpyDeviceToHost));
      for (const unsigned char byte : side) {
        if (byte != 0xFF) return false;
      }
    }
    return true;
  }
  std::vector<T> host(std::size_t count) const {
    std::vector<T> copy(count);
    must(cudaMemcpy(copy.data(), get(), count * sizeof(T), cudaMemcpyDeviceToHost));
    return copy;
  }

 private:
  static constexpr std::size_t guard = 1 << 20;
  std::size_t bytes_;
  char* memory_ = nullptr;
};

// ---- inputs, drawn on the device

__device__ unsigned mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<unsigned>((x ^ (x >> 31)) >> 16);
}
__device__ float uniform(std::uint64_t seed, std::int64_t i) {
  return (mix(seed * 0x1000'0000'0000u + i) + 0.5F) * 0x1p-32F;
}
__device__ float normal(std::uint64_t seed, std::int64_t i) {
  return sqrtf(-2 * logf(uniform(seed, 2 * i) + 1e-12F)) * cospif(2 * uniform(seed, 2 * i + 1));
}
__device__ BFloat16 rounded(float x) {
  const unsigned bits = __float_as_uint(x);
  return {static_cast<std::uint16_t>((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16)};
}
// One row of 128 a warp. `equal`: all rows the same.
__global__ void draw_rows(BFloat16* x, std::int64_t rows, int seed, bool normalised, bool equal) {
  const std::int64_t row = blockIdx.x * 4LL + threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  if (row >= rows) return;
  float value[4], sum = 0;
  for (int i = 0; i < 4; ++i) {
    value[i] = normal(seed, (equal ? 0 : row) * 128 + lane * 4 + i);
    sum += value[i] * value[i];
  }
  for (int step = 1; step < 32; step *= 2) sum += __shfl_xor_sync(~0u, sum, step);
  const float factor = normalised ? rsqrtf(sum) : 1;
  for (int i = 0; i < 4; ++i) x[row * 128 + lane * 4 + i] = rounded(value[i] * factor);
}
__global__ void draw_gates(float* raw_g, float* beta, std::int64_t count, int heads, Gates gates,
                           int beta_max, bool equal) {
  const std::int64_t i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= count) return;
  float g = -log1pf(expf(-normal(4, i))) / 16;
  if (gates == Gates::mixed && i / heads % 2 == 0) g = 0;
  if (gates == Gates::zero) g = 0;
  if (gates == Gates::strong) g = -1 - 11 * uniform(5, i);
  if (gates == Gates::reset && uniform(5, i) < 0.05F) g = -50;
  if (gates == Gates::infinite && uniform(5, i) < 0.02F) g = -INFINITY;
  raw_g[i] = g;
  beta[i] = equal ? 1.99F : beta_max / (1 + expf(-normal(6, i)));
}
__global__ void draw_state(float* x, std::int64_t count) {
  const std::int64_t i = blockIdx.x * 256LL + threadIdx.x;
  if (i < count) x[i] = normal(7, i);
}

struct Options {
  Gates gates = Gates::random_decay;
  int beta_max = 1;
  bool equal_keys =
      false;  // no health is asked for: bf16's rounding of A alone is amplified beyond
};

struct Data {
  explicit Data(const Problem& p, const Options& options = {})
      : problem(p), chunks_host(p.chunks()) {
    const std::size_t rows = p.tokens(), query = rows * p.query_heads, value = rows * p.value_heads;
    const std::size_t states = std::size_t(p.sequences()) * p.value_heads * 128 * 128;
    q = make<BFloat16>(query * 128), k = make<BFloat16>(query * 128);
    v = make<BFloat16>(value * 128), raw_g = make<float>(value), beta = make<float>(value);
    initial = make<float>(p.initial_state ? states : 0);
    offsets = make<std::int32_t>(p.offsets.size());
    first_chunk = make<std::int32_t>(p.offsets.size());
    chunks = make<Chunk>(chunks_host.size());
    g = make<float>(value), A = make<BFloat16>(value * 64);
    output = make<BFloat16>(value * 128), state = make<float>(states);
    true_output = make<double>(value * 128), true_state = make<double>(states);

    std::vector<std::int32_t> first(p.offsets.size(), 0);
    for (int n = 0; n < p.sequences(); ++n) first[n + 1] = first[n] + (p.length(n) + 63) / 64;
    const auto copy = [](auto* to, const auto& from) {
      must(cudaMemcpy(to, from.data(), from.size() * sizeof from[0], cudaMemcpyHostToDevice));
    };
    copy(offsets->get(), p.offsets), copy(first_chunk->get(), first);
    copy(chunks->get(), chunks_host);
    const auto blocks = [](std::size_t count, int of) { return unsigned((count + of - 1) / of); };
    if (rows > 0) {
      draw_rows<<<blocks(query, 4), 128>>>(q->get(), query, 1, true, false);
      draw_rows<<<blocks(query, 4), 128>>>(k->get(), query, 2, true, options.equal_keys);
      draw_rows<<<blocks(value, 4), 128>>>(v->get(), value, 3, false, false);
      draw_gates<<<blocks(value, 256), 256>>>(raw_g->get(), beta->get(), value, p.value_heads,
                                              options.gates, options.beta_max, options.equal_keys);
    }
    if (p.initial_state) draw_state<<<blocks(states, 256), 256>>>(initial->get(), states);
    must(cudaDeviceSynchronize());
    x = {q->get(),       k->get(),      v->get(),
         raw_g->get(),   beta->get(),   p.initial_state ? initial->get() : nullptr,
         offsets->get(), chunks->get(), first_chunk->get(),
         g->get(),       A->get(),      output->get(),
         state->get()};
  }

  template <class T>
  static std::unique_ptr<Guarded<T>> make(std::size_t count) {
    return std::make_unique<Guarded<T>>(count);
  }
  std::size_t outputs() const { return problem.tokens() * problem.value_heads * 128; }
  std::size_t states() const {
    return std::size_t(problem.sequences()) * problem.value_heads * 16384;
  }
  bool intact() const {
    return g->intact() && A->intact() && output->intact() && state->intact() &&
           true_output->intact() && true_state->intact();
  }

  Problem problem;
  std::vector<Chunk> chunks_host;
  Tensors x;
  std::unique_ptr<Guarded<BFloat16>> q, k, v, A, output;
  std::unique_ptr<Guarded<float>> raw_g, beta, initial, g, state;
  std::unique_ptr<Guarded<std::int32_t>> offsets, first_chunk;
  std::unique_ptr<Guarded<Chunk>> chunks;
  std::unique_ptr<Guarded<double>> true_output, true_state;
};

// ---- comparison, one CTA a sequence and head: sums of (x − ref)², ref², the largest |x|

struct Difference {
  double error = 0, reference = 0, largest = 0;
  double relative() const { return reference > 0 ? std::sqrt(error / reference) : largest; }
};

__device__ double wide(float x) { return x; }
__device__ double wide(BFloat16 x) { return __uint_as_float(unsigned(x.bits) << 16); }

// Row r of sequence n lies at (first + r) · heads + head, `columns` wide.
template <class T>
__global__ void compare(const T* x, const double* reference, const std::int32_t* offsets, int heads,
                        int columns, Difference* result) {
  const int n = blockIdx.x / heads, head = blockIdx.x % heads;
  const std::int64_t first = offsets ? offsets[n] : n, end = offsets ? offsets[n + 1] : n + 1;
  double error = 0, norm = 0, largest = 0;
  for (std::int64_t i = threadIdx.x; i < (end - first) * columns; i += blockDim.x) {
    const std::int64_t at = ((first + i / columns) * heads + head) * columns + i % columns;
    const double d = wide(x[at]) - reference[at];
    error += d * d, norm += reference[at] * reference[at];
    largest = fmax(largest, fabs(wide(x[at])));
  }
  __shared__ double shared[3][256];
  shared[0][threadIdx.x] = error, shared[1][threadIdx.x] = norm, shared[2][threadIdx.x] = largest;
  __syncthreads();
  if (threadIdx.x > 0) return;
  Difference d = {0, 0, 0};
  for (int i = 0; i < 256; ++i) {
    d.error += shared[0][i], d.reference += shared[1][i];
    d.largest = fmax(d.largest, shared[2][i]);
  }
  result[blockIdx.x] = d;
}

struct Errors {
  double output = 0, state = 0;
};

double worst(const Guarded<Difference>& differences, std::size_t count) {
  double worst = 0;
  for (const Difference& d : differences.host(count)) {
    const double relative = d.relative();
    worst = relative <= worst ? worst : relative;  // a NaN stays
  }
  return worst;
}

Errors errors_of(const Data& data) {
  const std::size_t count = std::size_t(data.problem.sequences()) * data.problem.value_heads;
  Guarded<Difference> differences(count);
  const int heads = data.problem.value_heads;
  Errors errors;
  compare<<<count, 256>>>(data.x.output, data.true_output->get(), data.x.offsets, heads, 128,
                          differences.get());
  errors.output = worst(differences, count);
  compare<<<count, 256>>>(data.x.final_state, data.true_state->get(), nullptr, heads, 128 * 128,
                          differences.get());
  errors.state = worst(differences, count);
  must(cudaDeviceSynchronize());
  return errors;
}

// ---- references on the host

double relative_rms(const std::vector<double>& x, const std::vector<double>& reference) {
  double error = 0, norm = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += (x[i] - reference[i]) * (x[i] - reference[i]), norm += reference[i] * reference[i];
  }
  return norm > 0 ? std::sqrt(error / norm) : error;
}

void check_oracle(const Data& data) {
  const Problem& p = data.problem;
  const std::size_t rows = p.tokens();
  const auto q = data.q->host(rows * p.query_heads * 128);
  const auto k = data.k->host(rows * p.query_heads * 128);
  const auto v = data.v->host(data.outputs());
  const auto raw_g = data.raw_g->host(rows * p.value_heads);
  const auto beta = data.beta->host(rows * p.value_heads);
  std::vector<float> initial(data.states(), 0.0F);
  if (p.initial_state) initial = data.initial->host(data.states());
  std::vector<double> output(data.outputs()), state(initial.begin(), initial.end());
  for (int n = 0; n < p.sequences(); ++n) {
    for (int h = 0; h < p.value_heads; ++h) {
      double* S = &state[(std::size_t(n) * p.value_heads + h) * 16384];
      for (std::size_t t = p.offsets[n]; t < std::size_t(p.offsets[n + 1]); ++t) {
        const std::size_t key = (t * p.query_heads + h / p.heads_per_query()) * 128;
        const std::size_t row = t * p.value_heads + h;
        const double alpha = std::exp(double(raw_g[row]));
        std::vector<double> change(128, 0.0), o(128, 0.0);
        for (int i = 0; i < 128; ++i) {
          for (int j = 0; j < 128; ++j) {
            S[i * 128 + j] *= alpha;
            change[j] += to_float(k[key + i]) * S[i * 128 + j];
          }
        }
        for (int j = 0; j < 128; ++j)
          change[j] = beta[row] * (to_float(v[row * 128 + j]) - change[j]);
        for (int i = 0; i < 128; ++i) {
          for (int j = 0; j < 128; ++j) {
            S[i * 128 + j] += to_float(k[key + i]) * change[j];
            o[j] += to_float(q[key + i]) * S[i * 128 + j];
          }
        }
        for (int j = 0; j < 128; ++j) output[row * 128 + j] = o[j] / std::sqrt(128.0);
      }
    }
  }
  const double output_error = relative_rms(data.true_output->host(output.size()), output);
  const double state_error = relative_rms(data.true_state->host(state.size()), state);
  std::printf("    oracle against the host: output %.1e state %.1e\n", output_error, state_error);
  expect(output_error <= 1e-12 && state_error <= 1e-12, "oracle");
}

// g against an fp64 sum; A against an fp64 inverse made from the g that was written.
void check_preparation(const Data& data, bool print) {
  const Problem& p = data.problem;
  const std::size_t rows = p.tokens(), heads = p.value_heads;
  const auto k = data.k->host(rows * p.query_heads * 128);
  const auto raw_g = data.raw_g->host(rows * heads), beta = data.beta->host(rows * heads);
  const auto g = data.g->host(rows * heads);
  const auto A = data.A->host(rows * heads * 64);
  double g_error = 0, error = 0, norm = 0, excess = 0;
  bool zeros = true;
  for (const Chunk& chunk : data.chunks_host) {
    const int l = chunk.length;
    for (std::size_t h = 0; h < heads; ++h) {
      const auto row = [&](int i) { return std::size_t(chunk.token + i) * heads + h; };
      double sum = 0;
      std::vector<double> N(64 * 64, 0.0), X(64 * 64, 0.0);
      for (int i = 0; i < l; ++i) {
        sum += std::max(raw_g[row(i)], -128.0F);
        const double difference = std::abs(g[row(i)] - sum) / std::max(1.0, std::abs(sum));
        g_error = difference <= g_error ? g_error : difference;
        for (int j = 0; j < i; ++j) {
          double product = 0;
          const std::size_t head = h / p.heads_per_query();
          const BFloat16* a = &k[(std::size_t(chunk.token + i) * p.query_heads + head) * 128];
          const BFloat16* b = &k[(std::size_t(chunk.token + j) * p.query_heads + head) * 128];
          for (int d = 0; d < 128; ++d) product += double(to_float(a[d])) * to_float(b[d]);
          N[i * 64 + j] = beta[row(i)] * std::exp(double(g[row(i)]) - g[row(j)]) * product;
        }
      }
      for (int j = 0; j < l; ++j) {
        X[j * 64 + j] = 1;
        for (int i = j + 1; i < l; ++i) {
          double x = 0;
          for (int m = j; m < i; ++m) x -= N[i * 64 + m] * X[m * 64 + j];
          X[i * 64 + j] = x;
        }
      }
      for (int i = 0; i < l; ++i) {
        for (int j = 0; j < 64; ++j) {
          const double x = to_float(A[row(i) * 64 + j]), reference = X[i * 64 + j];
          if (j > i) zeros = zeros && A[row(i) * 64 + j].bits == 0;
          error += (x - reference) * (x - reference), norm += reference * reference;
          const double over = std::abs(x - reference) - std::abs(reference) / 256;
          excess = over <= excess ? excess : over;
        }
      }
    }
  }
  const double relative = norm > 0 ? std::sqrt(error / norm) : error;
  if (print) {
    std::printf("    preparation: g %.1e, A rms %.2e, beyond bf16 rounding %.1e\n", g_error,
                relative, excess);
  }
  expect(g_error <= 1e-6, "g " + std::to_string(g_error));
  expect(relative <= 2e-3 && excess <= 2e-5, "A " + std::to_string(relative));
  expect(zeros, "A is not 0 above the diagonal");
}

// ---- running

struct Core {
  explicit Core(const Data& data, const Instance& instance)
      : workspace(instance.workspace_bytes(data.problem)),
        launch(instance.setup(data.problem, data.x, workspace.get())) {}
  Guarded<char> workspace;
  Launch launch;
};

Launch prepare_of(const Data& data) {
  return cuda_preparation().setup(data.problem, data.x, nullptr);
}

void run_oracle(const Data& data) {
  enqueue_oracle(data.problem, data.x, data.true_output->get(), data.true_state->get(), nullptr);
  must(cudaDeviceSynchronize());
}

std::string name_of(const Problem& p, const Options& options) {
  std::string name = std::to_string(p.query_heads) + "/" + std::to_string(p.value_heads);
  for (int n = 0; n < std::min(p.sequences(), 8); ++n) name += " " + std::to_string(p.length(n));
  if (p.sequences() > 8) name += " … " + std::to_string(p.length(p.sequences() - 1));
  name += p.initial_state ? ", S0, " : ", ";
  name += gdn::name_of(options.gates);
  if (options.beta_max > 1) name += ", beta to 2";
  if (options.equal_keys) name += ", equal keys, beta 1.99";
  return name;
}

void check(const Problem& p, const Options& options = {}, bool on_host = true) {
  std::printf("%s\n", name_of(p, options).c_str());
  Data data(p, options);
  const Launch prepare = prepare_of(data);
  prepare(nullptr);
  must(cudaDeviceSynchronize());
  run_oracle(data);
  if (on_host) check_oracle(data), check_preparation(data, true);
  const auto g = data.g->host(p.tokens() * p.value_heads);
  const auto A = data.A->host(p.tokens() * p.value_heads * 64);
  std::vector<BFloat16> output;
  std::vector<float> state;
  for (const Instance& instance : gpu::baseline().instances) {
    Core core(data, instance);
    for (int run = 0; run < 2; ++run) {
      data.output->poison(), data.state->poison(), data.g->poison(), data.A->poison();
      core.workspace.poison();
      prepare(nullptr);
      core.launch(nullptr);
      must(cudaDeviceSynchronize());
      const auto new_output = data.output->host(data.outputs());
      const auto new_state = data.state->host(data.states());
      const auto new_g = data.g->host(g.size());
      const auto new_A = data.A->host(A.size());
      const auto same = [](const auto& a, const auto& b) {
        return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
      };
      expect(same(new_g, g) && same(new_A, A), "preparation differs from run to run");
      if (!state.empty()) {
        expect(same(output, new_output) && same(state, new_state), "runs or instances differ");
      }
      output = new_output, state = new_state;
    }
    expect(core.workspace.intact() && data.intact(), "a guard was written");
  }
  const Errors errors = errors_of(data);
  std::printf("    baseline: output %.2e state %.2e\n", errors.output, errors.state);
  if (!options.equal_keys) {
    expect(errors.output <= 1e-2 && errors.state <= 1e-2, "baseline's health");
  }
}

Problem problem_of(int query_heads, int value_heads, const std::vector<int>& lengths,
                   bool initial) {
  Problem p;
  p.query_heads = query_heads, p.value_heads = value_heads, p.initial_state = initial;
  for (const int length : lengths) p.offsets.push_back(p.offsets.back() + length);
  return p;
}

// A sequence in one go against two parts with the state handed over; both against the oracle.
void check_split(int tokens, int first) {
  const int query_heads = 2, value_heads = 4;
  const Data whole(problem_of(query_heads, value_heads, {tokens}, true));
  const Data parts[] = {Data(problem_of(query_heads, value_heads, {first}, true)),
                        Data(problem_of(query_heads, value_heads, {tokens - first}, true))};
  const Data& last = parts[1];
  const auto copy = [](auto& to, const auto& from, std::size_t skip, std::size_t count) {
    must(cudaMemcpy(to->get(), from->get() + skip, count * sizeof *to->get(), cudaMemcpyDefault));
  };
  const std::size_t left = tokens - first;
  copy(last.q, whole.q, first * query_heads * 128, left * query_heads * 128);
  copy(last.k, whole.k, first * query_heads * 128, left * query_heads * 128);
  copy(last.v, whole.v, first * value_heads * 128, left * value_heads * 128);
  copy(last.raw_g, whole.raw_g, first * value_heads, left * value_heads);
  copy(last.beta, whole.beta, first * value_heads, left * value_heads);
  run_oracle(whole);
  for (const Data* data : {&whole, &parts[0], &parts[1]}) {
    if (data == &last) copy(last.initial, parts[0].state, 0, last.states());
    prepare_of (*data)(nullptr);
    Core core(*data, gpu::baseline().instances[0]);
    core.launch(nullptr);
    must(cudaDeviceSynchronize());
  }
  copy(whole.state, last.state, 0, whole.states());
  const double error = errors_of(whole).state;
  std::printf("%d tokens as %d + %d: state %.2e\n", tokens, first, tokens - first, error);
  expect(error <= 1e-2, "split");
}

void check_edges() {
  check(problem_of(2, 4, {0, 64, 0, 7}, true));
  check(problem_of(2, 4, {0, 64, 0, 7}, false));
  check(problem_of(1, 3, {65, 65, 65}, false));
  check(problem_of(2, 8, {64, 111, 192}, true));
  check(problem_of(1, 5, {0, 0, 1}, true));
  check(problem_of(1, 2, {0, 0}, true));
  check(problem_of(1, 6, {100}, false));
  check(problem_of(16, 48, {1, 2, 63, 64, 65, 127, 128}, true));
  std::vector<int> lengths;
  for (int length = 1; length <= 200; ++length) lengths.push_back(length);
  check(problem_of(1, 2, lengths, true), {}, false);
  check(problem_of(3, 3, lengths, false), {.gates = Gates::strong, .beta_max = 2}, false);
  for (const Gates gates :
       {Gates::mixed, Gates::zero, Gates::strong, Gates::reset, Gates::infinite}) {
    check(problem_of(2, 4, {300, 130}, true), {.gates = gates, .beta_max = 2});
  }
  check(problem_of(1, 2, {200, 64}, true),
        {.gates = Gates::zero, .beta_max = 2, .equal_keys = true});
  check(problem_of(2, 2, {4096}, false), {.gates = Gates::zero}, false);
  check(problem_of(8, 64, {2048, 999}, true), {}, false);

  check_split(128, 127), check_split(200, 64), check_split(333, 77), check_split(65, 1);

  // S0 = 0 given and S0 absent: the same bits.
  Problem p = problem_of(1, 2, {130, 5}, true);
  Data given(p);
  must(cudaMemset(given.initial->get(), 0, given.states() * sizeof(float)));
  p.initial_state = false;
  Data absent(p);
  for (const Data* data : {&given, &absent}) {
    prepare_of (*data)(nullptr);
    Core core(*data, gpu::baseline().instances[0]);
    core.launch(nullptr);
    must(cudaDeviceSynchronize());
  }
  const auto a = given.output->host(given.outputs()), b = absent.output->host(absent.outputs());
  const auto c = given.state->host(given.states()), d = absent.state->host(absent.states());
  expect(std::memcmp(a.data(), b.data(), a.size() * 2) == 0, "S0 = 0 differs from no S0");
  expect(std::memcmp(c.data(), d.data(), c.size() * 4) == 0, "S0 = 0 differs from no S0");
}

// ---- times: each kernel of a launch, taken out of its captured graph and replayed

double median_us(const std::vector<cudaGraphNode_t>& nodes) {
  constexpr int copies = 5, samples = 15;
  cudaGraph_t graph;
  must(cudaGraphCreate(&graph, 0));
  cudaGraphNode_t last = nullptr;
  for (int i = 0; i < copies; ++i) {
    for (const cudaGraphNode_t node : nodes) {
      cudaKernelNodeParams parameters;
      must(cudaGraphKernelNodeGetParams(node, &parameters));
      cudaGraphNode_t added;
      must(
          cudaGraphAddKernelNode(&added, graph, last ? &last : nullptr, last ? 1 : 0, &parameters));
      last = added;
    }
  }
  cudaGraphExec_t executable;
  must(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t start, stop;
  must(cudaEventCreate(&start));
  must(cudaEventCreate(&stop));
  std::vector<float> times;
  for (int i = 0; i < samples + 2; ++i) {
    must(cudaEventRecord(start, cudaStreamPerThread));
    must(cudaGraphLaunch(executable, cudaStreamPerThread));
    must(cudaEventRecord(stop, cudaStreamPerThread));
    must(cudaEventSynchronize(stop));
    float ms = 0;
    must(cudaEventElapsedTime(&ms, start, stop));
    if (i >= 2) times.push_back(ms * 1000 / copies);
  }
  cudaGraphExecDestroy(executable), cudaGraphDestroy(graph);
  cudaEventDestroy(start), cudaEventDestroy(stop);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::string times_of(const Launch& launch) {
  cudaStream_t stream;
  must(cudaStreamCreate(&stream));
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  launch(stream);
  cudaGraph_t graph;
  must(cudaStreamEndCapture(stream, &graph));
  std::size_t count = 0;
  must(cudaGraphGetNodes(graph, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  must(cudaGraphGetNodes(graph, nodes.data(), &count));
  char text[32];
  std::snprintf(text, sizeof text, "%8.1f =", median_us(nodes));
  std::string line = text;
  for (const cudaGraphNode_t node : nodes) {
    std::snprintf(text, sizeof text, " %7.1f", median_us({node}));
    line += text;
  }
  cudaGraphDestroy(graph), cudaStreamDestroy(stream);
  return line;
}

void check_lab(bool profile) {
  struct Case {
    const char* name;
    int batch, tokens, query_heads, value_heads;
    bool initial;
    Gates gates = Gates::random_decay;
  };
  const Case cases[] = {{"short_tail_state", 1, 1025, 2, 8, true},
                        {"chain_equal", 1, 8192, 4, 4, false},
                        {"parallel_equal", 1, 2048, 16, 16, false},
                        {"parallel_gva", 1, 2048, 4, 16, false, Gates::mixed},
                        {"long_low_gva", 1, 32768, 2, 8, false},
                        {"batch_split_gva", 4, 8192, 2, 8, false},
                        {"wide_gva_state", 1, 8192, 16, 64, true},
                        {"deep_gva_state", 1, 16384, 8, 32, true}};
  std::printf("us: whole = each kernel; preparation | wu + chunk_state + chunk_output\n");
  for (const Case& c : cases) {
    const bool chosen =
        c.name == std::string("wide_gva_state") || c.name == std::string("chain_equal");
    if (profile && !chosen) continue;
    const Problem p =
        problem_of(c.query_heads, c.value_heads, std::vector<int>(c.batch, c.tokens), c.initial);
    Data data(p, {.gates = c.gates});
    if (profile) {
      prepare_of(data)(nullptr);
      Core(data, gpu::baseline().instances[0]).launch(nullptr);
      must(cudaDeviceSynchronize());
      continue;
    }
    cudaEvent_t start, stop;
    must(cudaEventCreate(&start));
    must(cudaEventCreate(&stop));
    run_oracle(data);
    must(cudaEventRecord(start));
    run_oracle(data);
    must(cudaEventRecord(stop));
    must(cudaEventSynchronize(stop));
    float oracle_ms = 0;
    must(cudaEventElapsedTime(&oracle_ms, start, stop));
    const Launch prepare = prepare_of(data);
    prepare(nullptr);
    std::printf("%-17s oracle %.1f ms; preparation %s\n", c.name, oracle_ms,
                times_of(prepare).c_str());
    for (const Instance& instance : gpu::baseline().instances) {
      Core core(data, instance);
      data.output->poison(), data.state->poison();
      core.launch(nullptr);
      must(cudaDeviceSynchronize());
      const Errors errors = errors_of(data);
      expect(errors.output <= 1e-2 && errors.state <= 1e-2, "health");
      expect(core.workspace.intact() && data.intact(), "a guard was written");
      std::printf("    stages %s: %s   output %.2e state %.2e\n", instance.knobs[0].value.c_str(),
                  times_of(core.launch).c_str(), errors.output, errors.state);
    }
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace gdn

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "all";
  try {
    if (mode == "sanitize") {
      gdn::check(gdn::problem_of(1, 2, {0, 65, 7}, true), {}, false);
      gdn::check(gdn::problem_of(2, 6, {200}, false), {}, false);
    }
    if (mode == "edges" || mode == "all") gdn::check_edges();
    if (mode == "times" || mode == "all") gdn::check_lab(false);
    if (mode == "profile") gdn::check_lab(true);
  } catch (const std::exception& error) {
    std::printf("FAILED: %s\n", error.what());
    return 1;
  }
  std::printf(gdn::failures == 0 ? "all good\n" : "%d failures\n", gdn::failures);
  return gdn::failures != 0;
}
