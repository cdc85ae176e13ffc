// TensorBoard event files: scalars of a run, in the TFRecord framing (docs of the format: tensorflow/core/lib/io/record_writer.h,
// tensorflow/core/util/event.proto, tensorflow/core/framework/summary.proto).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "report/metrics.h"

namespace dormouse::report {

// CRC-32C (Castagnoli, reflected polynomial 0x82F63B78) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);
// length u64, masked CRC of the length u32, payload, masked CRC of the payload u32; little endian.
std::string event_record(std::string_view payload);

// Serialized Event messages; wall_time in seconds since 1970.
std::string version_event(double wall_time);
// Tells a reader that what earlier files hold from `step` on is void.
std::string session_event(double wall_time, std::int64_t step);
std::string scalar_event(double wall_time, std::int64_t step, std::span<const std::pair<std::string, float>> scalars);

// One event file per start of a run, named so that TensorBoard finds them and reads them in order. Each record is one write.
class EventWriter {
 public:
  explicit EventWriter(const std::filesystem::path& directory);
  // Numbers of an object with "event" and "step" become scalars "<event>/<name>"; "resume" and "extend" begin a session after their step;
  // objects without a step have no place in a chart.
  void write(std::span<const Metric> metrics);

 private:
  void append(std::string_view payload);
  std::optional<base::File> file_;
};

}  // namespace dormouse::report
