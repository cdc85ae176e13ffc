#include "base/log.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <optional>

#include "base/bytes.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

namespace dormouse::base {
namespace {

constexpr std::string_view kClearLine = "\r\033[2K";

struct Log {
  std::mutex mutex;
  std::optional<File> file;
  bool bar_shown = false;
};

Log& the_log() {
  static Log log;
  return log;
}

// One write per line, so that lines of several processes stay whole. Nothing can be done about a closed stderr.
void to_stderr(std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(STDERR_FILENO, text.data(), text.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(put));
  }
}

// Colours (ESC [ ... m) are for the terminal only.
std::string without_colours(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at, 2) == "\033[") {
      const std::size_t end = text.find_first_not_of("0123456789;", at + 2);
      if (end != std::string_view::npos && text[end] == 'm') {
        at = end;
        continue;
      }
    }
    out += text[at];
  }
  return out;
}

// A log file that can no longer be written must not end a run of days: it is closed, and stderr says so.
void to_file(Log& log, std::string_view text) {
  if (!log.file) return;
  const std::string line = without_colours(text) + "\n";
  try {
    log.file->write(bytes_of(line));
  } catch (const Error& error) {
    log.file.reset();
    to_stderr(fmt::format("log file closed, the log goes on here only: {}\n", error.what()));
  }
}

void clear_bar(Log& log) {
  if (log.bar_shown) to_stderr(kClearLine);
  log.bar_shown = false;
}

// At most `columns` characters of `text`, one column each.
std::string_view cut_to_columns(std::string_view text, std::size_t columns) {
  std::size_t at = 0;
  for (std::size_t column = 0; column < columns && at < text.size(); ++column) at += std::max<std::size_t>(1, utf8_length(text, at));
  return text.substr(0, at);
}

}  // namespace

void log_line(std::string_view text) {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  std::string line;
  if (log.bar_shown) line += kClearLine;
  log.bar_shown = false;
  line += text;
  line += '\n';
  to_stderr(line);
  to_file(log, text);
}

void log_file_line(std::string_view text) {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  to_file(log, text);
}

void open_log_file(const std::filesystem::path& path) {
  File file = File::open_append(path);
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  log.file.emplace(std::move(file));
}

void close_log_file() {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  if (!log.file) return;
  File file = std::move(*log.file);
  log.file.reset();
  try {
    file.close();
  } catch (const Error& error) {  // called where nothing may be thrown
    to_stderr(fmt::format("the log file may lack its end: {}\n", error.what()));
  }
}

bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

bool colours_wanted() {
  const char* off = std::getenv("NO_COLOR");
  return stderr_is_terminal() && (off == nullptr || *off == '\0');
}

int terminal_columns() {
  constexpr int kDefault = 80;
  winsize size = {};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  if (const char* columns = std::getenv("COLUMNS")) {
    const std::string_view text = columns;
    int value = 0;
    const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (status == std::errc{} && end == text.data() + text.size() && value > 0) return value;
  }
  return kDefault;
}

void show_progress(double fraction, std::string_view label) {
  if (!stderr_is_terminal()) return;
  if (const char* kind = std::getenv("TERM"); kind != nullptr && std::string_view(kind) == "dumb") return;
  const double part = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const int columns = terminal_columns();
  const int width = std::clamp(columns / 4, 5, 30);
  const int filled = static_cast<int>(part * width);
  const std::string bar = fmt::format("[{}{}] {:2}%  {}", std::string(static_cast<std::size_t>(filled), '#'),
                                      std::string(static_cast<std::size_t>(width - filled), '.'), static_cast<int>(part * 100), label);
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  // The last column stays free: some terminals wrap when it is written.
  to_stderr(fmt::format("{}{}", kClearLine, cut_to_columns(bar, static_cast<std::size_t>(std::max(columns - 1, 1)))));
  log.bar_shown = true;
}

void clear_progress() {
  Log& log = the_log();
  const std::scoped_lock lock(log.mutex);
  clear_bar(log);
}

}  // namespace dormouse::base
