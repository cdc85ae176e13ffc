#include "format/dmexp.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "base/bytes.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/shell.h"
#include "base/units.h"
#include "format/kind.h"
#include "format/safetensors.h"
#include "tensor/pool.h"

namespace dormouse::format {

namespace {

constexpr std::string_view kMagic = "DMEXPRT";
constexpr std::string_view kAdvice = "give an export (.dmexp), or a run directory that has its model.dmexp";
constexpr std::size_t kHeadBytes = 64;  // enough to name a file of another kind

[[noreturn]] void refuse(const std::filesystem::path& path, std::string_view why) {
  throw base::Error(fmt::format("{} {}", base::escape(path.string(), 1024), why));
}

[[noreturn]] void refuse_damaged(const std::filesystem::path& path, std::string_view why) {
  throw base::Damaged(fmt::format("{} is damaged: {}; copy it again, or export it anew", base::escape(path.string(), 1024), why));
}

std::vector<std::uint8_t> head_and_header(const DmexpImage& image) {
  const std::string header = write_dmexp_header(image.header);
  if (header.size() > kDmexpLargestHeader)
    throw base::Error(fmt::format("an export header of {} bytes is above the format's limit", header.size()));
  std::vector<std::uint8_t> out(kDmexpFixed);
  std::copy(kMagic.begin(), kMagic.end(), out.begin());
  out[7] = static_cast<std::uint8_t>(image.header.version);
  base::store_little(out.data() + 8, static_cast<std::uint32_t>(header.size()));
  base::store_little(out.data() + 12, image.header.payload_bytes);
  base::store_little(out.data() + 20, base::crc32(image.payload));
  const auto text = base::bytes_of(header);
  out.insert(out.end(), text.begin(), text.end());
  return out;
}

// Names a file that does not begin as an export does, and the command that makes one of it.
[[noreturn]] void refuse_other(const std::filesystem::path& path, std::uint64_t size, std::span<const std::uint8_t> head) {
  const Recognised what = recognise(head);
  if (what.kind == Kind::safetensors) {
    const SafetensorsFile file(path);
    const auto kind = file.metadata().find("dormouse.kind");
    const std::string command = fmt::format("convert it: {} export {}", base::program(), base::shell_word(path.string()));
    const std::string bytes = base::human_bytes(size);
    if (kind == file.metadata().end()) refuse(path, fmt::format("is a safetensors file of another program, not an export; {}", kAdvice));
    if (kind->second == "checkpoint")
      refuse(path, fmt::format("is a training checkpoint ({}, with optimizer state), not an export; {}", bytes, command));
    if (kind->second == "weights")
      refuse(path, fmt::format("holds the weights of a run ({}, for eval), not an export; {}", bytes, command));
    refuse(path, fmt::format("is a safetensors model ({}), not an export; {}", bytes, command));
  }
  if (what.kind == Kind::gguf)
    refuse(path, "is a GGUF model, which dormouse writes for other programs and does not load; export the run it came from as .dmexp");
  if (head.empty()) refuse_damaged(path, "it is empty (0 bytes)");
  if (what.kind == Kind::unknown) refuse(path, fmt::format("is no dormouse export; {}", kAdvice));
  refuse(path, fmt::format("is {}, not an export; {}", what.what, what.way_out.empty() ? kAdvice : what.way_out));
}

void require_zero(const std::filesystem::path& path, std::span<const std::uint8_t> padding, const std::string& name) {
  if (std::any_of(padding.begin(), padding.end(), [](std::uint8_t b) { return b != 0; }))
    refuse(path, fmt::format("has padding that is not zero behind tensor \"{}\"; no writer of the format leaves that", base::escape(name)));
}

}  // namespace

DmexpImage narrow(const DmexpInfo& info, const std::vector<DmexpTensor>& tensors) {
  DmexpImage image;
  DmexpHeader& header = image.header;
  const auto recipe = storage_named(info.dtype);
  if (!recipe) throw base::Error(fmt::format("dtype \"{}\" is not one an export can have", base::escape(info.dtype)));
  header.version = has_scales(*recipe) ? 2 : 1;
  header.dtype = info.dtype;
  header.source = info.source;
  header.step = info.step;
  header.bpb = info.bpb;
  header.window = info.window;
  header.config = info.config;
  for (const DmexpTensor& t : tensors) {
    const auto dims = t.value.shape().dims();
    header.tensors.push_back({t.name, {{dims.begin(), dims.end()}, t.storage, t.axis}, 0, 0});
  }
  if (!lay_out(header)) throw base::Error("an export of more than 2^62 bytes cannot be written");
  image.payload.resize(static_cast<std::size_t>(header.payload_bytes));
  PackStats stats;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const DmexpEntry& entry = header.tensors[i];
    const std::span<const float> values(tensors[i].value.data<float>(), static_cast<std::size_t>(entry.shape.size()));
    std::vector<float> scales(static_cast<std::size_t>(entry.shape.scale_count()));
    const std::span<std::uint8_t> payload(image.payload);
    const std::int64_t bad = pack(entry.shape, values, payload.subspan(entry.codes_at, entry.shape.code_bytes()), scales, stats);
    if (bad >= 0) {
      const float value = values[static_cast<std::size_t>(bad)];
      const std::string where = fmt::format("tensor {} holds {} at element {}", entry.name, value, bad);
      if (!(std::abs(value) <= std::numeric_limits<float>::max()))
        throw base::Error(fmt::format("{}, which is not finite; export another checkpoint of the run (--best)", where));
      throw base::Error(fmt::format("{}, beyond what {} can hold{}", where, name_of(entry.shape.storage),
                                    entry.shape.storage == Storage::f16 ? " (65504); use --dtype bf16" : " (3.3895e38); use --dtype f32"));
    }
    if (!scales.empty()) std::memcpy(image.payload.data() + entry.scales_at, scales.data(), scales.size() * sizeof(float));
  }
  header.flushed = stats.flushed;
  header.max_abs = static_cast<double>(stats.max_abs);
  header.min_nonzero_abs = static_cast<double>(stats.min_nonzero_abs);
  image.inexact = stats.inexact;
  return image;
}

std::uint64_t write_dmexp(const std::filesystem::path& path, const DmexpImage& image) {
  const std::vector<std::uint8_t> head = head_and_header(image);
  base::write_file_atomically(path, [&](base::File& file) {
    file.write(head);
    file.write(image.payload);
  });
  const DmexpFile back(path);
  const base::File file = base::File::open_read(path);
  bool same = file.size() == head.size() + image.payload.size() && back.header().payload_bytes == image.payload.size();
  const auto compare = [&](std::uint64_t at, std::span<const std::uint8_t> wanted) {
    base::for_chunks(file, at, wanted.size(), [&](std::uint64_t done, std::span<const std::uint8_t> chunk) {
      same = same && std::equal(chunk.begin(), chunk.end(), wanted.begin() + static_cast<std::ptrdiff_t>(done));
    });
  };
  if (same) compare(0, head);
  if (same) compare(head.size(), image.payload);
  if (!same) refuse_damaged(path, "it reads back as other bytes than were written");
  return head.size() + image.payload.size();
}

DmexpFile::DmexpFile(const std::filesystem::path& path) : path_(path) {
  require_regular(path, "an export", kAdvice);
  file_ = std::make_shared<const base::File>(base::File::open_read(path));
  size_ = file_->size();
  std::array<std::uint8_t, kHeadBytes> buffer{};
  const std::span<std::uint8_t> head(buffer.data(), static_cast<std::size_t>(std::min<std::uint64_t>(size_, kHeadBytes)));
  file_->read_exactly_at(0, head);
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  if (!text.starts_with(kMagic)) refuse_other(path, size_, head);
  if (size_ < kDmexpFixed) refuse_damaged(path, fmt::format("it is cut short ({} bytes)", size_));
  const int version = head[7];
  if (version != 1 && version != 2)
    refuse(path, fmt::format("is a dormouse export of version {}; this program reads 1 and 2: use the version that wrote it", version));
  const std::uint64_t length = base::load_little<std::uint32_t>(head.data() + 8),
                      payload = base::load_little<std::uint64_t>(head.data() + 12);
  payload_crc_ = base::load_little<std::uint32_t>(head.data() + 20);
  payload_at_ = kDmexpFixed + length;
  if (length > kDmexpLargestHeader) refuse_damaged(path, fmt::format("its header would be {} bytes long; at most 16 MiB are read", length));
  if (payload_at_ > size_ || payload != size_ - payload_at_)
    refuse_damaged(path, fmt::format("it has {} bytes; its lengths say {} + {} + {}", size_, kDmexpFixed, length, payload));
  std::uint32_t crc = 0;
  base::for_chunks(*file_, payload_at_, payload,
                   [&](std::uint64_t, std::span<const std::uint8_t> chunk) { crc = base::crc32(chunk, crc); });
  if (crc != payload_crc_) refuse_damaged(path, fmt::format("its payload has CRC {:08x}, not {:08x}", crc, payload_crc_));
  std::string header(static_cast<std::size_t>(length), '\0');
  file_->read_exactly_at(kDmexpFixed, {reinterpret_cast<std::uint8_t*>(header.data()), header.size()});
  header_ = parse_dmexp_header(header, version, path.string());
  if (header_.payload_bytes != payload)
    refuse(path, fmt::format("has a payload of {} bytes; the tensors of its header need {}", payload, header_.payload_bytes));
}

DmexpFile::Contents DmexpFile::read() const {
  Contents out;
  const auto bytes = static_cast<std::size_t>(header_.payload_bytes);
  out.payload = tensor::take_block(bytes);
  const std::span<std::uint8_t> payload(reinterpret_cast<std::uint8_t*>(out.payload.get()), bytes);
  file_->read_exactly_at(payload_at_, payload);
  if (const std::uint32_t crc = base::crc32(payload); crc != payload_crc_)
    refuse_damaged(path_, fmt::format("its payload has CRC {:08x}, not {:08x}", crc, payload_crc_));
  for (std::size_t i = 0; i < header_.tensors.size(); ++i) {
    const DmexpEntry& entry = header_.tensors[i];
    const auto scales = static_cast<std::size_t>(entry.shape.scale_count());
    const std::uint64_t codes_end = entry.codes_at + entry.shape.code_bytes(), scales_end = entry.scales_at + scales * sizeof(float);
    const std::uint64_t end = i + 1 < header_.tensors.size() ? header_.tensors[i + 1].codes_at : bytes;
    Packed packed{entry.name, entry.shape, payload.subspan(entry.codes_at, codes_end - entry.codes_at), {}};
    if (scales > 0) packed.scales = {reinterpret_cast<const float*>(payload.data() + entry.scales_at), scales};
    if (header_.version == 2) {
      require_zero(path_, payload.subspan(codes_end, entry.scales_at - codes_end), entry.name);
      require_zero(path_, payload.subspan(scales_end, end - scales_end), entry.name);
    }
    if (const std::string fault = fault_of(packed); !fault.empty())
      throw base::Damaged(
          fmt::format("{}: tensor {} {}; export it anew", base::escape(path_.string(), 1024), base::escape(entry.name), fault));
    out.tensors.push_back(std::move(packed));
  }
  return out;
}

}  // namespace dormouse::format
