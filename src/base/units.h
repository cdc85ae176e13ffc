// Counts (K/M/G decimal, Ki/Mi/Gi binary), durations (s/m/h), and their human forms.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dormouse::base {

// "8", "2K", "64Ki", from `least` to `most`. Anything else: UsageError naming `what`.
std::int64_t parse_count(std::string_view text, std::string_view what, std::int64_t least = 0, std::int64_t most = INT64_MAX);
// "90", "90s", "10m", "1.5h", "1h30m", and as human_duration() writes it, "1m 05s" -> seconds > 0; else UsageError naming `what`.
double parse_duration(std::string_view text, std::string_view what);
// A finite number; else UsageError naming `what`.
double parse_number(std::string_view text, std::string_view what);

std::string human_bytes(std::uint64_t bytes);                         // "3.1 MB"
std::string human_count(std::uint64_t count);                         // "1,204"
std::string human_count(std::uint64_t count, std::string_view noun);  // "1 thread", "1,204 threads"
std::string human_duration(double seconds);                           // "1h 02m", "4m 10s", "7s"

// The nearest of `candidates` to `word` by edit distance, or "" when none is near.
std::string nearest(std::string_view word, const std::string_view* candidates, std::size_t count);

}  // namespace dormouse::base
