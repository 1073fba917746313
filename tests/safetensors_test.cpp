#include "src/safetensors.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "src/error.hpp"

namespace gdn {
namespace {

namespace fs = std::filesystem;

std::string file_of(const std::string& header, std::size_t data_bytes) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  return file + header + std::string(data_bytes, 'd');
}

SafeTensors parse(const std::string& file) {
  return parse_safetensors(std::as_bytes(std::span(file)), "f");
}

std::string refusal_of(const std::string& file) {
  try {
    parse(file);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

// One tensor of the given fields.
std::string tensor(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"dtype":{},"shape":{},"data_offsets":{}}})", dtype, shape, offsets);
}
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return fmt::format(R"({{"a":{}}})", tensor(dtype, shape, offsets));
}
std::string two(const std::string& first_offsets, const std::string& second_offsets) {
  return fmt::format(R"({{"a":{},"b":{}}})", tensor(R"("U8")", "[4]", first_offsets),
                     tensor(R"("U8")", "[4]", second_offsets));
}

void expect_refused(const std::string& file, const std::string& reason) {
  const std::string message = refusal_of(file);
  EXPECT_EQ(message.substr(0, 3), "f: ") << message;
  EXPECT_NE(message.find(reason), std::string::npos) << message;
  EXPECT_NE(message.find("; "), std::string::npos) << "no remedy: " << message;
}

TEST(SafeTensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = file_of(R"({"b":{"shape":[2,1],"data_offsets":[2,6],"dtype":"BF16"},)"
                                   R"("__metadata__":{"case":"c","note":"\u00e9"},)"
                                   R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                   R"("none":{"dtype":"F64","shape":[0,3],"data_offsets":[6,6]},)"
                                   R"("one":{"dtype":"F32","shape":[],"data_offsets":[6,10]}}   )",
                                   10);
  const SafeTensors content = parse(file);
  ASSERT_EQ(content.tensors.size(), 4u);
  EXPECT_EQ(content.tensors[0].name, "a");
  EXPECT_EQ(content.tensors[1].name, "b");
  EXPECT_EQ(content.metadata.at("case"), "c");
  EXPECT_EQ(content.metadata.at("note"), "\u00e9");
  const SafeTensor* b = content.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, "BF16");
  EXPECT_EQ(b->shape, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(b->data.size(), 4u);
  EXPECT_EQ(reinterpret_cast<const char*>(b->data.data()), file.data() + file.size() - 8);
  EXPECT_EQ(content.find("none")->data.size(), 0u);
  EXPECT_TRUE(content.find("one")->shape.empty());
  EXPECT_EQ(content.find("c"), nullptr);
  EXPECT_EQ(refusal_of(file_of("{}", 0)), "accepted");
}

TEST(SafeTensors, RefusesBadLengths) {
  expect_refused("", "shorter than the 8 bytes");
  expect_refused("1234567", "shorter than the 8 bytes");
  expect_refused(std::string(8, '\0'), "does not begin with {");
  expect_refused(std::string(8, '\xff') + "{}", "more than 100 MB");
  expect_refused(std::string("\x03\0\0\0\0\0\0\0{}", 10), "runs past the end");
  expect_refused(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10), "more than 100 MB");   // 10^8 + 1
  expect_refused(std::string("\x00\xe1\xf5\x05\0\0\0\0{}", 10), "runs past the end");  // 10^8
}

TEST(SafeTensors, RefusesOtherJson) {
  expect_refused(file_of(" {}", 0), "does not begin with {");
  expect_refused(file_of("[]", 0), "does not begin with {");
  expect_refused(file_of("{", 0), "not valid JSON");
  expect_refused(file_of("{}x", 0), "not valid JSON");
  expect_refused(file_of("{}{}", 0), "not valid JSON");
  expect_refused(file_of(std::string("{}\0", 3), 0), "a zero byte in the header");
  expect_refused(file_of("{\"\xff\":1}", 0), "not valid JSON");
  expect_refused(file_of("{\"\xed\xa0\x80\":1}", 0), "not valid JSON");
  expect_refused(file_of(R"({"a":1})", 0), "a number in the header");
  expect_refused(file_of(R"({"a":[]})", 0), "an array in the header");
  expect_refused(file_of(R"({"a":null})", 0), "null in the header");
  expect_refused(file_of(R"({"a":true})", 0), "a truth value in the header");
  expect_refused(file_of(R"({"a":"b"})", 0), "a string in the header");
  expect_refused(file_of(R"({"a":{}})", 0), "lacks dtype");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[0]}})", 0), "lacks dtype");
  expect_refused(file_of(R"({"a":{"dtype":{}}})", 0), "an object in the header");
  expect_refused(file_of(R"({"a":{"type":1}})", 0), "unknown field \"type\"");
  expect_refused(file_of(R"({"a":{"dtype":"U8","dtype":"U8"}})", 0), "gives \"dtype\" twice");
  expect_refused(file_of(R"({"__metadata__":1})", 0), "a number in the header");
  expect_refused(file_of(R"({"__metadata__":{"a":1}})", 0), "a number in the header");
  expect_refused(file_of(R"({"__metadata__":{"a":{}}})", 0), "an object in the header");
  expect_refused(file_of(R"({"__metadata__":{"a":"","a":""}})", 0),
                 "the metadata give \"a\" twice");
  expect_refused(file_of(R"({"__metadata__":{},"__metadata__":{}})", 0), "occurs twice");
  const std::string a = tensor(R"("U8")", "[0]", "[0,0]");
  expect_refused(file_of(fmt::format(R"({{"a":{},"a":{}}})", a, a), 0), "\"a\" occurs twice");
  expect_refused(file_of(fmt::format(R"({{"a":{},"\u0061":{}}})", a, a), 0), "\"a\" occurs twice");
}

TEST(SafeTensors, RefusesDeepNestingWithoutFollowingIt) {
  expect_refused(file_of("{\"a\":" + std::string(1'000'000, '['), 0), "an array in the header");
  std::string objects;
  while (objects.size() < 1'000'000) objects += R"({"a":)";
  expect_refused(file_of(objects, 0), "tensor \"a\" has the unknown field \"a\"");
  expect_refused(file_of(one(R"("U8")", "[[1]]", "[0,1]"), 1), "an array in the header");
}

TEST(SafeTensors, RefusesBadTypesAndShapes) {
  expect_refused(file_of(one(R"("U9")", "[1]", "[0,1]"), 1), "unknown dtype \"U9\"");
  expect_refused(file_of(one(R"("")", "[1]", "[0,1]"), 1), "unknown dtype");
  expect_refused(file_of(one("8", "[1]", "[0,1]"), 1), "a number in the header");
  expect_refused(file_of(one(R"("U8")", "1", "[0,1]"), 1), "a number in the header");
  expect_refused(file_of(one(R"("U8")", "[-1]", "[0,1]"), 1), "a negative number");
  expect_refused(file_of(one(R"("U8")", "[1.0]", "[0,1]"), 1), "a number that is not whole");
  expect_refused(file_of(one(R"("U8")", "[1e0]", "[0,1]"), 1), "a number that is not whole");
  expect_refused(file_of(one(R"("U8")", "[\"1\"]", "[0,1]"), 1), "a string in the header");
  expect_refused(file_of(one(R"("U8")", "[9223372036854775808]", "[0,1]"), 1), "too large");
  expect_refused(file_of(one(R"("U8")", "[18446744073709551616]", "[0,1]"), 1), "not whole");
  // Products that wrap around to the right size.
  expect_refused(file_of(one(R"("U8")", "[4294967296,4294967296]", "[0,0]"), 0), "beyond 63 bits");
  expect_refused(file_of(one(R"("F64")", "[2305843009213693952]", "[0,0]"), 0), "beyond 63 bits");
  expect_refused(file_of(one(R"("U8")", "[6148914691236517205,3]", "[0,1]"), 1), "beyond 63 bits");
  std::string sizes = "1";
  for (int i = 1; i < 65; ++i) sizes += ",1";
  expect_refused(file_of(one(R"("U8")", "[" + sizes + "]", "[0,1]"), 1), "more than 64 dimensions");
}

TEST(SafeTensors, RefusesBadOffsets) {
  expect_refused(file_of(one(R"("U8")", "[1]", "[]"), 1), "the end of an array");
  expect_refused(file_of(one(R"("U8")", "[1]", "[0]"), 1), "the end of an array");
  expect_refused(file_of(one(R"("U8")", "[1]", "[0,1,2]"), 1), "a number in the header");
  expect_refused(file_of(one(R"("U8")", "[1]", "[-1,0]"), 1), "a negative number");
  expect_refused(file_of(one(R"("U8")", "[1]", "[1,0]"), 1), "lies outside the file");
  expect_refused(file_of(one(R"("U8")", "[2]", "[0,2]"), 1), "lies outside the file");
  expect_refused(file_of(one(R"("U8")", "[1]", "[18446744073709551615,0]"), 1), "lies outside");
  expect_refused(file_of(one(R"("U8")", "[1]", "[0,18446744073709551615]"), 1), "lies outside");
  expect_refused(file_of(one(R"("U8")", "[2]", "[0,1]"), 1),
                 "has 1 bytes, but dtype and shape make 2");
  expect_refused(file_of(one(R"("F32")", "[1]", "[0,3]"), 3),
                 "has 3 bytes, but dtype and shape make 4");
  expect_refused(file_of(one(R"("U8")", "[1]", "[1,2]"), 2), "leaves a gap");
  expect_refused(file_of(one(R"("U8")", "[1]", "[0,1]"), 2), "1 bytes behind the last tensor");
  expect_refused(file_of(two("[0,4]", "[3,7]"), 7), "overlaps the one before");
  expect_refused(file_of(two("[0,4]", "[0,4]"), 4), "overlaps the one before");
  expect_refused(file_of(two("[0,4]", "[5,9]"), 9), "leaves a gap");
  EXPECT_EQ(refusal_of(file_of(two("[4,8]", "[0,4]"), 8)), "accepted");
}

TEST(SafeTensors, RefusesEveryTruncation) {
  const std::string file = file_of(two("[0,4]", "[4,8]"), 8);
  ASSERT_EQ(refusal_of(file), "accepted");
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(refusal_of(file.substr(0, size)), "accepted") << size;
  }
}

class SafeTensorsFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gdnbench_tensors_test_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string refusal_of_writing(const fs::path& path, const SafeTensors& content) {
    try {
      write_safetensors(path, content);
    } catch (const UserError& error) {
      return error.what();
    }
    return "written";
  }
  std::string refusal_of_reading(const fs::path& path) {
    try {
      const SafeTensorsFile file(path);
    } catch (const UserError& error) {
      return error.what();
    }
    return "read";
  }

  fs::path folder_;
};

TEST_F(SafeTensorsFiles, WritesWhatItReads) {
  std::vector<float> a(6);
  std::iota(a.begin(), a.end(), 1.5F);
  const std::vector<std::uint16_t> b = {0x3F80, 0x7FC0};
  const SafeTensors content = {{{"a", "F32", {2, 3}, std::as_bytes(std::span(a))},
                                {"none", "BF16", {0, 128}, {}},
                                {"b \"\u00e9\"\n", "BF16", {2}, std::as_bytes(std::span(b))}},
                               {{"case", "short_tail_state"}}};
  const fs::path path = folder_ / "t.safetensors";
  std::ofstream(path) << "an old file that is longer than the new one" << std::string(1000, '.');
  write_safetensors(path, content);
  SafeTensorsFile first(path);
  const SafeTensorsFile file(std::move(first));  // the tensors stay where they are
  ASSERT_EQ(file.content().tensors.size(), 3u);
  EXPECT_EQ(file.content().metadata, content.metadata);
  for (std::size_t i = 0; i < 3; ++i) {
    const SafeTensor& read = file.content().tensors[i];
    const SafeTensor& written = content.tensors[i];
    EXPECT_EQ(read.name, written.name);
    EXPECT_EQ(read.dtype, written.dtype);
    EXPECT_EQ(read.shape, written.shape);
    ASSERT_EQ(read.data.size(), written.data.size());
    EXPECT_TRUE(std::ranges::equal(read.data, written.data));
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.find("a")->data.data()) % 64, 0u);
  // Nothing else is left in the folder.
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(SafeTensorsFiles, WritesTheBytesOfTheFormat) {
  const std::string data = "abcd";
  const SafeTensors content = {{{"x", "U8", {4}, std::as_bytes(std::span(data))}}, {}};
  write_safetensors(folder_ / "x", content);
  std::ifstream stream(folder_ / "x", std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  std::string header = R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  header.resize(64 - 8, ' ');
  EXPECT_EQ(bytes, std::string("\x38\0\0\0\0\0\0\0", 8) + header + "abcd");
}

TEST_F(SafeTensorsFiles, LeavesTheOldFileWhereTheNewOneCannotBeWritten) {
  // More than the limit on the size of a file lets through, so that the write itself fails.
  const std::string data(1 << 16, 'x');
  const SafeTensors content = {{{"x", "U8", {1 << 16}, std::as_bytes(std::span(data))}}, {}};
  const fs::path path = folder_ / "x";
  std::ofstream(path) << "old";
  const auto write_little = [&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string message = refusal_of_writing(path, content);
    const bool taught = message.find("written (File too large); choose") != std::string::npos;
    std::_Exit(taught ? 0 : 1);
  };
  EXPECT_EXIT(write_little(), testing::ExitedWithCode(0), "");
  std::string text;
  std::getline(std::ifstream(path), text);
  EXPECT_EQ(text, "old");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(SafeTensorsFiles, RefusesPlacesItCannotWriteTo) {
  EXPECT_NE(refusal_of_writing(folder_ / "no" / "x", {}).find("cannot be written (No such file"),
            std::string::npos);
  EXPECT_NE(refusal_of_writing(folder_, {}).find("not a regular file"), std::string::npos);
  EXPECT_NE(refusal_of_writing("/dev/null", {}).find("not a regular file"), std::string::npos);
  EXPECT_TRUE(fs::is_character_file("/dev/null"));  // still
}

TEST_F(SafeTensorsFiles, RefusesPlacesItCannotRead) {
  EXPECT_NE(refusal_of_reading(folder_ / "x").find("cannot be opened (No such file"),
            std::string::npos);
  EXPECT_NE(refusal_of_reading(folder_).find("not a regular file"), std::string::npos);
  EXPECT_NE(refusal_of_reading("/dev/zero").find("not a regular file"), std::string::npos);
  ASSERT_EQ(mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  EXPECT_NE(refusal_of_reading(folder_ / "fifo").find("not a regular file"), std::string::npos);
  std::ofstream(folder_ / "empty").flush();
  EXPECT_NE(refusal_of_reading(folder_ / "empty").find("shorter than the 8 bytes"),
            std::string::npos);
}

TEST(SafeTensors, RefusesToWriteWhatItCouldNotRead) {
  const std::string data = "abcd";
  const auto bytes = std::as_bytes(std::span(data));
  EXPECT_THROW(safetensors_header({{{"x", "U8", {3}, bytes}}, {}}), std::invalid_argument);
  EXPECT_THROW(safetensors_header({{{"x", "U9", {4}, bytes}}, {}}), std::invalid_argument);
  EXPECT_THROW(safetensors_header({{{"x", "U8", {-4}, bytes}}, {}}), std::invalid_argument);
  EXPECT_THROW(safetensors_header({{{"x", "U8", {4}, bytes}, {"x", "U8", {4}, bytes}}, {}}),
               std::invalid_argument);
  EXPECT_THROW(safetensors_header({{{"__metadata__", "U8", {4}, bytes}}, {}}),
               std::invalid_argument);
}

}  // namespace
}  // namespace gdn
