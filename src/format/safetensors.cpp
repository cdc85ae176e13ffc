#include "format/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "format/header.h"
#include "format/kind.h"

namespace dormouse::format {

namespace {

using tensor::Dtype;
using tensor::Tensor;

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeader = 100'000'000;  // the limit of the reference implementation
constexpr std::size_t kHeadBytes = 64;
constexpr std::string_view kCrcKey = "crc32";
constexpr std::string_view kHeaderCrcKey = "crc32_header";
// Raw quotes cannot stand inside a JSON string, so this text is the key itself and nothing else.
constexpr std::string_view kHeaderCrcText = R"("crc32_header":")";
constexpr std::string_view kNoDigits = "00000000";

struct DtypeName {
  Dtype dtype;
  std::string_view name;
};
// In the order of the file: widest first, so that every tensor is aligned to its element.
constexpr std::array<DtypeName, 6> kDtypes{
    {{Dtype::f64, "F64"}, {Dtype::f32, "F32"}, {Dtype::u32, "U32"}, {Dtype::bf16, "BF16"}, {Dtype::f16, "F16"}, {Dtype::u8, "U8"}}};

std::size_t place_of(Dtype dtype) {
  return static_cast<std::size_t>(std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeName& d) { return d.dtype == dtype; }) -
                                  kDtypes.begin());
}

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  throw base::Error(fmt::format("{} {}", base::escape(path.string(), 300), why));
}

// The file was once whole, by all appearance.
[[noreturn]] void refuse_damaged(const std::filesystem::path& path, std::string_view why) {
  throw base::Damaged(fmt::format("{} {}", base::escape(path.string(), 300), why));
}

constexpr std::string_view kAdvice = "give a run directory or a checkpoint.safetensors";
constexpr std::string_view kEarlier = "use an earlier save (previous, best or stable.safetensors of the run)";

using base::bytes_of;

std::span<const std::uint8_t> bytes_of(const Tensor& value) {
  return {reinterpret_cast<const std::uint8_t*>(value.bytes()), static_cast<std::size_t>(value.size()) * tensor::size_of(value.dtype())};
}

std::optional<std::uint32_t> parse_crc(std::string_view digits) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
  const bool upper = std::any_of(digits.begin(), digits.end(), [](char c) { return c >= 'A' && c <= 'F'; });
  if (digits.size() != kNoDigits.size() || error != std::errc{} || end != digits.data() + digits.size() || upper) return std::nullopt;
  return value;
}

// Writing ------------------------------------------------------------------------------------------------------------------

std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw base::Error(fmt::format("\"{}\" is not UTF-8; a safetensors header holds UTF-8 only", base::escape(text)));
  }
}

std::vector<NamedTensor> in_file_order(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  std::vector<NamedTensor> out = tensors;
  std::set<std::string_view> names;
  for (const NamedTensor& t : tensors) {
    const auto bad = [&](std::string_view why) {
      refuse(path, fmt::format("was not written: tensor \"{}\" {}", base::escape(t.name), why));
    };
    if (!t.value.defined()) bad("has no storage");
    if (t.name.empty() || t.name == "__metadata__" || t.name.find_first_of("=;") != std::string::npos)
      bad("needs another name (not empty, not __metadata__, no '=' or ';')");
    if (!names.insert(t.name).second) bad("stands there twice");
  }
  for (NamedTensor& t : out)
    if (!t.value.contiguous()) t.value = t.value.clone();
  std::stable_sort(out.begin(), out.end(), [](const NamedTensor& a, const NamedTensor& b) {
    const std::size_t pa = place_of(a.value.dtype());
    const std::size_t pb = place_of(b.value.dtype());
    return pa != pb ? pa < pb : a.name < b.name;
  });
  return out;
}

// The header with its own CRC in place, padded with spaces to a multiple of 8.
std::string header_text(const std::vector<NamedTensor>& tensors, const std::map<std::string, std::string>& metadata) {
  std::string crcs;
  for (const NamedTensor& t : tensors) crcs += fmt::format("{}={:08x};", t.name, base::crc32(bytes_of(t.value)));
  std::string out = fmt::format(R"({{"__metadata__":{{{}{}","{}":{})", kHeaderCrcText, kNoDigits, kCrcKey, json_string(crcs));
  for (const auto& [key, value] : metadata) {
    if (key == kCrcKey || key == kHeaderCrcKey) throw base::Error(fmt::format("the metadata key {} belongs to the file writer", key));
    out += fmt::format(",{}:{}", json_string(key), json_string(value));
  }
  out += "}";
  std::uint64_t offset = 0;
  for (const NamedTensor& t : tensors) {
    const std::uint64_t end = offset + bytes_of(t.value).size();
    out += fmt::format(R"(,{}:{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", json_string(t.name),
                       kDtypes[place_of(t.value.dtype())].name, t.value.shape().text(), offset, end);
    offset = end;
  }
  out += "}";
  out.resize((out.size() + 7) / 8 * 8, ' ');
  const std::string digits = fmt::format("{:08x}", base::crc32(bytes_of(out)));
  out.replace(out.find(kHeaderCrcText) + kHeaderCrcText.size(), digits.size(), digits);
  return out;
}

// Reading ------------------------------------------------------------------------------------------------------------------

std::string read_header(const std::filesystem::path& path, const base::File& file, std::uint64_t size) {
  std::array<std::uint8_t, kHeadBytes> buffer{};
  const std::span<std::uint8_t> head(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(size, kHeadBytes)));
  if (size == 0) refuse_damaged(path, "is empty (0 bytes); give a run directory or a checkpoint.safetensors");
  file.read_exactly_at(0, head);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(kLengthBytes, head.size()); ++i) length |= std::uint64_t{head[i]} << (8 * i);
  const auto opens = [](std::uint8_t c) { return c == '{' || c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  // A gzip header can pass for a length: what follows it must look like the start of JSON.
  const bool plausible = length <= kMaxHeader && (head.size() <= kLengthBytes || opens(head[kLengthBytes]));
  if (!plausible || size < kLengthBytes) {
    const Recognised what = recognise(head);
    if (!what.what.empty())
      refuse(path, fmt::format("is {}, not a checkpoint; {}", what.what, what.way_out.empty() ? kAdvice : what.way_out));
  }
  if (size < kLengthBytes) refuse_damaged(path, fmt::format("is too short for a safetensors file ({} bytes); copy it again", size));
  if (!plausible)
    refuse_damaged(path, "is not a safetensors file (no JSON header at its beginning); give a run directory or a checkpoint.safetensors");
  if (length > size - kLengthBytes)
    refuse_damaged(
        path, fmt::format("is cut short: {} of at least {} bytes (its header is incomplete); copy it again or use an earlier save", size,
                          kLengthBytes + length));
  std::string text(static_cast<std::size_t>(length), '\0');
  file.read_exactly_at(kLengthBytes, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  return text;
}

// Bytes that an entry's shape and dtype ask for; nullopt when beyond 64 bits.
std::optional<std::uint64_t> bytes_for(const std::vector<std::int64_t>& dims, std::size_t width) {
  std::uint64_t bytes = width;
  for (const std::int64_t d : dims)
    if (__builtin_mul_overflow(bytes, static_cast<std::uint64_t>(d), &bytes)) return std::nullopt;
  return bytes;
}

void check_header_crc(const std::filesystem::path& path, std::string text, const std::string& digits) {
  const auto expected = parse_crc(digits);
  const std::size_t at = text.find(kHeaderCrcText);
  if (expected && at != std::string::npos) {
    text.replace(at + kHeaderCrcText.size(), kNoDigits.size(), kNoDigits);
    if (base::crc32(bytes_of(text)) == *expected) return;
  }
  refuse_damaged(path,
                 fmt::format("is damaged: its header does not match its checksum; {}. If another program rewrote it on purpose, remove "
                             "the metadata keys crc32 and crc32_header",
                             kEarlier));
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata, const std::filesystem::path& previous) {
  const std::vector<NamedTensor> ordered = in_file_order(path, tensors);
  const std::string header = header_text(ordered, metadata);
  if (header.size() > kMaxHeader)
    refuse(path, fmt::format("was not written: a header of {} bytes is above the format's limit", header.size()));
  std::array<std::uint8_t, kLengthBytes> length{};
  base::store_little(length.data(), std::uint64_t{header.size()});
  const auto write = [&](base::File& file) {
    file.write(length);
    file.write(bytes_of(header));
    for (const NamedTensor& t : ordered) file.write(bytes_of(t.value));
  };
  if (previous.empty()) {
    base::write_file_atomically(path, write);
  } else {
    base::write_file_keeping(path, previous, write);
  }
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : path_(path) {
  require_regular(path, "a safetensors file", "give the file in it (a run has checkpoint.safetensors)");
  file_ = std::make_shared<const base::File>(base::File::open_read(path));
  const std::uint64_t size = file_->size();
  std::string text = read_header(path, *file_, size);
  Header header = parse_header(text);
  if (!header.problem.empty())
    refuse_damaged(path, fmt::format("is not a safetensors file, or damaged: its header {}; use an earlier save", header.problem));

  const std::uint64_t data = kLengthBytes + text.size();
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const HeaderEntry& a, const HeaderEntry& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t at = 0;
  for (HeaderEntry& e : header.entries) {
    const auto bad = [&](std::string_view why) {
      refuse_damaged(path, fmt::format("is a damaged safetensors file: tensor \"{}\" {}", base::escape(e.name), why));
    };
    const auto dtype = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeName& d) { return d.name == e.dtype; });
    if (dtype == kDtypes.end())
      refuse(path, fmt::format("holds tensor \"{}\" of dtype {}, which dormouse does not read (F64, F32, U32, BF16, F16, U8); convert it",
                               base::escape(e.name), base::escape(e.dtype, 20)));
    if (e.begin != at) bad(fmt::format("begins at byte {} of the data, not at {} (a hole or an overlap)", e.begin, at));
    if (e.end < e.begin) bad(fmt::format("ends at byte {}, before it begins at {}", e.end, e.begin));
    const auto wanted = bytes_for(e.dims, tensor::size_of(dtype->dtype));
    if (!wanted) bad("has a shape beyond 64 bits");
    if (*wanted != e.end - e.begin) bad(fmt::format("has {} bytes, its shape needs {}", e.end - e.begin, *wanted));
    at = e.end;
    if (at > UINT64_MAX - data) bad("ends beyond 64 bits");
    entries_.push_back({std::move(e.name), dtype->dtype, std::move(e.dims), data + e.begin, data + e.end});
  }
  if (data + at > size) refuse_damaged(path, fmt::format("is cut short: {} of {} bytes; copy it again or {}", size, data + at, kEarlier));
  if (data + at < size) refuse_damaged(path, fmt::format("has {} bytes after its last tensor; copy it again", size - data - at));

  metadata_ = std::move(header.metadata);
  take_checksums(std::move(text));
}

// Moves the two CRC keys out of the metadata, checks the header's and keeps the tensors'.
void SafetensorsFile::take_checksums(std::string header) {
  const auto take = [&](std::string_view key) -> std::optional<std::string> {
    const auto node = metadata_.extract(std::string(key));
    return node.empty() ? std::nullopt : std::optional<std::string>(node.mapped());
  };
  const auto list = take(kCrcKey);
  const auto own = take(kHeaderCrcKey);
  if (!list && !own) return;
  if (!list || !own)
    refuse_damaged(path_, fmt::format("is damaged: of its metadata keys crc32 and crc32_header only {} is there; use an earlier save",
                                      list ? kCrcKey : kHeaderCrcKey));
  check_header_crc(path_, std::move(header), *own);
  std::string_view rest = *list;
  while (!rest.empty()) {
    const std::size_t end = rest.find(';');
    const std::string_view item = rest.substr(0, end);
    const std::size_t equals = item.find('=');
    const auto crc = equals == std::string_view::npos ? std::nullopt : parse_crc(item.substr(equals + 1));
    if (end == std::string_view::npos || !crc || !crc_.emplace(item.substr(0, equals), *crc).second)
      refuse_damaged(path_, fmt::format("is damaged: its checksum list breaks at \"{}\"", base::escape(item, 60)));
    rest.remove_prefix(end + 1);
  }
  for (const Entry& e : entries_)
    if (crc_.count(e.name) == 0) refuse_damaged(path_, fmt::format("is damaged: tensor \"{}\" has no checksum", base::escape(e.name)));
  if (crc_.size() != entries_.size()) refuse_damaged(path_, "is damaged: it has checksums of tensors that it does not hold");
}

std::string SafetensorsFile::Entry::dims_text() const {
  std::string text = "[";
  for (std::size_t i = 0; i < dims.size(); ++i) text += (i > 0 ? "," : "") + std::to_string(dims[i]);
  return text + "]";
}

Tensor SafetensorsFile::read(const Entry& entry) const {
  Tensor value = Tensor::empty(tensor::Shape(std::span<const std::int64_t>(entry.dims)), entry.dtype);
  const std::span<std::uint8_t> bytes(reinterpret_cast<std::uint8_t*>(value.bytes()), static_cast<std::size_t>(entry.end - entry.begin));
  file_->read_exactly_at(entry.begin, bytes);
  if (const auto expected = crc_.find(entry.name); expected != crc_.end()) {
    const std::uint32_t found = base::crc32(bytes);
    if (found != expected->second)
      refuse_damaged(path_, fmt::format("is damaged: tensor \"{}\" has CRC {:08x}, not {:08x}; {} or copy it again",
                                        base::escape(entry.name), found, expected->second, kEarlier));
  }
  return value;
}

const SafetensorsFile::Entry* SafetensorsFile::find(const std::string& name) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& e) { return e.name == name; });
  return found == entries_.end() ? nullptr : &*found;
}

}  // namespace dormouse::format
