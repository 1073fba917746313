#include "src/inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "src/backend.hpp"
#include "src/commands.hpp"
#include "src/error.hpp"
#include "src/file.hpp"
#include "src/safetensors.hpp"
#include "src/streams.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

constexpr double unit_tolerance =
    0.02;  // bf16 rounds each element by 2^-9: lengths stay within 1 %
constexpr float widest_linear_gate = 1.0F;
constexpr std::int64_t most_sequences = 65536;  // as of a case

const std::vector<std::string> known_tensors = {
    "q", "k", "v", "raw_g", "beta", "initial_state", "cu_seqlens"};

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

// Reads one file into an InputFile; every complaint names the file and the tensor.
class Reader {
 public:
  explicit Reader(const std::string& path)
      : path_(path), file_(std::make_shared<SafeTensorsFile>(path)) {}

  InputFile read() {
    refuse_unknown_tensors();
    const SafeTensor& q = tensor("q", "BF16");
    const SafeTensor& v = tensor("v", "BF16");
    require_rank(q, 1);
    token_axes_.assign(q.shape.begin(), q.shape.end() - 2);
    tokens_ = token_axes_.size() == 2 ? token_axes_[0] * token_axes_[1] : token_axes_[0];
    query_heads_ = q.shape[q.shape.size() - 2];
    require_rank(v, 1);
    value_heads_ = v.shape[v.shape.size() - 2];
    check_heads();

    InputFile result;
    result.name = case_name();
    result.problem.offsets = offsets(q);
    result.problem.query_heads = static_cast<int>(query_heads_);
    result.problem.value_heads = static_cast<int>(value_heads_);
    result.q = rows("q", "BF16", query_heads_, true);
    result.k = rows("k", "BF16", query_heads_, true);
    result.v = rows("v", "BF16", value_heads_, true);
    result.raw_g = rows("raw_g", "F32", value_heads_, false);
    result.beta = rows("beta", "F32", value_heads_, false);
    if (file_->find("initial_state") != nullptr) {
      result.initial_state = initial_state(result.problem.sequences());
      result.problem.initial_state = true;
    }
    check_gates(result.raw_g);
    check_strengths(result.beta);
    for (const auto& [name, bytes] : {std::pair{"q", result.q}, {"k", result.k}, {"v", result.v}})
      check_finite_bf16(name, bytes);
    check_finite_f32("initial_state", result.initial_state);
    result.keys_normalised = keys_normalised(result.k);
    result.storage = file_;
    return result;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw UserError(fmt::format("{}: {}", path_, what));
  }

  void refuse_unknown_tensors() const {
    for (const SafeTensor& t : file_->content().tensors)
      if (std::ranges::find(known_tensors, t.name) == known_tensors.end())
        refuse(fmt::format("{}: not a tensor of the inputs{}; there are {}", excerpt(t.name),
                           did_you_mean(t.name, known_tensors), fmt::join(known_tensors, " ")));
  }

  const SafeTensor& tensor(const std::string& name, const std::string& dtype) const {
    const SafeTensor* found = file_->find(name);
    if (found == nullptr) refuse(fmt::format("there is no tensor {}; add it, as {}", name, dtype));
    if (found->dtype != dtype)
      refuse(fmt::format("{} is {}; it must be {}", name, found->dtype, dtype));
    return *found;
  }

  // [tokens, heads, 128] or [batch, tokens, heads, 128]; `extra` is 0 for tensors without the 128.
  void require_rank(const SafeTensor& t, std::size_t extra) const {
    const std::size_t rank = t.shape.size();
    const char* const form = extra == 1 ? "[tokens, heads, 128] or [batch, tokens, heads, 128]"
                                        : "[tokens, heads] or [batch, tokens, heads]";
    const bool fits = rank == 2 + extra || rank == 3 + extra;
    if (!fits || (extra == 1 && t.shape.back() != head_dim))
      refuse(fmt::format("{} has shape {}; it must be {}", t.name, shape_text(t.shape), form));
  }

  void check_heads() const {
    constexpr std::int64_t most_heads = 1024;
    if (tokens_ < 1) refuse("there is no token in q; give one at least");
    constexpr std::int64_t most_tokens = std::int64_t{1} << 30;
    if (tokens_ > most_tokens)
      refuse(fmt::format("{} tokens are too many; give at most {}", tokens_, most_tokens));
    if (query_heads_ < 1 || query_heads_ > most_heads || value_heads_ < 1 ||
        value_heads_ > most_heads)
      refuse(fmt::format("{} query heads and {} value heads: each must be 1 … {}", query_heads_,
                         value_heads_, most_heads));
    if (value_heads_ % query_heads_ != 0)
      refuse(
          fmt::format("{} value heads (v) are no multiple of {} query heads (q); every query "
                      "head serves as many",
                      value_heads_, query_heads_));
  }

  void check_sequences(std::int64_t sequences) const {
    if (sequences > most_sequences)
      refuse(fmt::format("{} sequences are too many; give at most {}", sequences, most_sequences));
  }

  std::span<const std::byte> rows(const std::string& name, const std::string& dtype,
                                  std::int64_t heads, bool wide) const {
    const SafeTensor& t = tensor(name, dtype);
    require_rank(t, wide ? 1 : 0);
    const auto head_axis = t.shape.end() - (wide ? 2 : 1);
    const std::vector<std::int64_t> axes(t.shape.begin(), head_axis);
    // As many rows in another form may be another order: [heads, tokens] is not [tokens, heads].
    const bool in_order = axes == token_axes_ || axes == std::vector{tokens_} ||
                          axes == std::vector{std::int64_t{1}, tokens_};
    if (!in_order || *head_axis != heads)
      refuse(fmt::format("{} has shape {}: beside q and v it must be [{}, {}{}]", name,
                         shape_text(t.shape), fmt::join(token_axes_, ", "), heads,
                         wide ? ", 128" : ""));
    return t.data;
  }

  std::span<const std::byte> initial_state(int sequences) const {
    const SafeTensor& t = tensor("initial_state", "F32");
    const std::vector<std::int64_t> wanted = {sequences, value_heads_, head_dim, head_dim};
    if (t.shape != wanted)
      refuse(fmt::format("initial_state has shape {}; it must be {} (key-major [dk, dv])",
                         shape_text(t.shape), shape_text(wanted)));
    return t.data;
  }

  std::vector<std::int32_t> offsets(const SafeTensor& q) const {
    const SafeTensor* t = file_->find("cu_seqlens");
    if (t == nullptr) {
      const std::int64_t batch = q.shape.size() == 4 ? q.shape[0] : 1;
      check_sequences(batch);
      std::vector<std::int32_t> equal;
      for (std::int64_t i = 0; i <= batch; ++i)
        equal.push_back(static_cast<std::int32_t>(i * (tokens_ / batch)));
      return equal;
    }
    if (q.shape.size() == 4 && q.shape[0] != 1)
      refuse("cu_seqlens packs sequences along one axis: q must not have a batch beside it");
    if (t->dtype != "I32" && t->dtype != "I64")
      refuse(fmt::format("cu_seqlens is {}; it must be I32 or I64", t->dtype));
    if (t->shape.size() != 1 || t->shape[0] < 2)
      refuse(
          fmt::format("cu_seqlens has shape {}; it must be [sequences + 1]", shape_text(t->shape)));
    check_sequences(t->shape[0] - 1);
    std::vector<std::int32_t> packed;
    for (std::int64_t i = 0; i < t->shape[0]; ++i) {
      const std::int64_t offset =
          t->dtype == "I32" ? read_at<std::int32_t>(t->data, i) : read_at<std::int64_t>(t->data, i);
      const std::int64_t before = packed.empty() ? 0 : packed.back();
      if (offset < before || offset > tokens_ || (packed.empty() && offset != 0))
        refuse(fmt::format("cu_seqlens[{}] is {}: it must start at 0, never fall and end at {}", i,
                           offset, tokens_));
      packed.push_back(static_cast<std::int32_t>(offset));
    }
    if (packed.back() != tokens_)
      refuse(fmt::format("cu_seqlens ends at {}; it must end at {}, the tokens of q", packed.back(),
                         tokens_));
    return packed;
  }

  template <class T>
  static T read_at(std::span<const std::byte> bytes, std::int64_t index) {
    T value;
    std::memcpy(&value, bytes.data() + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }

  std::string place(std::int64_t index) const {
    return fmt::format("[token {}, head {}]", index / value_heads_, index % value_heads_);
  }

  void check_gates(std::span<const std::byte> bytes) const {
    const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(float));
    bool linear = true;  // α itself lies in (0, 1]
    std::int64_t wrong = -1;
    for (std::int64_t i = 0; i < count; ++i) {
      const float gate = read_at<float>(bytes, i);
      if (!(gate > 0 && gate <= widest_linear_gate)) linear = false;
      if (wrong < 0 && !(gate <= 0)) wrong = i;
    }
    if (wrong < 0) return;
    if (linear)
      refuse(
          "raw_g lies in (0, 1] everywhere: that is the linear decay α; raw_g is log α, so take "
          "the logarithm");
    refuse(fmt::format("raw_g{} is {}: log α must be <= 0 (-inf is a reset)", place(wrong),
                       read_at<float>(bytes, wrong)));
  }

  void check_strengths(std::span<const std::byte> bytes) const {
    const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(float));
    for (std::int64_t i = 0; i < count; ++i)
      if (const float beta = read_at<float>(bytes, i); !(beta >= 0 && beta <= 2))
        refuse(fmt::format("beta{} is {}: it must lie in 0 … 2", place(i), beta));
  }

  void check_finite_bf16(const char* name, std::span<const std::byte> bytes) const {
    const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(BFloat16));
    for (std::int64_t i = 0; i < count; ++i)
      if (!std::isfinite(to_float(read_at<BFloat16>(bytes, i))))
        refuse(
            fmt::format("{}: element {} is not a finite number; only raw_g may be -inf", name, i));
  }

  void check_finite_f32(const char* name, std::span<const std::byte> bytes) const {
    const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(float));
    for (std::int64_t i = 0; i < count; ++i)
      if (!std::isfinite(read_at<float>(bytes, i)))
        refuse(
            fmt::format("{}: element {} is not a finite number; only raw_g may be -inf", name, i));
  }

  bool keys_normalised(std::span<const std::byte> bytes) const {
    for (std::int64_t row = 0; row < tokens_ * query_heads_; ++row) {
      double squares = 0;
      for (int d = 0; d < head_dim; ++d) {
        const double x = to_float(read_at<BFloat16>(bytes, row * head_dim + d));
        squares += x * x;
      }
      if (std::abs(std::sqrt(squares) - 1) > unit_tolerance) return false;
    }
    return true;
  }

  // The file's name as an id: what ids may not hold becomes '_'.
  std::string case_name() const {
    std::string name = std::filesystem::path(path_).stem().string();
    for (char& c : name)
      if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_' && c != '.' && c != '-')
        c = '_';
    return "file:" + name;
  }

  std::string path_;
  std::shared_ptr<SafeTensorsFile> file_;
  std::vector<std::int64_t> token_axes_;  // of q: [tokens] or [batch, tokens]
  std::int64_t tokens_ = 0, query_heads_ = 0, value_heads_ = 0;
};

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

}  // namespace

InputFile read_inputs(const std::string& path) { return Reader(path).read(); }

void write_inputs(const Case& c, const std::string& path) {
  const Problem& problem = c.problem;
  const std::int64_t tokens = problem.tokens();
  const std::int64_t query_heads = problem.query_heads;
  const std::int64_t value_heads = problem.value_heads;
  const std::int64_t sequences = problem.sequences();
  std::vector<BFloat16> q(tokens * query_heads * head_dim);
  std::vector<BFloat16> k(q.size());
  std::vector<BFloat16> v(tokens * value_heads * head_dim);
  std::vector<float> raw_g(tokens * value_heads);
  std::vector<float> beta(raw_g.size());
  std::vector<float> state(problem.initial_state ? sequences * value_heads * head_dim * head_dim
                                                 : 0);
  generate_on_cpu(problem, c.recipe,
                  {.q = q.data(),
                   .k = k.data(),
                   .v = v.data(),
                   .raw_g = raw_g.data(),
                   .beta = beta.data(),
                   .initial_state = problem.initial_state ? state.data() : nullptr});
  SafeTensors content;
  content.metadata = {{"case", c.name}, {"seed", std::to_string(c.recipe.seed)}};
  content.tensors = {{"q", "BF16", {tokens, query_heads, head_dim}, bytes_of(q)},
                     {"k", "BF16", {tokens, query_heads, head_dim}, bytes_of(k)},
                     {"v", "BF16", {tokens, value_heads, head_dim}, bytes_of(v)},
                     {"raw_g", "F32", {tokens, value_heads}, bytes_of(raw_g)},
                     {"beta", "F32", {tokens, value_heads}, bytes_of(beta)}};
  if (problem.initial_state)
    content.tensors.push_back(
        {"initial_state", "F32", {sequences, value_heads, head_dim, head_dim}, bytes_of(state)});
  content.tensors.push_back({"cu_seqlens", "I32", {sequences + 1}, bytes_of(problem.offsets)});
  write_safetensors(path, content);
}

int inputs(const InputsOptions& options) {
  const std::vector<Case> cases =
      select_cases(options.cases.selectors, options.cases.overrides, SIZE_MAX);
  if (cases.size() != 1)
    throw UserError(fmt::format(
        "--case: one case is wanted, {} are selected; give one name of `gdnbench list cases`",
        cases.size()));
  const Case& c = cases.front();
  if (const std::string why = too_large(c.problem, make_cpu_backend()->device().memory_bytes);
      !why.empty())
    throw UserError(fmt::format("{} {}; give fewer tokens or heads", c.name, why));
  std::vector<NamedPath> read;
  for (const auto& path : case_files(options.cases.selectors)) read.push_back({"--case", path});
  require_outputs(read, {{"--output", options.output}});
  write_inputs(c, options.output);
  print(stdout, fmt::format("{}: inputs of {}\n", options.output, c.name));
  return 0;
}

}  // namespace gdn
