// Any bytes are a safetensors file that is refused, or one that, written and read again, has the
// same tensors.

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "src/error.hpp"
#include "src/safetensors.hpp"

namespace {

bool equal(const gdn::SafeTensors& a, const gdn::SafeTensors& b) {
  const auto equal_tensors = [](const gdn::SafeTensor& x, const gdn::SafeTensor& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
           std::ranges::equal(x.data, y.data);  // reads every byte: the sanitizer watches
  };
  return a.metadata == b.metadata && std::ranges::equal(a.tensors, b.tensors, equal_tensors);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gdn::SafeTensors content;
  try {
    content = gdn::parse_safetensors(std::as_bytes(std::span(data, size)), "input");
  } catch (const gdn::UserError&) {
    return 0;
  }
  const std::string header = gdn::safetensors_header(content);
  const auto bytes_of_header = std::as_bytes(std::span(header));
  std::vector<std::byte> file(bytes_of_header.begin(), bytes_of_header.end());
  for (const gdn::SafeTensor& tensor : content.tensors) {
    file.insert(file.end(), tensor.data.begin(), tensor.data.end());
  }
  if (!equal(gdn::parse_safetensors(file, "written"), content)) std::abort();
  return 0;
}
