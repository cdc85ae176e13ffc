// What a person reads on stderr, and the same lines in a file.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace dormouse::base {

// One whole line (no newline in `text`) to stderr, and to the log file when one is open. Clears a live progress bar first.
void log_line(std::string_view text);
// Only into the log file.
void log_file_line(std::string_view text);
void open_log_file(const std::filesystem::path& path);  // append
void close_log_file();

bool stderr_is_terminal();
bool colours_wanted();  // a terminal and no NO_COLOR
int terminal_columns();

// A live bar on a terminal, nothing elsewhere: [#####.....] 43%  label. fraction in [0, 1].
void show_progress(double fraction, std::string_view label);
void clear_progress();

}  // namespace dormouse::base
