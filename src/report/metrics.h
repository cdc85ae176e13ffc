// Every logged number of a run as one JSON object per line (metrics.jsonl).
#pragma once

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/file.h"

namespace dormouse::report {

using MetricValue = std::variant<std::int64_t, double, std::string, bool>;
using Metric = std::pair<std::string, MetricValue>;

// {"step":3,"ce":1.25}: keys in the given order, doubles in the shortest form that reads back exactly, NaN and infinities
// as null, invalid UTF-8 as U+FFFD. No newline.
std::string to_json(std::span<const Metric> metrics);

// Appends to a file; each object is one write, so a reader sees whole lines. A last line without its newline, left by a
// kill or a full disk, is mended when the file is opened: a whole object gets its newline, a part of one is replaced
// by the line {"event":"torn","bytes":N,"text":"..."} that holds it.
class MetricsWriter {
 public:
  explicit MetricsWriter(const std::filesystem::path& path);
  std::uint64_t mended_bytes() const { return mended_bytes_; }  // of the line that had no newline
  void write(std::initializer_list<Metric> metrics);
  void write(const std::vector<Metric>& metrics);

 private:
  void write_line(std::span<const Metric> metrics);
  base::File file_;
  std::uint64_t mended_bytes_ = 0;
};

}  // namespace dormouse::report
