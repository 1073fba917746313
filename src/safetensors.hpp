// The safetensors format: an 8-byte little-endian length, a JSON header of that length, then the
// bytes of every tensor without gaps. Read strictly, because files come from anywhere; written so
// that a file is there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gdn {

struct SafeTensor {
  std::string name;
  std::string dtype;  // "BF16", "F32", "I32", …
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  // row-major, little-endian; at any alignment: copy it out
};

struct SafeTensors {
  std::vector<SafeTensor> tensors;  // in the order of their bytes
  std::map<std::string, std::string> metadata;

  const SafeTensor* find(std::string_view name) const;  // null where there is none
};

// Bytes of one element; 0 for a type that the format does not have.
std::size_t dtype_bytes(std::string_view dtype);

// The tensors point into `bytes`. `source` is the name that errors show.
// Throws UserError "source: what; remedy".
SafeTensors parse_safetensors(std::span<const std::byte> bytes, const std::string& source);

// A file mapped into memory: the tensors are read from the disk when they are touched.
class SafeTensorsFile {
 public:
  explicit SafeTensorsFile(const std::filesystem::path& path);
  ~SafeTensorsFile();
  SafeTensorsFile(SafeTensorsFile&& other) noexcept;
  SafeTensorsFile(const SafeTensorsFile&) = delete;
  SafeTensorsFile& operator=(const SafeTensorsFile&) = delete;
  SafeTensorsFile& operator=(SafeTensorsFile&&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }  // of the whole file
  const SafeTensors& content() const { return content_; }
  const SafeTensor* find(std::string_view name) const { return content_.find(name); }

 private:
  std::span<const std::byte> bytes_;
  SafeTensors content_;
};

// Length and JSON of the file that holds these tensors in this order, padded so that the bytes that
// follow begin at a multiple of 64. Throws std::invalid_argument where a shape and its bytes differ
// or a name occurs twice: the caller is at fault, not the user.
std::string safetensors_header(const SafeTensors& content);

// Replaces `path` only when everything is written. Throws UserError "path: what; remedy".
void write_safetensors(const std::filesystem::path& path, const SafeTensors& content);

}  // namespace gdn
