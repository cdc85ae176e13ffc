#include "report/events.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <vector>

#include "base/bytes.h"

namespace dormouse::report {
namespace {

// Field numbers of Event, Summary, Summary.Value and SessionLog.
constexpr unsigned kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
constexpr unsigned kValue = 1, kTag = 1, kSimpleValue = 2, kStatus = 1, kSessionStart = 1;
enum class Wire : unsigned { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string out(sizeof value, '\0');
  base::store_little(reinterpret_cast<std::uint8_t*>(out.data()), value);
  return out;
}

std::string varint(std::uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  return out + static_cast<char>(value);
}

std::string key(unsigned field, Wire wire) { return varint(field << 3 | static_cast<unsigned>(wire)); }

std::string bytes_field(unsigned field, std::string_view bytes) {
  return key(field, Wire::bytes) + varint(bytes.size()) + std::string(bytes);
}

std::string event(double wall_time, std::int64_t step) {
  std::string out = key(kWallTime, Wire::fixed64) + little_endian(std::bit_cast<std::uint64_t>(wall_time));
  if (step != 0) out += key(kStep, Wire::varint) + varint(static_cast<std::uint64_t>(step));
  return out;
}

constexpr std::array<std::uint32_t, 256> crc32c_table() {
  std::array<std::uint32_t, 256> table = {};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}

std::uint32_t masked_crc(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes);
  return std::rotr(crc, 15) + 0xA282EAD8U;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::filesystem::path free_name(const std::filesystem::path& directory) {
  std::array<char, 256> host = {};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0') host[0] = '-';
  const auto seconds = static_cast<std::int64_t>(now());
  for (int n = 0;; ++n) {
    const auto path = directory / fmt::format("events.out.tfevents.{:010}.{}.{}.{}", seconds, host.data(), ::getpid(), n);
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) return path;
  }
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  static constexpr auto kTable = crc32c_table();
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = crc >> 8 ^ kTable[(crc ^ static_cast<std::uint8_t>(c)) & 0xFF];
  return ~crc;
}

std::string event_record(std::string_view payload) {
  const std::string length = little_endian<std::uint64_t>(payload.size());
  return length + little_endian(masked_crc(length)) + std::string(payload) + little_endian(masked_crc(payload));
}

std::string version_event(double wall_time) { return event(wall_time, 0) + bytes_field(kFileVersion, "brain.Event:2"); }

std::string session_event(double wall_time, std::int64_t step) {
  return event(wall_time, step) + bytes_field(kSessionLog, key(kStatus, Wire::varint) + varint(kSessionStart));
}

std::string scalar_event(double wall_time, std::int64_t step, std::span<const std::pair<std::string, float>> scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    const std::string number = key(kSimpleValue, Wire::fixed32) + little_endian(std::bit_cast<std::uint32_t>(value));
    summary += bytes_field(kValue, bytes_field(kTag, tag) + number);
  }
  return event(wall_time, step) + bytes_field(kSummary, summary);
}

EventWriter::EventWriter(const std::filesystem::path& directory) {
  const auto path = free_name(directory);
  file_.emplace(base::File::create(path));
  try {
    append(version_event(now()));
  } catch (...) {  // on a full disk: no empty file at every attempt
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
    throw;
  }
}

void EventWriter::write(std::span<const Metric> metrics) {
  std::string name;
  const std::int64_t* step = nullptr;
  for (const auto& [key, value] : metrics) {
    if (key == "event" && std::holds_alternative<std::string>(value)) name = std::get<std::string>(value);
    if (key == "step") step = std::get_if<std::int64_t>(&value);
  }
  if (step == nullptr) return;
  if (name == "resume" || name == "extend") return append(session_event(now(), *step + 1));
  std::vector<std::pair<std::string, float>> scalars;
  for (const auto& [key, value] : metrics) {
    if (key == "step") continue;
    if (const auto* whole = std::get_if<std::int64_t>(&value)) scalars.emplace_back(name + "/" + key, static_cast<float>(*whole));
    if (const auto* real = std::get_if<double>(&value)) scalars.emplace_back(name + "/" + key, static_cast<float>(*real));
  }
  if (!scalars.empty()) append(scalar_event(now(), *step, scalars));
}

void EventWriter::append(std::string_view payload) {
  const std::string record = event_record(payload);
  file_->write(base::bytes_of(record));
}

}  // namespace dormouse::report
