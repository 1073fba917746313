#include "src/safetensors.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stdexcept>
#include <utility>

#include "src/error.hpp"
#include "src/file.hpp"
#include "src/suggest.hpp"

namespace gdn {
namespace {

constexpr std::size_t length_bytes = 8;
constexpr std::uint64_t largest_header_bytes = 100'000'000;  // the limit of the format's own reader
constexpr std::size_t data_alignment = 64;
constexpr std::size_t most_dimensions = 64;

struct DtypeSize {
  std::string_view name;
  std::size_t bytes;
};
constexpr std::array<DtypeSize, 15> dtypes = {{{"BOOL", 1},
                                               {"U8", 1},
                                               {"I8", 1},
                                               {"F8_E5M2", 1},
                                               {"F8_E4M3", 1},
                                               {"I16", 2},
                                               {"U16", 2},
                                               {"F16", 2},
                                               {"BF16", 2},
                                               {"I32", 4},
                                               {"U32", 4},
                                               {"F32", 4},
                                               {"F64", 8},
                                               {"I64", 8},
                                               {"U64", 8}}};

// Bytes of a tensor; nothing where they exceed 63 bits.
std::optional<std::uint64_t> tensor_bytes(std::string_view dtype,
                                          const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = dtype_bytes(dtype);
  for (const std::int64_t size : shape) {
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(size), &bytes))
      return std::nullopt;
  }
  if (bytes > static_cast<std::uint64_t>(INT64_MAX)) return std::nullopt;
  return bytes;
}

// A tensor of the header, before its bytes are known to be there.
struct Entry {
  SafeTensor tensor;
  std::optional<std::uint64_t> begin, end;
  bool has_shape = false;
};

// Takes the header's JSON event by event: only the events of the format's grammar are let through,
// so that no document, however deep or repetitive, is ever built.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  std::vector<Entry> entries;
  std::map<std::string, std::string> metadata;
  std::string fault;  // why the header is refused

  bool start_object(std::size_t) override {
    if (state_ == State::start) return enter(State::file);
    if (state_ == State::tensor_value) return enter(State::tensor);
    if (state_ == State::metadata_value) return enter(State::metadata);
    return unexpected("an object");
  }

  bool key(std::string& key) override {
    if (state_ == State::file) return begin_tensor(key);
    if (state_ == State::metadata) return begin_metadata(key);
    if (state_ != State::tensor) return unexpected("a key");
    for (const auto& [name, next] : {std::pair{"dtype", State::dtype},
                                     {"shape", State::shape_value},
                                     {"data_offsets", State::offsets_value}}) {
      if (key != name) continue;
      if (!fields_.insert(key).second) return refuse(where() + " gives " + excerpt(key) + " twice");
      return enter(next);
    }
    return refuse(where() + " has the unknown field " + excerpt(key));
  }

  bool end_object() override {
    if (state_ == State::metadata) return enter(State::file);
    if (state_ == State::file) return enter(State::end);
    if (state_ != State::tensor) return unexpected("the end of an object");
    if (fields_.size() != 3) return refuse(where() + " lacks dtype, shape or data_offsets");
    return enter(State::file);
  }

  bool string(std::string& text) override {
    if (state_ == State::metadata_text) {
      *metadata_text_ = std::move(text);
      return enter(State::metadata);
    }
    if (state_ != State::dtype) return unexpected("a string");
    if (dtype_bytes(text) == 0) return refuse(where() + " has the unknown dtype " + excerpt(text));
    entries.back().tensor.dtype = std::move(text);
    return enter(State::tensor);
  }

  bool start_array(std::size_t) override {
    if (state_ == State::shape_value) return enter(State::shape);
    if (state_ == State::offsets_value) return enter(State::offsets);
    return unexpected("an array");
  }

  bool number_unsigned(number_unsigned_t number) override {
    Entry* entry = entries.empty() ? nullptr : &entries.back();
    if (state_ == State::shape) {
      if (number > static_cast<std::uint64_t>(INT64_MAX)) return refuse(where() + " is too large");
      if (entry->tensor.shape.size() == most_dimensions) {
        return refuse(fmt::format("{} has more than {} dimensions", where(), most_dimensions));
      }
      entry->tensor.shape.push_back(static_cast<std::int64_t>(number));
      return true;
    }
    if (state_ != State::offsets || entry->end) return unexpected("a number");
    (entry->begin ? entry->end : entry->begin) = number;
    return true;
  }

  bool end_array() override {
    if (state_ == State::offsets && !entries.back().end) return unexpected("the end of an array");
    return enter(State::tensor);
  }

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a truth value"); }
  bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return unexpected("a number that is not whole");
  }
  bool binary(binary_t&) override { return unexpected("binary data"); }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception&) override {
    return refuse(fmt::format("not valid JSON at byte {} of the header", position));
  }

 private:
  enum class State {
    start,         // before the header's object
    file,          // among the tensors
    tensor_value,  // behind a tensor's name
    tensor,        // among a tensor's fields
    dtype,         // behind that key, and so on
    shape_value,
    shape,  // among the sizes
    offsets_value,
    offsets,
    metadata_value,
    metadata,
    metadata_text,
    end
  };

  bool enter(State next) {
    state_ = next;
    return true;
  }

  bool refuse(std::string why) {
    fault = std::move(why);
    return false;
  }

  bool unexpected(std::string_view what) {
    return refuse(fmt::format(
        "{} in the header{} where the format has none", what,
        entries.empty() ? ""
                        : ", at or behind tensor " + excerpt(entries.back().tensor.name) + ","));
  }

  std::string where() const { return "tensor " + excerpt(entries.back().tensor.name); }

  bool begin_tensor(const std::string& name) {
    if (!names_.insert(name).second) return refuse(excerpt(name) + " occurs twice");
    if (name == "__metadata__") return enter(State::metadata_value);
    entries.emplace_back().tensor.name = name;
    fields_.clear();
    return enter(State::tensor_value);
  }

  bool begin_metadata(const std::string& key) {
    const auto [entry, is_new] = metadata.try_emplace(key);
    if (!is_new) return refuse("the metadata give " + excerpt(key) + " twice");
    metadata_text_ = &entry->second;
    return enter(State::metadata_text);
  }

  State state_ = State::start;
  std::set<std::string> names_;   // of the header so far
  std::set<std::string> fields_;  // of the tensor so far
  std::string* metadata_text_ = nullptr;
};

std::uint64_t read_length(std::span<const std::byte> bytes) {
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    length |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
  }
  return length;
}

// Gives every entry its bytes. They must follow each other from first to last, as the format
// demands: no two tensors share a byte, and none hides between them.
SafeTensors place_tensors(std::vector<Entry> entries, std::span<const std::byte> data,
                          const std::string& source) {
  const auto fail = [&](const Entry& entry, std::string_view what) {
    throw UserError(fmt::format("{}: tensor {} {}; write the file again", source,
                                excerpt(entry.tensor.name), what));
  };
  std::ranges::stable_sort(entries, {},
                           [](const Entry& entry) { return std::pair(*entry.begin, *entry.end); });
  SafeTensors content;
  std::uint64_t next = 0;
  for (Entry& entry : entries) {
    const std::uint64_t begin = *entry.begin;
    const std::uint64_t end = *entry.end;
    if (begin > end || end > data.size()) fail(entry, "lies outside the file");
    if (begin < next) fail(entry, "overlaps the one before");
    if (begin > next) fail(entry, "leaves a gap behind the one before");
    const auto bytes = tensor_bytes(entry.tensor.dtype, entry.tensor.shape);
    if (!bytes) fail(entry, "has a shape beyond 63 bits");
    if (*bytes != end - begin) {
      fail(entry, fmt::format("has {} bytes, but dtype and shape make {}", end - begin, *bytes));
    }
    entry.tensor.data = data.subspan(begin, end - begin);
    content.tensors.push_back(std::move(entry.tensor));
    next = end;
  }
  if (next != data.size()) {
    throw UserError(fmt::format("{}: {} bytes behind the last tensor; write the file again", source,
                                data.size() - next));
  }
  return content;
}

[[noreturn]] void fail_system(const std::filesystem::path& path, std::string_view what,
                              std::string_view remedy) {
  throw UserError(
      fmt::format("{}: {} ({}); {}", path.string(), what, std::strerror(errno), remedy));
}

}  // namespace

const SafeTensor* SafeTensors::find(std::string_view name) const {
  const auto found = std::ranges::find(tensors, name, &SafeTensor::name);
  return found == tensors.end() ? nullptr : &*found;
}

std::size_t dtype_bytes(std::string_view dtype) {
  const auto found = std::ranges::find(dtypes, dtype, &DtypeSize::name);
  return found == dtypes.end() ? 0 : found->bytes;
}

SafeTensors parse_safetensors(std::span<const std::byte> bytes, const std::string& source) {
  const auto fail = [&](std::string_view what) {
    throw UserError(
        fmt::format("{}: {}; give a safetensors file, or write this one again", source, what));
  };
  if (bytes.size() < length_bytes) fail("shorter than the 8 bytes that begin every such file");
  const std::uint64_t length = read_length(bytes);
  if (length > largest_header_bytes) fail("a header of more than 100 MB");
  if (length > bytes.size() - length_bytes) fail("the header runs past the end of the file");
  const auto header = bytes.subspan(length_bytes, length);
  if (header.empty() || header[0] != std::byte{'{'}) fail("the header does not begin with {");
  // The JSON library takes a zero byte for the end of the text and would let anything follow.
  if (std::ranges::find(header, std::byte{0}) != header.end()) fail("a zero byte in the header");
  HeaderReader reader;
  const char* text = reinterpret_cast<const char*>(header.data());
  if (!nlohmann::json::sax_parse(text, text + length, &reader)) fail(reader.fault);
  SafeTensors content =
      place_tensors(std::move(reader.entries), bytes.subspan(length_bytes + length), source);
  content.metadata = std::move(reader.metadata);
  return content;
}

SafeTensorsFile::SafeTensorsFile(const std::filesystem::path& path) {
  // Not blocking: a FIFO would hold us up before fstat could tell that it is none of ours.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) fail_system(path, "cannot be opened", "check the path and its permissions");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail_system(path, "cannot be read", "check the disk");
  if (!S_ISREG(status.st_mode)) {
    throw UserError(path.string() + ": not a regular file; give a safetensors file");
  }
  const auto size = static_cast<std::size_t>(status.st_size);
  if (size > 0) {
    void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
    if (mapped == MAP_FAILED)
      fail_system(path, "cannot be mapped", "check the memory that is free");
    bytes_ = {static_cast<const std::byte*>(mapped), size};
  }
  try {
    content_ = parse_safetensors(bytes_, path.string());
  } catch (...) {
    if (size > 0) ::munmap(const_cast<std::byte*>(bytes_.data()), size);
    throw;
  }
}

SafeTensorsFile::SafeTensorsFile(SafeTensorsFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), content_(std::exchange(other.content_, {})) {}

SafeTensorsFile::~SafeTensorsFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string safetensors_header(const SafeTensors& content) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  if (!content.metadata.empty()) json["__metadata__"] = content.metadata;
  std::set<std::string> names = {"__metadata__"};
  std::uint64_t begin = 0;
  for (const SafeTensor& tensor : content.tensors) {
    if (!names.insert(tensor.name).second) {
      throw std::invalid_argument("safetensors: name given twice or reserved: " + tensor.name);
    }
    if (dtype_bytes(tensor.dtype) == 0 ||
        tensor_bytes(tensor.dtype, tensor.shape) != tensor.data.size()) {
      throw std::invalid_argument("safetensors: dtype or shape does not fit: " + tensor.name);
    }
    const std::uint64_t end = begin + tensor.data.size();
    json[tensor.name] = {
        {"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
    begin = end;
  }
  std::string text = json.dump();
  const std::size_t tail = (length_bytes + text.size()) % data_alignment;
  text.append(tail == 0 ? 0 : data_alignment - tail, ' ');
  std::string header;
  for (std::size_t i = 0; i < length_bytes; ++i) {
    header += static_cast<char>((std::uint64_t{text.size()} >> (8 * i)) & 0xFF);
  }
  return header + text;
}

void write_safetensors(const std::filesystem::path& path, const SafeTensors& content) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw UserError(path.string() + ": exists and is not a regular file; give another path");
  }
  const std::string header = safetensors_header(content);
  std::vector<std::string_view> parts = {header};
  for (const SafeTensor& tensor : content.tensors) {
    parts.emplace_back(reinterpret_cast<const char*>(tensor.data.data()), tensor.data.size());
  }
  write_file(path, parts);
}

}  // namespace gdn
