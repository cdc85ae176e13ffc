#include "format/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/file.h"

namespace dormouse::format {
namespace {

namespace fs = std::filesystem;
using tensor::Dtype;
using tensor::Tensor;

class Safetensors : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("dormouse-format-" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }

  fs::path write(const std::string& bytes, const std::string& name = "x.safetensors") const {
    const fs::path path = dir_ / name;
    std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return path;
  }
  // A file of this JSON header (as given, padded with spaces to a multiple of 8) and data.
  static std::string file_of(std::string header, const std::string& data) {
    header.resize((header.size() + 7) / 8 * 8, ' ');
    std::string out(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(std::uint64_t{header.size()} >> (8 * i));
    return out + header + data;
  }
  static std::string load(const fs::path& path) {
    const auto bytes = base::read_file(path);
    return {bytes.begin(), bytes.end()};
  }
  // Opens and reads everything; the message of the refusal, or "" when all is well.
  static std::string refusal(const fs::path& path) {
    try {
      const SafetensorsFile file(path);
      for (const auto& e : file.entries()) (void)file.read(e);
    } catch (const base::Error& error) {
      return error.what();
    }
    return "";
  }
  std::string refusal_of(const std::string& bytes) const { return refusal(write(bytes)); }
  std::string refusal_of_header(const std::string& header, const std::string& data = "") const { return refusal_of(file_of(header, data)); }
  void expect_refused(const std::string& bytes, const std::string& part) const {
    const std::string message = refusal_of(bytes);
    EXPECT_NE(message.find(part), std::string::npos) << "got: " << message << "\nwanted: " << part;
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
  }
  void expect_header_refused(const std::string& header, const std::string& data, const std::string& part) const {
    expect_refused(file_of(header, data), part);
  }
  fs::path small_file() const {
    const fs::path path = dir_ / "small.safetensors";
    const std::vector<float> w{1.5F, -2.0F, 3.25F};
    const std::vector<std::uint32_t> n{7, 8};
    write_safetensors(path, {{"model.w", Tensor::from<float>({3}, w)}, {"optimizer.n", Tensor::from<std::uint32_t>({1, 2}, n)}},
                      {{"dormouse.kind", "checkpoint"}, {"step", "12"}});
    return path;
  }

  fs::path dir_;
};

template <class T>
std::vector<T> values(const Tensor& t) {
  return {t.data<T>(), t.data<T>() + t.size()};
}

TEST_F(Safetensors, RoundTripKeepsEveryBitOfEveryDtypeShapeAndMetadata) {
  const std::vector<float> f{0.0F,
                             -0.0F,
                             std::numeric_limits<float>::denorm_min(),
                             std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN(),
                             1e-30F};
  const std::vector<double> d{1.0 / 3};
  const std::vector<std::uint16_t> b{0x3f80, 0x7fc1, 0x0001};
  const std::vector<std::uint8_t> u{0, 255, 3, 4};
  const std::vector<std::uint32_t> n{0xffffffffU};
  const std::map<std::string, std::string> metadata{{"config", "a = \"\\\"\n\t\x01\"\n[x]\n"}, {"", ""}, {"\xc3\xa9", "\xe2\x82\xac"}};
  const fs::path path = dir_ / "round.safetensors";
  write_safetensors(path,
                    {{"a.u8", Tensor::from<std::uint8_t>({1, 2, 1, 2}, u)},
                     {"z", Tensor::from<float>({2, 3}, f)},
                     {"b", Tensor::from<std::uint16_t>({3}, b)},
                     {"scalar", Tensor::from<std::uint32_t>(tensor::Shape{}, n)},
                     {"empty", Tensor::zeros({0, 5}, Dtype::f32)},
                     {"odd \"name\"\n", Tensor::from<double>({1}, d)}},
                    metadata);
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.entries().size(), 6U);
  const Tensor z = file.read(*file.find("z"));
  EXPECT_EQ(z.shape().text(), "[2,3]");
  EXPECT_EQ(std::memcmp(z.bytes(), f.data(), 24), 0);
  EXPECT_EQ(values<double>(file.read(*file.find("odd \"name\"\n"))), d);
  EXPECT_EQ(values<std::uint16_t>(file.read(*file.find("b"))), b);
  EXPECT_EQ(values<std::uint8_t>(file.read(*file.find("a.u8"))), u);
  EXPECT_EQ(file.read(*file.find("scalar")).rank(), 0);
  EXPECT_EQ(file.read(*file.find("empty")).shape().text(), "[0,5]");
  EXPECT_EQ(file.find("nothing"), nullptr);
  for (const auto& e : file.entries()) EXPECT_EQ(e.begin % tensor::size_of(e.dtype), 0U) << e.name;
}

TEST_F(Safetensors, StridedTensorIsWrittenAsItsValues) {
  const std::vector<float> f{1, 2, 3, 4, 5, 6};
  const fs::path path = dir_ / "strided.safetensors";
  write_safetensors(path, {{"x", Tensor::from<float>({2, 3}, f).columns(1, 2)}}, {});
  const SafetensorsFile file(path);
  EXPECT_EQ(values<float>(file.read(file.entries()[0])), (std::vector<float>{2, 3, 5, 6}));
}

TEST_F(Safetensors, SameContentGivesTheSameBytes) {
  const std::string first = load(small_file());
  EXPECT_EQ(first, load(small_file()));
  EXPECT_EQ(first.size() % 4, 0U);
}

TEST_F(Safetensors, WriterRefusesWhatItCouldNotReadBack) {
  const Tensor one = Tensor::zeros({1}, Dtype::f32);
  const fs::path path = dir_ / "never.safetensors";
  EXPECT_THROW(write_safetensors(path, {{"x", one}, {"x", one}}, {}), base::Error);
  EXPECT_THROW(write_safetensors(path, {{"__metadata__", one}}, {}), base::Error);
  EXPECT_THROW(write_safetensors(path, {{"", one}}, {}), base::Error);
  EXPECT_THROW(write_safetensors(path, {{"a=b", one}}, {}), base::Error);
  EXPECT_THROW(write_safetensors(path, {{"a\xff", one}}, {}), base::Error);
  EXPECT_THROW(write_safetensors(path, {{"x", Tensor()}}, {}), base::Error);
  EXPECT_THROW(write_safetensors(path, {{"x", one}}, {{"crc32", "x=00000000;"}}), base::Error);
  EXPECT_THROW(write_safetensors(path, {{"x", one}}, {{"config", "\xff"}}), base::Error);
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(Safetensors, AnyFlippedBitAnywhereIsRefused) {
  const fs::path path = small_file();
  const std::string good = load(path);
  ASSERT_EQ(refusal(path), "");
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t i, int byte) {
    file.seekp(static_cast<std::streamoff>(i));
    file.put(static_cast<char>(byte));
    file.flush();
    ASSERT_TRUE(file.good());
  };
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      put(i, good[i] ^ (1 << bit));
      ASSERT_NE(refusal(path), "") << "byte " << i << " bit " << bit << " of " << good;
    }
    put(i, good[i]);
  }
  EXPECT_EQ(refusal(path), "");
}

TEST_F(Safetensors, EveryTruncationAndExtraByteIsRefusedWithOneLine) {
  const std::string good = load(small_file());
  for (std::size_t n = 0; n < good.size(); ++n) {
    const std::string message = refusal_of(good.substr(0, n));
    ASSERT_NE(message, "") << n;
    ASSERT_EQ(message.find('\n'), std::string::npos) << message;
    if (n >= 8) {
      ASSERT_NE(message.find("is cut short: " + std::to_string(n) + " of "), std::string::npos) << message;
    }
  }
  expect_refused(good.substr(0, good.size() - 1), "of " + std::to_string(good.size()) + " bytes");
  expect_refused(good + "x", "1 bytes after its last tensor");
}

TEST_F(Safetensors, DamagedDataNamesTheTensor) {
  std::string bad = load(small_file());
  bad[bad.size() - 1] = static_cast<char>(bad[bad.size() - 1] ^ 0x40);
  expect_refused(bad, "tensor \"optimizer.n\" has CRC");
}

TEST_F(Safetensors, DamagedHeaderIsToldApart) {
  std::string bad = load(small_file());
  const std::size_t at = bad.find("\"step\":\"12\"");
  ASSERT_NE(at, std::string::npos);
  bad[at + 8] = '7';
  expect_refused(bad, "header does not match its checksum");
}

TEST_F(Safetensors, FileOfThePythonPackageIsRead) {
  const float w[4] = {1, 2, 3, 4};
  std::string data(reinterpret_cast<const char*>(w), sizeof w);
  data += "\x05\x06";
  const std::string text = file_of(
      R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"u":{"dtype":"U8","shape":[2],"data_offsets":[16,18]}})",
      data);
  const SafetensorsFile file(write(text));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(values<float>(file.read(*file.find("w"))), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(values<std::uint8_t>(file.read(*file.find("u"))), (std::vector<std::uint8_t>{5, 6}));
}

TEST_F(Safetensors, HeaderOrderAndWhitespaceDoNotMatter) {
  const std::string header =
      "  {\n\"b\": {\"shape\": [1], \"data_offsets\": [1, 2], \"dtype\": "
      "\"U8\"},\t\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[1,1]},"
      "\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}}";
  const SafetensorsFile file(write(file_of(header, "\x01\x02")));
  ASSERT_EQ(file.entries().size(), 3U);
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_EQ(file.entries()[1].name, "e");
  EXPECT_EQ(values<std::uint8_t>(file.read(file.entries()[2])), (std::vector<std::uint8_t>{2}));
  EXPECT_EQ(refusal_of_header("{}"), "");
}

TEST_F(Safetensors, HolesOverlapsAndWrongSizesAreRefused) {
  const auto entry = [](const std::string& name, const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const std::string four(4, 'x');
  const auto one = [&](const std::string& e) { return "{" + e + "}"; };
  expect_header_refused(one(entry("a", "F32", "[1]", "[4,8]")), four + four, "a hole or an overlap");
  expect_header_refused("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[8,12]") + "}", four + four + four,
                        "tensor \"b\" begins at byte 8 of the data, not at 4");
  expect_header_refused("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[0,4]") + "}", four, "an overlap");
  expect_header_refused("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[2,6]") + "}", four + "xx", "an overlap");
  expect_header_refused(one(entry("a", "F32", "[2]", "[0,4]")), four, "has 4 bytes, its shape needs 8");
  expect_header_refused(one(entry("a", "F32", "[1]", "[0,8]")), four + four, "has 8 bytes, its shape needs 4");
  expect_header_refused(one(entry("a", "U8", "[]", "[0,4]")), four, "has 4 bytes, its shape needs 1");
  expect_header_refused(one(entry("a", "F32", "[0]", "[0,0]")), four, "4 bytes after its last tensor");
  expect_header_refused("{}", four, "4 bytes after its last tensor");
  expect_header_refused(one(entry("a", "I16", "[2]", "[0,4]")), four, "dtype I16, which dormouse does not read");
  expect_header_refused(one(entry("a", "f32", "[1]", "[0,4]")), four, "dtype f32");
  // Products and sums beyond 64 bits, sizes beyond the file: no allocation before the refusal.
  expect_header_refused(one(entry("a", "F32", "[4294967296,4294967296]", "[0,4]")), four, "beyond 64 bits");
  expect_header_refused(one(entry("a", "F32", "[4611686018427387904,4]", "[0,0]")), "", "beyond 64 bits");
  expect_header_refused(one(entry("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]")), four, "is cut short: ");
  expect_header_refused("{" + entry("a", "U8", "[9223372036854775807]", "[0,9223372036854775807]") + "," +
                            entry("b", "U8", "[2,9223372036854775807]", "[9223372036854775807,18446744073709551615]") + "}",
                        four, "shape needs 18446744073709551614");
  expect_header_refused(one(entry("a", "U8", "[3,6148914691236517205]", "[0,18446744073709551615]")), four, "beyond 64 bits");
  expect_header_refused(one(entry("a", "U8", "[9223372036854775808]", "[0,4]")), four, "dimension of 9223372036854775808");
  expect_header_refused(one(entry("a", "F32", "[1]", "[4,0]")), four, "begins at byte 4");
}

TEST_F(Safetensors, HostileHeadersAreRefusedAtTheFirstWrongToken) {
  const std::string ok = R"("dtype":"U8","shape":[1],"data_offsets":[0,1])";
  expect_header_refused("{\"a\":{" + ok + "},\"a\":{" + ok + "}}", "x", "holds \"a\" twice");
  expect_header_refused("{\"a\":{\"dtype\":\"U8\"," + ok + "}}", "x", "holds \"dtype\" twice");
  expect_header_refused(R"({"__metadata__":{"k":"1","k":"2"}})", "", "metadata key \"k\" twice");
  expect_header_refused(R"({"__metadata__":{},"__metadata__":{}})", "", "twice");
  expect_header_refused(R"({"__metadata__":{"k":1}})", "", "a number");
  expect_header_refused(R"({"__metadata__":{"k":{}}})", "", "an object");
  expect_header_refused(R"({"__metadata__":[]})", "", "an array");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1]}})", "", "lacks dtype, shape or data_offsets");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "", "fewer than two data_offsets");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", "", "more than two data_offsets");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1,1,1,1,1],"data_offsets":[0,1]}})", "x", "more than 4 dimensions");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "x", "a negative number");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "x", "a fraction");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[1e400],"data_offsets":[0,1]}})", "x", "not JSON");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":[99999999999999999999],"data_offsets":[0,1]}})", "x", "beyond 64 bits");
  expect_header_refused(R"({"a":{"dtype":null,"shape":[1],"data_offsets":[0,1]}})", "x", "null");
  expect_header_refused(R"({"a":{"dtype":"U8","shape":"1","data_offsets":[0,1]}})", "x", "a string");
  expect_header_refused("{\"a\":{\"extra\":true," + ok + "}}", "x", "unknown key \"extra\"");
  expect_header_refused(R"({"a":7})", "", "a number");
  expect_header_refused("[]", "", "no JSON header at its beginning");
  expect_header_refused("\xef\xbb\xbf{}", "", "is not a safetensors file");
  expect_header_refused("{} {}", "", "not JSON");
  expect_header_refused("{\"a\":{" + ok + "}", "x", "not JSON");
  expect_header_refused("{\"a\xff\":{" + ok + "}}", "x", "not JSON");
  expect_header_refused(std::string("{}\0{}", 5), "", "zero byte");
  expect_header_refused("", "", "does not begin with '{'");
  expect_header_refused(" \n ", "", "does not begin with '{'");
  expect_header_refused("{\"\\u001b[31m\\n\":{\"extra\":1}}", "", "\\x1b");
  // Deep nesting and long arrays end at their first element, in no time and without recursion.
  expect_header_refused("{\"a\":" + std::string(2'000'000, '['), "", "an array");
  expect_header_refused("{\"a\":{\"dtype\":\"U8\",\"shape\":" + std::string(1'000'000, '['), "", "an array");
  std::string deep;
  for (int i = 0; i < 200'000; ++i) deep += "{\"a\":";
  expect_header_refused(deep, "", "unknown key \"a\"");
  std::string wide = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1";
  for (int i = 0; i < 500'000; ++i) wide += ",1";
  expect_header_refused(wide + "]}}", "", "more than 4 dimensions");
}

TEST_F(Safetensors, ManyTensorsLoadQuickly) {
  std::string header = "{";
  std::string data;
  for (int i = 0; i < 20'000; ++i) {
    header += (i > 0 ? ",\"t" : "\"t") + std::to_string(i) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" + std::to_string(i) +
              "," + std::to_string(i + 1) + "]}";
    data += 'x';
  }
  EXPECT_EQ(SafetensorsFile(write(file_of(header + "}", data))).entries().size(), 20'000U);
}

TEST_F(Safetensors, ChecksumsComeBothOrNotAtAllAndCoverEveryTensor) {
  const std::string tensor = R"("a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(refusal_of_header("{" + tensor + "}", "x"), "");
  expect_header_refused("{\"__metadata__\":{\"crc32\":\"a=00000000;\"}," + tensor + "}", "x", "only crc32 is there");
  expect_header_refused("{\"__metadata__\":{\"crc32_header\":\"00000000\"}," + tensor + "}", "x", "only crc32_header is there");
  expect_header_refused("{\"__metadata__\":{\"crc32\":\"a=00000000;\",\"crc32_header\":\"zz\"}," + tensor + "}", "x",
                        "does not match its checksum");
}

TEST_F(Safetensors, EachWrongFileIsToldWhatItIs) {
  expect_refused("", "is empty (0 bytes)");
  expect_refused(std::string("\x01\x00\x00", 3), "is too short for a safetensors file (3 bytes)");
  expect_refused("hello", "is a text file");
  expect_refused("To be, or not to be, that is the question:\n", "is a text file");
  expect_refused("{\"a\": 1}\n{\"a\": 2}\n", "is a text file");
  expect_refused(std::string("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03 and more", 19), "is gzip data");
  expect_refused("GGUF" + std::string("\x03\x00\x00\x00\x01\x00\x00\x00", 8), "is a GGUF model");
  expect_refused("DMEXPRT\x01" + std::string(32, '\0'), "is a dormouse export (.dmexp)");
  expect_refused("PK\x03\x04" + std::string(40, '\0'), "is a zip archive");
  expect_refused(std::string("\x28\xb5\x2f\xfd\x04\x00\x00\x00\x00", 9), "is zstd data");
  expect_refused("na\xc3\xafve caf\xc3\xa9, \xe2\x82\xac 5\n", "is a text file");
  expect_refused(std::string(64, '\xff'), "is not a safetensors file");
  expect_refused(std::string("\xff\xff\xff\x7f\0\0\0\0{", 9), "is not a safetensors file");
  expect_refused(std::string("\xff\xff\xff\x00\0\0\0\0{", 9), "is cut short: 9 of at least 16777223");
  EXPECT_NE(refusal(dir_).find("is a directory"), std::string::npos);
  const fs::path fifo = dir_ / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_NE(refusal(fifo).find("named pipe"), std::string::npos);
  EXPECT_NE(refusal(dir_ / "absent").find("absent"), std::string::npos);
  EXPECT_NE(refusal("/dev/null").find("not a regular file"), std::string::npos);
}

TEST_F(Safetensors, PathInTheMessageIsEscaped) {
  const std::string message = refusal(write("hello", "new\nline \x1b[31m"));
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_NE(message.find("new\\nline"), std::string::npos) << message;
}

TEST_F(Safetensors, FileReplacedWhileOpenStillReadsItsOwnBytes) {
  const fs::path path = small_file();
  const SafetensorsFile file(path);
  const std::vector<float> other{9, 9, 9, 9, 9};
  write_safetensors(path, {{"model.w", Tensor::from<float>({5}, other)}}, {});
  EXPECT_EQ(values<float>(file.read(*file.find("model.w"))), (std::vector<float>{1.5F, -2.0F, 3.25F}));
}

}  // namespace
}  // namespace dormouse::format
