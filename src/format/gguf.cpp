#include "format/gguf.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "base/error.h"
#include "base/half.h"
#include "base/hash.h"
#include "format/kind.h"

namespace dormouse::format {

namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kVersion = 3;
constexpr std::uint64_t kAlignment = 32, kLargestAlignment = std::uint64_t{1} << 20;
constexpr std::uint64_t kMostDims = 4, kLongestName = 63, kLongestKey = 65535;
constexpr std::string_view kCrcKey = "dormouse.data_crc32";

// Metadata value types.
enum : std::uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };
constexpr std::array<std::uint64_t, 13> kValueBytes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

struct TypeInfo {
  std::uint32_t type;
  std::string_view name;
  std::uint64_t block, bytes;  // elements and bytes of a block
};
// Those of ggml that a file may hold; dormouse computes with those of GgufType only.
constexpr std::array kTypes{
    TypeInfo{0, "F32", 1, 4},       TypeInfo{1, "F16", 1, 2},       TypeInfo{2, "Q4_0", 32, 18},    TypeInfo{3, "Q4_1", 32, 20},
    TypeInfo{6, "Q5_0", 32, 22},    TypeInfo{7, "Q5_1", 32, 24},    TypeInfo{8, "Q8_0", 32, 34},    TypeInfo{10, "Q2_K", 256, 84},
    TypeInfo{11, "Q3_K", 256, 110}, TypeInfo{12, "Q4_K", 256, 144}, TypeInfo{13, "Q5_K", 256, 176}, TypeInfo{14, "Q6_K", 256, 210},
    TypeInfo{24, "I8", 1, 1},       TypeInfo{25, "I16", 1, 2},      TypeInfo{26, "I32", 1, 4},      TypeInfo{27, "I64", 1, 8},
    TypeInfo{28, "F64", 1, 8},      TypeInfo{30, "BF16", 1, 2},     TypeInfo{34, "TQ1_0", 256, 54}, TypeInfo{35, "TQ2_0", 256, 66},
};

const TypeInfo* info_of(std::uint32_t type) {
  const auto* found = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeInfo& t) { return t.type == type; });
  return found == kTypes.end() ? nullptr : found;
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  throw base::Error(fmt::format("{} {}", base::escape(path.string(), 1024), why));
}

[[noreturn]] void refuse_damaged(const std::filesystem::path& path, std::string_view why) {
  throw base::Damaged(
      fmt::format("{} is a damaged GGUF file: {}; copy it again, or export it anew", base::escape(path.string(), 1024), why));
}

std::uint64_t padded(std::uint64_t bytes, std::uint64_t alignment) { return (bytes + alignment - 1) / alignment * alignment; }

// Elements and bytes; nullopt beyond 2^62, or when the last dimension is no whole number of blocks.
std::optional<std::uint64_t> bytes_for(const std::vector<std::int64_t>& dims, const TypeInfo& type) {
  std::uint64_t elements = 1;
  for (const std::int64_t d : dims) {
    if (d < 0 || __builtin_mul_overflow(elements, static_cast<std::uint64_t>(d), &elements) || elements >= std::uint64_t{1} << 58)
      return std::nullopt;
  }
  if (static_cast<std::uint64_t>(dims.empty() ? 1 : dims.back()) % type.block != 0) return std::nullopt;
  return elements / type.block * type.bytes;
}

// Writing ------------------------------------------------------------------------------------------------------------------

class Bytes {
 public:
  template <class T>
  void number(T value) {
    append(&value, sizeof value);  // little endian, as every machine this runs on
  }
  void text(std::string_view value) {
    number(std::uint64_t{value.size()});
    append(value.data(), value.size());
  }
  void append(const void* from, std::size_t bytes) {
    const std::size_t at = out.size();
    out.resize(at + bytes);
    if (bytes > 0) std::memcpy(out.data() + at, from, bytes);
  }
  void pad(std::uint64_t alignment) { out.resize(static_cast<std::size_t>(padded(out.size(), alignment))); }

  std::vector<std::uint8_t> out;
};

bool fits_u32(std::int64_t value) { return value >= 0 && value <= std::numeric_limits<std::uint32_t>::max(); }

void put_value(Bytes& to, const std::string& key, const config::Value& value) {
  to.text(key);
  if (const auto* flag = std::get_if<bool>(&value)) {
    to.number(std::uint32_t{kBool});
    to.number(static_cast<std::uint8_t>(*flag ? 1 : 0));
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    to.number(std::uint32_t{fits_u32(*whole) ? kU32 : kI64});
    fits_u32(*whole) ? to.number(static_cast<std::uint32_t>(*whole)) : to.number(*whole);
  } else if (const auto* real = std::get_if<double>(&value)) {
    to.number(std::uint32_t{kF64});
    to.number(*real);
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    to.number(std::uint32_t{kString});
    to.text(*text);
  } else {
    const auto& list = std::get<std::vector<std::int64_t>>(value);
    to.number(std::uint32_t{kArray});
    to.number(std::uint32_t{kU32});
    to.number(std::uint64_t{list.size()});
    for (const std::int64_t item : list) {
      if (!fits_u32(item)) throw base::Error(fmt::format("{} holds {}, which no u32 holds", key, item));
      to.number(static_cast<std::uint32_t>(item));
    }
  }
}

// Reading ------------------------------------------------------------------------------------------------------------------

// Reads forward; every length is compared with what is left of the file first.
class Cursor {
 public:
  Cursor(const std::filesystem::path& path, const base::File& file) : path_(path), file_(file), size_(file.size()) {}

  std::uint64_t at() const { return at_; }
  std::uint64_t left() const { return size_ - at_; }
  void need(std::uint64_t bytes, std::string_view what) const {
    if (bytes > left())
      refuse_damaged(path_, fmt::format("{} of {} bytes at byte {}, where the file has {} left", what, bytes, at_, left()));
  }
  template <class T>
  T number(std::string_view what) {
    need(sizeof(T), what);
    std::array<std::uint8_t, sizeof(T)> raw{};
    file_.read_exactly_at(at_, raw);
    at_ += sizeof(T);
    T value;
    std::memcpy(&value, raw.data(), sizeof value);
    return value;
  }
  std::string text(std::string_view what, std::uint64_t longest) {
    const auto length = number<std::uint64_t>(what);
    need(length, what);
    if (length > longest) refuse_damaged(path_, fmt::format("{} of {} bytes; at most {} are allowed", what, length, longest));
    std::string out(static_cast<std::size_t>(length), '\0');
    file_.read_exactly_at(at_, {reinterpret_cast<std::uint8_t*>(out.data()), out.size()});
    at_ += length;
    return out;
  }
  void skip(std::uint64_t bytes, std::string_view what) {
    need(bytes, what);
    at_ += bytes;
  }

 private:
  const std::filesystem::path& path_;
  const base::File& file_;
  std::uint64_t size_, at_ = 0;
};

constexpr std::uint64_t kLongestValue = std::uint64_t{1} << 24;

std::string value_text(Cursor& in, const std::filesystem::path& path, std::uint32_t type, const std::string& key) {
  const std::string what = fmt::format("value of {}", base::escape(key, 80));
  switch (type) {
    case kU8:
      return fmt::format("{}", in.number<std::uint8_t>(what));
    case kI8:
      return fmt::format("{}", in.number<std::int8_t>(what));
    case kU16:
      return fmt::format("{}", in.number<std::uint16_t>(what));
    case kI16:
      return fmt::format("{}", in.number<std::int16_t>(what));
    case kU32:
      return fmt::format("{}", in.number<std::uint32_t>(what));
    case kI32:
      return fmt::format("{}", in.number<std::int32_t>(what));
    case kF32:
      return fmt::format("{}", in.number<float>(what));
    case kBool: {
      const auto value = in.number<std::uint8_t>(what);
      if (value > 1) refuse_damaged(path, fmt::format("{} is the flag {}", what, value));
      return value == 1 ? "true" : "false";
    }
    case kString:
      return in.text(what, kLongestValue);
    case kU64:
      return fmt::format("{}", in.number<std::uint64_t>(what));
    case kI64:
      return fmt::format("{}", in.number<std::int64_t>(what));
    case kF64:
      return fmt::format("{}", in.number<double>(what));
    case kArray:
      break;
    default:
      refuse_damaged(path, fmt::format("{} has the unknown type {}", what, type));
  }
  const auto element = in.number<std::uint32_t>(what);
  const auto count = in.number<std::uint64_t>(what);
  if (element == kArray || element > kF64) refuse_damaged(path, fmt::format("{} is an array of type {}", what, element));
  if (element != kString) {
    if (count > in.left() / kValueBytes[element]) refuse_damaged(path, fmt::format("{} has {} elements, beyond the file", what, count));
    in.skip(count * kValueBytes[element], what);
  } else {
    if (count > in.left() / sizeof(std::uint64_t)) refuse_damaged(path, fmt::format("{} has {} elements, beyond the file", what, count));
    for (std::uint64_t i = 0; i < count; ++i) (void)in.text(what, kLongestValue);
  }
  return fmt::format("{} elements", count);
}

void widen_tq2(std::span<const std::uint8_t> block, float* out) {
  std::uint16_t half = 0;
  std::memcpy(&half, block.data() + 64, sizeof half);
  const float scale = base::f32_from_f16(half);
  for (std::size_t i = 0; i < static_cast<std::size_t>(kTq2Block); ++i) {
    const std::size_t group = i / 128, lane = i % 32, shift = 2 * (i % 128 / 32);
    out[i] = static_cast<float>((block[32 * group + lane] >> shift & 3) - 1) * scale;
  }
}

}  // namespace

std::uint64_t gguf_bytes(const std::string& name, const std::vector<std::int64_t>& dims, GgufType type) {
  const auto bytes = bytes_for(dims, *info_of(static_cast<std::uint32_t>(type)));
  if (!bytes)
    throw base::Error(fmt::format("tensor {} has rows of {} values; TQ2_0 packs blocks of {}: use --dtype bf16, or --format dmexp", name,
                                  dims.empty() ? 1 : dims.back(), kTq2Block));
  return *bytes;
}

// Element 128 g + 32 n + m lies in bits 2n of byte 32 g + m, as code + 1.
void append_tq2_block(float scale, const std::int8_t* signs, std::vector<std::uint8_t>& out) {
  const std::size_t at = out.size();
  out.resize(at + kTq2BlockBytes);
  for (std::size_t i = 0; i < static_cast<std::size_t>(kTq2Block); ++i) {
    std::uint8_t& byte = out[at + 32 * (i / 128) + i % 32];
    byte = static_cast<std::uint8_t>(byte | ((signs[i] + 1) << (2 * (i % 128 / 32))));
  }
  const std::uint16_t half = base::f16_from_f32(scale);
  std::memcpy(out.data() + at + 64, &half, sizeof half);
}

std::uint64_t write_gguf(const std::filesystem::path& path, const GgufMetadata& metadata, const std::vector<GgufTensor>& tensors) {
  std::uint32_t crc = 0;
  Bytes data;
  std::vector<std::uint64_t> offsets;
  for (const GgufTensor& t : tensors) {
    if (t.name.empty() || t.name.size() > kLongestName || t.dims.size() > kMostDims || t.data.size() != gguf_bytes(t.name, t.dims, t.type))
      throw base::Error(fmt::format("tensor \"{}\" does not fit into GGUF (name of at most {} bytes, at most {} dims)",
                                    base::escape(t.name), kLongestName, kMostDims));
    offsets.push_back(data.out.size());
    data.append(t.data.data(), t.data.size());
    data.pad(kAlignment);
  }
  crc = base::crc32(data.out, crc);
  Bytes head;
  head.append(kMagic.data(), kMagic.size());
  head.number(kVersion);
  head.number(std::uint64_t{tensors.size()});
  head.number(std::uint64_t{metadata.size() + 2});
  for (const auto& [key, value] : metadata) put_value(head, key, value);
  put_value(head, "general.alignment", static_cast<std::int64_t>(kAlignment));
  put_value(head, std::string(kCrcKey), std::int64_t{crc});
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    head.text(tensors[i].name);
    head.number(static_cast<std::uint32_t>(tensors[i].dims.size()));
    for (auto d = tensors[i].dims.rbegin(); d != tensors[i].dims.rend(); ++d) head.number(static_cast<std::uint64_t>(*d));
    head.number(static_cast<std::uint32_t>(tensors[i].type));
    head.number(offsets[i]);
  }
  head.pad(kAlignment);
  base::write_file_atomically(path, [&](base::File& file) {
    file.write(head.out);
    file.write(data.out);
  });
  const GgufFile back(path);  // verifies the checksum
  return head.out.size() + data.out.size();
}

GgufFile::GgufFile(const std::filesystem::path& path) : path_(path) {
  require_regular(path, "a GGUF file", "give the file itself");
  file_ = std::make_shared<const base::File>(base::File::open_read(path));
  Cursor in(path_, *file_);
  std::array<std::uint8_t, 4> magic{};
  in.need(magic.size(), "its magic");
  file_->read_exactly_at(0, magic);
  if (!std::equal(magic.begin(), magic.end(), kMagic.begin())) refuse(path, "is not a GGUF file");
  in.skip(magic.size(), "its magic");
  const auto version = in.number<std::uint32_t>("its version");
  if (version != 2 && version != 3) refuse(path, fmt::format("is GGUF of version {}; 2 and 3 are read", version));
  const auto tensor_count = in.number<std::uint64_t>("its tensor count"), value_count = in.number<std::uint64_t>("its metadata count");
  // The shortest tensor takes 8 + 1 + 4 + 4 + 8 bytes, the shortest value 8 + 1 + 4 + 1.
  if (tensor_count > in.left() / 25 || value_count > in.left() / 14)
    refuse_damaged(path,
                   fmt::format("{} tensors and {} metadata values do not fit into its {} bytes", tensor_count, value_count, file_->size()));
  std::uint64_t alignment = kAlignment;
  std::optional<std::uint32_t> crc;
  std::set<std::string> names;
  for (std::uint64_t i = 0; i < value_count; ++i) {
    const std::string key = in.text("a metadata key", kLongestKey);
    if (key.empty() || !names.insert(key).second)
      refuse_damaged(path, fmt::format("the metadata key \"{}\" twice, or empty", base::escape(key, 80)));
    const auto type = in.number<std::uint32_t>("a metadata type");
    const std::string value = value_text(in, path, type, key);
    if (key == "general.alignment") {
      alignment = type == kU32 ? std::strtoull(value.c_str(), nullptr, 10) : 0;
      if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > kLargestAlignment)
        refuse_damaged(path, fmt::format("an alignment of {}", base::escape(value, 40)));
    }
    if (key == kCrcKey && type == kU32) crc = static_cast<std::uint32_t>(std::strtoull(value.c_str(), nullptr, 10));
    metadata_.emplace_back(key, value);
  }
  names.clear();
  std::uint64_t data = 0, end = 0;  // where the next tensor must begin; where the last one ends
  for (std::uint64_t i = 0; i < tensor_count; ++i) {
    Entry entry;
    entry.name = in.text("a tensor name", kLongestName);
    const std::string shown = base::escape(entry.name, 80);
    if (!names.insert(entry.name).second) refuse_damaged(path, fmt::format("tensor \"{}\" stands there twice", shown));
    const auto rank = in.number<std::uint32_t>("a tensor's rank");
    if (rank > kMostDims) refuse_damaged(path, fmt::format("tensor \"{}\" has {} dims", shown, rank));
    for (std::uint32_t d = 0; d < rank; ++d) entry.dims.push_back(in.number<std::int64_t>("a dim"));
    std::reverse(entry.dims.begin(), entry.dims.end());
    entry.type = in.number<std::uint32_t>("a tensor's type");
    const TypeInfo* type = info_of(entry.type);
    if (type == nullptr) refuse(path, fmt::format("holds tensor \"{}\" of ggml type {}, which dormouse does not know", shown, entry.type));
    entry.type_name = type->name;
    const auto bytes = bytes_for(entry.dims, *type);
    if (!bytes) refuse_damaged(path, fmt::format("tensor \"{}\" has impossible dims", shown));
    entry.offset = in.number<std::uint64_t>("a tensor's offset");
    if (entry.offset != data) refuse_damaged(path, fmt::format("tensor \"{}\" begins at {}, not at {}", shown, entry.offset, data));
    if (*bytes > file_->size()) refuse_damaged(path, fmt::format("tensor \"{}\" has {} bytes, more than the file", shown, *bytes));
    end = data + *bytes;
    data = padded(end, alignment);
    if (data > file_->size() + alignment) refuse_damaged(path, fmt::format("tensor \"{}\" ends beyond the file", shown));
    entries_.push_back(std::move(entry));
  }
  const std::uint64_t begin = padded(in.at(), alignment);
  const std::uint64_t size = file_->size();
  if (begin + data != size && begin + end != size)  // some writers leave the last padding out
    refuse_damaged(path, fmt::format("it has {} bytes; its tensors end at {}", size, begin + data));
  for (Entry& entry : entries_) entry.offset += begin;
  has_checksum_ = crc.has_value();
  if (!crc) return;
  std::uint32_t found = 0;
  base::for_chunks(*file_, begin, size - begin,
                   [&](std::uint64_t, std::span<const std::uint8_t> chunk) { found = base::crc32(chunk, found); });
  if (found != *crc) refuse_damaged(path, fmt::format("its tensors have CRC {:08x}, not {:08x}", found, *crc));
}

std::vector<float> GgufFile::read(const Entry& entry) const {
  const TypeInfo* type = info_of(entry.type);
  const std::uint64_t bytes = *bytes_for(entry.dims, *type);
  std::vector<std::uint8_t> raw(static_cast<std::size_t>(bytes));
  file_->read_exactly_at(entry.offset, raw);
  const std::size_t count = static_cast<std::size_t>(bytes / type->bytes * type->block);
  std::vector<float> out(count);
  for (std::size_t i = 0; i < count; i += static_cast<std::size_t>(type->block)) {
    std::uint16_t half = 0;
    switch (static_cast<GgufType>(entry.type)) {
      case GgufType::f32:
        std::memcpy(&out[i], raw.data() + 4 * i, sizeof(float));
        continue;
      case GgufType::f16:
        std::memcpy(&half, raw.data() + 2 * i, sizeof half);
        out[i] = base::f32_from_f16(half);
        continue;
      case GgufType::bf16:
        std::memcpy(&half, raw.data() + 2 * i, sizeof half);
        out[i] = base::f32_from_bf16(half);
        continue;
      case GgufType::tq2_0:
        widen_tq2(std::span(raw).subspan(i / 256 * kTq2BlockBytes, kTq2BlockBytes), &out[i]);
        continue;
    }
    refuse(path_, fmt::format("holds tensor \"{}\" as {}, whose values dormouse does not read", base::escape(entry.name, 80), type->name));
  }
  return out;
}

}  // namespace dormouse::format
