#include "format/dmexp_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "config/toml.h"

namespace dormouse::format {

namespace {

using config::to_toml;
using config::Value;

constexpr std::string_view kCommentStart = "#crc32:";
constexpr std::size_t kCommentBytes = 16;
constexpr std::string_view kTensorHeading = "[[tensors]]";
constexpr std::uint64_t kLargestTotal = std::uint64_t{1} << 62;
// A TOML value takes some hundred bytes in memory and can be written in two: what a header of N tensors can need is bounded by N.
constexpr std::size_t kMostTensors = 65536, kItemsPerTensor = 16, kFreeItems = 4096;

std::uint64_t padded(std::uint64_t bytes) { return (bytes + kDmexpAlignment - 1) / kDmexpAlignment * kDmexpAlignment; }

std::string dims_text(const std::vector<std::int64_t>& dims) { return to_toml(Value(dims)); }

[[noreturn]] void refuse(std::string_view where, std::string_view why) {
  throw base::Error(fmt::format("{}: {}", base::escape(where, 1024), why));
}

[[noreturn]] void refuse_damaged(std::string_view where, std::string_view why) {
  throw base::Damaged(fmt::format("{} is damaged: {}; copy it again, or export it anew", base::escape(where, 1024), why));
}

// Takes keys out of a table, so that what stays is unknown.
class Keys {
 public:
  Keys(config::Table& table, std::string owner, std::string_view where) : table_(&table), owner_(std::move(owner)), where_(where) {}

  bool has(const std::string& key) const { return table_->contains(key); }

  std::string text(const std::string& key) {
    const Value value = take(key);
    const auto* found = std::get_if<std::string>(&value);
    if (found == nullptr) wrong(key, "a string");
    return *found;
  }
  std::int64_t whole(const std::string& key) {
    const Value value = take(key);
    const auto* found = std::get_if<std::int64_t>(&value);
    if (found == nullptr || *found < 0) wrong(key, "a whole number, not negative");
    return *found;
  }
  double number(const std::string& key) {
    const Value value = take(key);
    double out = -1;
    if (const auto* real = std::get_if<double>(&value)) out = *real;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) out = static_cast<double>(*whole);
    if (!std::isfinite(out) || out < 0) wrong(key, "a finite number, not negative");
    return out;
  }
  std::vector<std::int64_t> list(const std::string& key) {
    const Value value = take(key);
    const auto* found = std::get_if<std::vector<std::int64_t>>(&value);
    if (found == nullptr) wrong(key, "a list of whole numbers");
    return *found;
  }
  void end() const {
    if (!table_->empty()) refuse(where_, fmt::format("{} has the unknown key \"{}\"", owner_, base::escape(table_->begin()->first, 80)));
  }
  [[noreturn]] void wrong(const std::string& key, std::string_view expected) const {
    refuse(where_, fmt::format("{} of {} is not {}", key, owner_, expected));
  }

 private:
  Value take(const std::string& key) {
    auto node = table_->extract(key);
    if (node.empty()) refuse(where_, fmt::format("{} has no `{}`", owner_, key));
    return std::move(node.mapped());
  }

  config::Table* table_;
  std::string owner_;
  std::string_view where_;
};

// Checks the comment at the end; false when there is none.
bool check_comment(std::string_view text, std::string_view where) {
  const bool long_enough = text.size() >= kCommentBytes;
  const std::string_view tail = long_enough ? text.substr(text.size() - kCommentBytes) : std::string_view();
  if (!tail.starts_with(kCommentStart) || tail.back() != '\n') {
    const std::size_t end = text.find_last_not_of('\n');
    const std::size_t line = end == std::string_view::npos ? 0 : text.rfind('\n', end) + 1;  // npos + 1 = 0
    if (line < text.size() && text[line] == '#') refuse_damaged(where, "its header ends in a comment that is not its checksum");
    return false;
  }
  const std::string_view digits = tail.substr(kCommentStart.size(), 8);
  const std::string_view body = text.substr(0, text.size() - kCommentBytes);
  const std::string expected = fmt::format("{:08x}", base::crc32(base::bytes_of(body)));
  if (digits != expected || !body.ends_with('\n') || (kDmexpFixed + text.size()) % kDmexpAlignment != 0)
    refuse_damaged(where, fmt::format("its header has CRC {}, not {}", expected, base::escape(digits)));
  return true;
}

void bound_items(std::string_view text, std::string_view where) {
  std::size_t tensors = 0, items = 0;
  for (std::size_t at = text.find(kTensorHeading); at != std::string_view::npos; at = text.find(kTensorHeading, at + 1)) ++tensors;
  for (const char c : text) items += c == ',' || c == '=' || c == '[' || c == '{' ? 1 : 0;
  if (tensors > kMostTensors) refuse(where, fmt::format("its header lists {} tensors; at most {} are read", tensors, kMostTensors));
  if (items > kFreeItems + kItemsPerTensor * tensors)
    refuse(where, fmt::format("its header holds {} values for {} tensors", items, tensors));
}

Storage storage_of(std::string_view name, int version, std::string_view owner, std::string_view where) {
  const auto storage = storage_named(name);
  if (!storage || (version == 1 && has_scales(*storage)))
    refuse(where, fmt::format("{} has the dtype \"{}\", which version {} does not know", owner, base::escape(name, 40), version));
  return *storage;
}

DmexpEntry parse_entry(config::Table& table, std::size_t index, const DmexpHeader& header, std::string_view where) {
  DmexpEntry entry;
  Keys keys(table, fmt::format("tensor {} of its header", index), where);
  entry.name = keys.text("name");
  const std::string owner = fmt::format("tensor \"{}\"", base::escape(entry.name, 80));
  keys = Keys(table, owner, where);
  PackedShape& shape = entry.shape;
  shape.dims = keys.list("dims");
  if (shape.dims.empty() || shape.dims.size() > 4) refuse(where, fmt::format("{} has {} dims; 1 to 4 are known", owner, shape.dims.size()));
  shape.storage = storage_of(header.version == 1 ? header.dtype : keys.text("dtype"), header.version, owner, where);
  if (has_scales(shape.storage)) {
    const auto axis = scales_named(keys.text("scales"));
    if (!axis || *axis == Scales::none) keys.wrong("scales", "\"rows\" or \"columns\"");
    shape.axis = *axis;
    if (shape.dims.size() != 2)
      refuse(where, fmt::format("{} is {} with {} dims, not 2", owner, name_of(shape.storage), shape.dims.size()));
  }
  if (!is_countable(shape)) refuse(where, fmt::format("{} has impossible dims {}", owner, base::escape(dims_text(shape.dims), 100)));
  if (keys.whole("overflowed") != 0) keys.wrong("overflowed", "0");
  keys.end();
  return entry;
}

}  // namespace

bool lay_out(DmexpHeader& header) {
  std::uint64_t at = 0;
  header.num_params = 0;
  for (DmexpEntry& entry : header.tensors) {
    const std::uint64_t codes = entry.shape.code_bytes();
    const std::uint64_t scales = static_cast<std::uint64_t>(entry.shape.scale_count()) * sizeof(float);
    entry.codes_at = at;
    entry.scales_at = at + (header.version == 1 ? codes : padded(codes));
    at = entry.scales_at + (header.version == 1 ? 0 : padded(scales));
    header.num_params += entry.shape.size();
    if (at > kLargestTotal || header.num_params < 0) return false;
  }
  header.payload_bytes = at;
  return true;
}

std::string write_dmexp_header(const DmexpHeader& header) {
  std::string text;
  const auto put = [&](std::string_view key, const Value& value) { text += fmt::format("{} = {}\n", key, to_toml(value)); };
  put("format", std::int64_t{header.version});
  put("dtype", header.dtype);
  put("source", header.source);
  put("step", header.step);
  put("num_params", header.num_params);
  put("num_tensors", static_cast<std::int64_t>(header.tensors.size()));
  put("flushed", header.flushed);
  put("max_abs", header.max_abs);
  put("min_nonzero_abs", header.min_nonzero_abs);
  if (header.bpb) put("bpb", *header.bpb);
  if (header.window) put("window", *header.window);
  put("config", header.config);
  for (const DmexpEntry& entry : header.tensors) {
    text += fmt::format("\n{}\n", kTensorHeading);
    put("name", entry.name);
    put("dims", entry.shape.dims);
    if (header.version == 2) put("dtype", std::string(name_of(entry.shape.storage)));
    if (has_scales(entry.shape.storage)) put("scales", std::string(name_of(entry.shape.axis)));
    put("overflowed", std::int64_t{0});
  }
  while ((kDmexpFixed + text.size() + kCommentBytes) % kDmexpAlignment != 0) text += '\n';
  return text + fmt::format("{}{:08x}\n", kCommentStart, base::crc32(base::bytes_of(text)));
}

DmexpHeader parse_dmexp_header(std::string_view text, int version, std::string_view where) {
  DmexpHeader header;
  header.version = version;
  header.has_checksum = check_comment(text, where);
  if (!header.has_checksum && version != 1) refuse_damaged(where, "its header has no checksum");
  bound_items(text, where);
  config::Document document = config::parse_document(text, std::string(where) + " (header)");

  Keys keys(document.values, "its header", where);
  if (keys.whole("format") != version) refuse(where, fmt::format("its header gives another format than its version byte, {}", version));
  header.dtype = keys.text("dtype");
  const Storage storage = storage_of(header.dtype, version, "its header", where);
  if (version == 2 && !has_scales(storage)) keys.wrong("dtype", "\"int8\" or \"ternary\"");
  header.source = keys.text("source");
  header.step = keys.whole("step");
  const std::int64_t num_params = keys.whole("num_params"), num_tensors = keys.whole("num_tensors");
  header.flushed = keys.whole("flushed");
  header.max_abs = keys.number("max_abs");
  header.min_nonzero_abs = keys.number("min_nonzero_abs");
  if (keys.has("bpb")) header.bpb = keys.number("bpb");
  if (keys.has("window")) header.window = keys.whole("window");
  header.config = keys.text("config");
  keys.end();

  std::set<std::string> names;
  for (auto& [name, tables] : document.lists) {
    if (name != "tensors") refuse(where, fmt::format("its header has the unknown key \"{}\"", base::escape(name, 80)));
    for (config::Table& table : tables) {
      header.tensors.push_back(parse_entry(table, header.tensors.size(), header, where));
      const std::string& entry = header.tensors.back().name;
      if (!names.insert(entry).second) refuse(where, fmt::format("tensor \"{}\" stands there twice", base::escape(entry, 80)));
    }
  }
  if (static_cast<std::uint64_t>(num_tensors) != header.tensors.size())
    refuse(where, fmt::format("its header says {} tensors and lists {}", num_tensors, header.tensors.size()));
  if (!lay_out(header)) refuse(where, "its tensors together go beyond 2^62 bytes");
  if (num_params != header.num_params)
    refuse(where, fmt::format("its header says {} parameters, its tensors have {}", num_params, header.num_params));
  return header;
}

}  // namespace dormouse::format
