#include "format/dmexp.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <limits>

#include "base/hash.h"
#include "format/safetensors.h"
#include "support.h"

namespace dormouse::format {
namespace {

using tensor::Tensor;
using testing::contains;
using testing::peek;
using testing::poke;

std::span<const std::uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

// The header of a file, and the file with another one, its lengths and both checksums right.
std::string header_of(const std::string& file) { return file.substr(24, peek<std::uint32_t>(file, 8)); }

std::string repaired(const std::string& file) {
  std::string out = file;
  const auto length = peek<std::uint32_t>(out, 8);
  const std::string payload = out.substr(24 + length);
  poke(out, 12, static_cast<std::uint64_t>(payload.size()));
  poke(out, 20, base::crc32(bytes_of(payload)));
  return out;
}

std::string with_header(const std::string& file, std::string header) {
  header.resize(header.rfind("#crc32:"));
  while (header.size() > 1 && header[header.size() - 1] == '\n' && header[header.size() - 2] == '\n') header.pop_back();
  while ((24 + header.size() + 16) % 64 != 0) header += '\n';
  char comment[20];
  std::snprintf(comment, sizeof comment, "#crc32:%08x\n", base::crc32(bytes_of(header)));
  header += comment;
  std::string out = file.substr(0, 24) + header + file.substr(24 + peek<std::uint32_t>(file, 8));
  poke(out, 8, static_cast<std::uint32_t>(header.size()));
  return repaired(out);
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

Tensor numbers(const tensor::Shape& shape, float first = 0.5F) {
  std::vector<float> values(static_cast<std::size_t>(shape.size()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + 0.25F * static_cast<float>(i % 97) * (i % 2 == 0 ? 1.0F : -1.0F);
  return Tensor::from<float>(shape, values);
}

class DmexpTest : public testing::FolderTest {
 protected:
  static DmexpInfo info(const std::string& dtype) {
    return {.dtype = dtype,
            .source = "checkpoint.safetensors@step12",
            .step = 12,
            .bpb = 1.75,
            .window = 1000,
            .config = "equations = 1\nx = \"\"\"\n"};
  }
  std::string written(const DmexpInfo& with, const std::vector<DmexpTensor>& tensors) const {
    const auto path = folder_ / "good.dmexp";
    const auto image = narrow(with, tensors);
    const std::uint64_t size = write_dmexp(path, image);
    EXPECT_EQ(size, std::filesystem::file_size(path));
    return get(path);
  }
  std::string small(const std::string& dtype = "bf16") const {
    const Storage storage = *storage_named(dtype);
    if (storage == Storage::int8 || storage == Storage::ternary)
      return written(info(dtype), {{"a.weight", numbers({3, 18}), storage, Scales::columns},
                                   {"b", numbers({5}), Storage::f32, Scales::none},
                                   {"c.v", numbers({2, 5}), storage, Scales::rows}});
    return written(info(dtype), {{"a.weight", numbers({3, 4}), storage, Scales::none}, {"b", numbers({5}), storage, Scales::none}});
  }
  std::string refused(const std::string& bytes) const {
    const auto path = put(bytes, "bad.dmexp");
    const std::string message = refusal([&] { (void)DmexpFile(path).read(); });
    EXPECT_TRUE(message.empty() || contains(message, "bad.dmexp")) << message;
    return message;
  }
};

TEST_F(DmexpTest, TheBytesAreThoseOfTheDocument) {
  const std::string file = written({.dtype = "f32", .source = "c@step7", .step = 7, .bpb = {}, .window = {}, .config = "k = 1\n"},
                                   {{"w", Tensor::from<float>({2}, std::vector<float>{1, -0.5F}), Storage::f32, Scales::none}});
  EXPECT_EQ(file.substr(0, 8), std::string("DMEXPRT\x01", 8));
  const std::string header = header_of(file);
  const std::string start =
      "format = 1\ndtype = \"f32\"\nsource = \"c@step7\"\nstep = 7\nnum_params = 2\nnum_tensors = 1\nflushed = 0\nmax_abs = 1.0\n"
      "min_nonzero_abs = 0.5\nconfig = \"k = 1\\n\"\n\n[[tensors]]\nname = \"w\"\ndims = [2]\noverflowed = 0\n";
  EXPECT_EQ(header.substr(0, start.size()), start);
  EXPECT_EQ((24 + header.size()) % 64, 0U);
  EXPECT_EQ(header.substr(start.size(), header.size() - 16 - start.size()).find_first_not_of('\n'), std::string::npos);
  char comment[20];
  std::snprintf(comment, sizeof comment, "#crc32:%08x\n", base::crc32(bytes_of(header.substr(0, header.size() - 16))));
  EXPECT_EQ(header.substr(header.size() - 16), comment);
  EXPECT_EQ(file.substr(24 + header.size()), std::string("\x00\x00\x80\x3f\x00\x00\x00\xbf", 8));
  EXPECT_EQ(peek<std::uint64_t>(file, 12), 8U);
  EXPECT_EQ(peek<std::uint32_t>(file, 20), base::crc32(bytes_of(file.substr(24 + header.size()))));
}

TEST_F(DmexpTest, SizeIsHeadPlusHeaderPlusParametersTimesBytesAndEveryValueComesBack) {
  for (const std::string dtype : {"f32", "f16", "bf16"}) {
    const std::string file = small(dtype);
    EXPECT_EQ(file.size(), 24 + header_of(file).size() + 17 * (dtype == "f32" ? 4 : 2));
    const DmexpFile opened(folder_ / "good.dmexp");
    EXPECT_EQ(opened.header().num_params, 17);
    EXPECT_EQ(opened.header().source, "checkpoint.safetensors@step12");
    EXPECT_EQ(opened.header().bpb, 1.75);
    EXPECT_EQ(opened.header().window, 1000);
    EXPECT_EQ(opened.header().config, info(dtype).config);
    const auto contents = opened.read();
    ASSERT_EQ(contents.tensors.size(), 2U);
    std::vector<float> values(12);
    widen(contents.tensors[0], values);
    const Tensor wanted = numbers({3, 4});
    for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], wanted.data<float>()[i]);  // quarters fit into every dtype
  }
}

TEST_F(DmexpTest, Version2LiesInPiecesOf64Bytes) {
  for (const std::string dtype : {"int8", "ternary"}) {
    const std::string file = small(dtype);
    EXPECT_EQ(file[7], 2);
    // Codes of [3,18]: 54 bytes, or 3 rows of 8; 18 scales: 72 bytes; 5 floats; codes of [2,5]; 2 scales.
    EXPECT_EQ(file.size() - 24 - header_of(file).size(), 64U + 128 + 64 + 64 + 64);
    const DmexpFile opened(folder_ / "good.dmexp");
    const auto contents = opened.read();
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(contents.payload.get()) % 64, 0U);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(contents.tensors[0].scales.data()) - contents.payload.get(), 64);
    EXPECT_EQ(reinterpret_cast<const std::byte*>(contents.tensors[2].codes.data()) - contents.payload.get(), 256);
    EXPECT_EQ(contents.tensors[0].shape.axis, Scales::columns);
    EXPECT_EQ(contents.tensors[2].shape.axis, Scales::rows);
  }
}

TEST_F(DmexpTest, AnyFlippedBitOfASmallFileIsRefused) {
  for (const std::string dtype : {"bf16", "ternary"}) {
    const std::string good = small(dtype);
    const auto path = put(good);
    const base::File file = base::File::open_read(path);
    std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
    for (std::size_t i = 0; i < good.size(); ++i) {
      for (int bit = 0; bit < 8; ++bit) {
        out.seekp(static_cast<std::streamoff>(i)).put(static_cast<char>(good[i] ^ (1 << bit))).flush();
        ASSERT_NE(refusal([&] { (void)DmexpFile(path).read(); }), "") << "byte " << i << " bit " << bit;
      }
      out.seekp(static_cast<std::streamoff>(i)).put(good[i]).flush();
    }
    EXPECT_EQ(refusal([&] { (void)DmexpFile(path).read(); }), "");
  }
}

TEST_F(DmexpTest, EveryByteOfA30KilobyteExportFlippedIsRefused) {
  const std::string good = written(info("bf16"), {{"embedding.weight", numbers({256, 56}), Storage::bf16, Scales::none}});
  ASSERT_GT(good.size(), 29000U);
  const auto path = put(good);
  std::fstream out(path, std::ios::binary | std::ios::in | std::ios::out);
  for (std::size_t i = 0; i < good.size(); ++i) {
    out.seekp(static_cast<std::streamoff>(i)).put(static_cast<char>(~good[i])).flush();
    ASSERT_NE(refusal([&] { DmexpFile file(path); }), "") << "byte " << i;
    out.seekp(static_cast<std::streamoff>(i)).put(good[i]).flush();
  }
}

TEST_F(DmexpTest, EveryTruncationAndEveryExtraByteIsRefused) {
  const std::string good = small();
  for (std::size_t n = 0; n < good.size(); ++n) {
    const std::string message = refused(good.substr(0, n));
    ASSERT_NE(message, "") << n;
    if (n >= 7) {
      ASSERT_TRUE(contains(message, "damaged")) << message;
    }
  }
  EXPECT_TRUE(contains(refused(good + "x"), "its lengths say"));
  EXPECT_TRUE(contains(refused(good + good), "its lengths say"));
}

TEST_F(DmexpTest, LengthsBeyondTheFileAreRefusedBeforeAnythingIsAllocated) {
  const std::string good = small();
  for (const std::uint64_t value : {std::uint64_t{1} << 31, std::uint64_t{1} << 32, std::uint64_t{1} << 63, ~std::uint64_t{0},
                                    ~std::uint64_t{0} - 24 - peek<std::uint32_t>(good, 8), std::uint64_t{0}}) {
    std::string bad = good;
    poke(bad, 12, value);
    EXPECT_TRUE(contains(refused(bad), "its lengths say")) << value;
  }
  for (const std::uint32_t value : {0xffffffffU, 0x80000000U, (16U << 20) + 1, (16U << 20), 0U}) {
    std::string bad = good;
    poke(bad, 8, value);
    EXPECT_TRUE(contains(refused(bad), "damaged")) << value;
  }
  std::string empty_header = good.substr(0, 24);
  poke(empty_header, 8, std::uint32_t{0});
  EXPECT_NE(refused(repaired(empty_header)), "");
  for (const char version : {'\x00', '\x03', '\xff'}) {
    std::string bad = good;
    bad[7] = version;
    EXPECT_TRUE(contains(refused(bad), "version")) << int(version);
  }
}

TEST_F(DmexpTest, DimsAndCountsBeyondTheFileAreRefusedBeforeAnythingIsAllocated) {
  const std::string good = small(), header = header_of(good);
  for (const char* dims : {"[2147483648]", "[4294967296]", "[9223372036854775807]", "[3, 2147483648]", "[4294967296, 4294967296]",
                           "[2147483648, 2147483648, 2147483648]", "[0]", "[-5]", "[]", "[1, 1, 1, 1, 5]", "[5, 1]", "[6]", "[4]", "5",
                           "\"5\"", "[5.0]", "[[5]]", "[true]"}) {
    const std::string message = refused(with_header(good, replaced(header, "dims = [5]", std::string("dims = ") + dims)));
    if (std::string(dims) == "[5, 1]") {
      EXPECT_EQ(message, "");  // the same bytes: a config must tell them apart
    } else {
      EXPECT_NE(message, "") << dims;
    }
  }
  for (const char* value : {"2147483648", "4294967296", "9223372036854775807", "0", "-2", "18", "16", "17.0", "\"17\""})
    EXPECT_NE(refused(with_header(good, replaced(header, "num_params = 17", std::string("num_params = ") + value))), "") << value;
  for (const char* value : {"4294967296", "1", "3"})
    EXPECT_TRUE(
        contains(refused(with_header(good, replaced(header, "num_tensors = 2", std::string("num_tensors = ") + value))), "lists 2"));
}

TEST_F(DmexpTest, ATamperedHeaderWithBothChecksumsRightIsRefused) {
  const std::string good = small(), header = header_of(good);
  ASSERT_EQ(refused(with_header(good, header)), "");
  const std::vector<std::array<std::string, 3>> cases = {
      {"format = 1", "format = 2", "another format"},
      {"format = 1\n", "", "no `format`"},
      {"format = 1", "format = 1\nformat = 1", "line 2"},
      {"dtype = \"bf16\"", "dtype = \"f32\"", "need 68"},
      {"dtype = \"bf16\"", "dtype = \"f64\"", "dtype \"f64\""},
      {"dtype = \"bf16\"", "dtype = \"int8\"", "dtype"},
      {"dtype = \"bf16\"", "dtype = 16", "a string"},
      {"step = 12", "step = -1", "step"},
      {"step = 12", "step = 1e400", ""},
      {"max_abs = ", "max_abs = -", "max_abs"},
      {"min_nonzero_abs = ", "min_nonzero_abs = nan\nx = ", "min_nonzero_abs"},
      {"flushed = 0", "flushed = 0\nnote = \"hello\"", "unknown key \"note\""},
      {"overflowed = 0", "overflowed = 1", "overflowed"},
      {"overflowed = 0", "overflowed = 0\nscale = 1", "unknown key \"scale\""},
      {"overflowed = 0\n", "", "no `overflowed`"},
      {"name = \"b\"", "name = \"a.weight\"", "twice"},
      {"name = \"b\"", "name = 5", "a string"},
      {"name = \"b\"", "name = \"\xff\"", "line"},
      {"config = ", "config = 5 #", "a string"},
      {"[[tensors]]", "[[tensor]]", "unknown key \"tensor\""},
      {"[[tensors]]", "[tensors]", ""},
      {"[[tensors]]", "[[tensors.x]]", ""},
      {"source = ", "source = {a = 1} #", ""},
  };
  for (const auto& [from, to, part] : cases) {
    const std::string message = refused(with_header(good, replaced(header, from, to)));
    EXPECT_NE(message, "") << to;
    EXPECT_TRUE(contains(message, part)) << to << ": " << message;
  }
}

TEST_F(DmexpTest, DeepNestingAndCrowdedHeadersAreRefusedQuickly) {
  const std::string good = small(), header = header_of(good);
  for (const std::string& value :
       {std::string(100000, '['), std::string(3000, '['), std::string(200000, '{'), "[" + std::string(1 << 20, '1') + "]"})
    EXPECT_NE(refused(with_header(good, replaced(header, "step = 12", "step = " + value))), "");
  std::string list = "[1";
  for (int i = 0; i < 300000; ++i) list += ",1";
  EXPECT_TRUE(contains(refused(with_header(good, replaced(header, "dims = [5]", "dims = " + list + "]"))), "values for 2 tensors"));
  std::string dotted = "a";
  for (int i = 0; i < 100000; ++i) dotted += ".a";
  EXPECT_NE(refused(with_header(good, replaced(header, "step = 12", dotted + " = 1"))), "");
  std::string many;
  for (int i = 0; i < 70000; ++i) many += "[[tensors]]\n";
  EXPECT_TRUE(contains(refused(with_header(good, replaced(header, "[[tensors]]", many + "[[tensors]]"))), "70002 tensors"));
}

TEST_F(DmexpTest, CodesScalesAndPaddingThatNoWriterLeavesAreRefusedWithTheChecksumsRight) {
  const auto poked = [&](const std::string& good, std::size_t payload_at, auto value) {
    std::string bad = good;
    poke(bad, 24 + header_of(good).size() + payload_at, value);
    return refused(repaired(bad));
  };
  const std::string int8 = small("int8");
  EXPECT_TRUE(contains(poked(int8, 3, char(-128)), "-128"));
  EXPECT_TRUE(contains(poked(int8, 63, char(1)), "padding"));
  EXPECT_TRUE(contains(poked(int8, 64 + 127, char(1)), "padding"));
  EXPECT_TRUE(contains(poked(int8, 64, -1.0F), "scale"));
  EXPECT_TRUE(contains(poked(int8, 64 + 128, std::numeric_limits<float>::infinity()), "infinity"));
  const std::string ternary = small("ternary");
  EXPECT_TRUE(contains(poked(ternary, 0, char(2)), "code 10"));
  EXPECT_TRUE(contains(poked(ternary, 7, char(1)), "beyond its last column"));
  const std::string bf16 = small("bf16");
  EXPECT_TRUE(contains(poked(bf16, 2, std::uint16_t{0x7fc0}), "tensor a.weight holds NaN at element 1"));
  std::string header = replaced(header_of(int8), "scales = \"columns\"", "scales = \"none\"");
  EXPECT_TRUE(contains(refused(with_header(int8, header)), "rows"));
  header = replaced(header_of(int8), "scales = \"columns\"\n", "");
  EXPECT_TRUE(contains(refused(with_header(int8, header)), "no `scales`"));
  header = replaced(header_of(int8), "dims = [3, 18]", "dims = [54]");
  EXPECT_TRUE(contains(refused(with_header(int8, header)), "1 dims, not 2"));
}

TEST_F(DmexpTest, AVersion1HeaderWithoutItsChecksumIsOfAnotherProgramAndAccepted) {
  const std::string good = small();
  std::string header = header_of(good);
  header.resize(header.rfind("#crc32:"));
  std::string foreign = good.substr(0, 24) + header + good.substr(24 + header_of(good).size());
  poke(foreign, 8, static_cast<std::uint32_t>(header.size()));
  EXPECT_EQ(refused(foreign), "");
  EXPECT_FALSE(DmexpFile(put(foreign)).header().has_checksum);
  header += "#crc99:00000000\n";
  foreign = good.substr(0, 24) + header + good.substr(24 + header_of(good).size());
  poke(foreign, 8, static_cast<std::uint32_t>(header.size()));
  EXPECT_TRUE(contains(refused(foreign), "a comment that is not its checksum"));
  std::string two = small("int8"), bare = header_of(two);
  bare.resize(bare.rfind("#crc32:"));
  std::string without = two.substr(0, 24) + bare + two.substr(24 + header_of(two).size());
  poke(without, 8, static_cast<std::uint32_t>(bare.size()));
  EXPECT_TRUE(contains(refused(without), "no checksum"));
}

TEST_F(DmexpTest, OtherKindsOfFilesAreNamedWithTheCommandThatWorks) {
  const auto says = [&](const std::string& bytes, const std::string& part) {
    const std::string message = refused(bytes);
    EXPECT_TRUE(contains(message, part)) << message;
  };
  says("", "is empty");
  says("DMEX", "is a text file");
  says("Call me Ishmael.", "is a text file, not an export; give an export");
  says(std::string("\x1f\x8b\x08\x00", 4) + "more", "is gzip data, not an export; unpack it first (gunzip)");
  says("GGUF" + std::string("\x03\x00\x00\x00\x01\x00\x00\x00", 8), "is a GGUF model");
  says("DMNGRAM\x01", "n-gram table");
  says("DMCK" + std::string("\x00\x02\x00\x00", 4), "first dormouse");
  says("NRUB" + std::string(12, '\0'), "burnpack");
  says(std::string("PK\x03\x04") + std::string(40, '\0'), "zip archive");
  says(std::string(64, '\xee'), "is no dormouse export");
  write_safetensors(folder_ / "bad.dmexp", {{"model.w", numbers({2})}}, {{"dormouse.kind", "checkpoint"}});
  std::string message = refusal([&] { DmexpFile file(folder_ / "bad.dmexp"); });
  EXPECT_TRUE(contains(message, "training checkpoint") && contains(message, "dormouse export " + (folder_ / "bad.dmexp").string()))
      << message;
  write_safetensors(folder_ / "bad.dmexp", {{"w", numbers({2})}}, {});
  EXPECT_TRUE(contains(refusal([&] { DmexpFile file(folder_ / "bad.dmexp"); }), "another program"));
}

TEST_F(DmexpTest, PipesDirectoriesAndSparseFilesAreRefused) {
  EXPECT_TRUE(contains(refusal([&] { DmexpFile file(folder_); }), "is a directory"));
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_TRUE(contains(refusal([&] { DmexpFile file(pipe); }), "FIFO"));
  EXPECT_TRUE(contains(refusal([&] { DmexpFile file("/dev/null"); }), "not a regular file"));
  EXPECT_TRUE(contains(refusal([&] { DmexpFile file(folder_ / "gone"); }), "gone"));
  // 5 GB of zeros behind the head of a good file: the lengths do not fit.
  const auto sparse = put(small(), "sparse");
  std::filesystem::resize_file(sparse, std::uint64_t{5} << 30);
  EXPECT_TRUE(contains(refusal([&] { DmexpFile file(sparse); }), "its lengths say"));
}

TEST_F(DmexpTest, AFileCutBetweenOpeningAndReadingIsRefused) {
  const auto path = put(small());
  const DmexpFile file(path);
  std::filesystem::resize_file(path, 200);
  EXPECT_TRUE(contains(refusal([&] { (void)file.read(); }), "too short"));
  const std::string good = small();
  const DmexpFile changed(put(good));
  std::string bad = good;
  bad.back() = static_cast<char>(bad.back() ^ 1);
  put(bad);
  EXPECT_TRUE(contains(refusal([&] { (void)changed.read(); }), "CRC"));
}

TEST_F(DmexpTest, TheWriterRefusesWhatTheDtypeCannotHoldAndNamesTheWayOut) {
  const Tensor large = Tensor::from<float>({3}, std::vector<float>{1, 70000, 2});
  const auto narrowed = [&](const std::string& dtype, const Tensor& value) {
    return refusal([&] { (void)narrow(info(dtype), {{"loop.a_log", value, *storage_named(dtype), Scales::none}}); });
  };
  const std::string message = narrowed("f16", large);
  EXPECT_TRUE(contains(message, "loop.a_log holds 70000 at element 1") && contains(message, "--dtype bf16")) << message;
  EXPECT_EQ(narrowed("bf16", large), "");
  EXPECT_TRUE(
      contains(narrowed("f32", Tensor::from<float>({1}, std::vector<float>{std::numeric_limits<float>::quiet_NaN()})), "not finite"));
  EXPECT_TRUE(contains(narrowed("bf16", Tensor::from<float>({1}, std::vector<float>{3.4e38F})), "--dtype f32"));
}

}  // namespace
}  // namespace dormouse::format
