#include "config/toml.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "base/utf8.h"

#define TOML_HEADER_ONLY 1
#define TOML_MAX_NESTED_VALUES 8
#define TOML_ENABLE_FORMATTERS 0
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wshadow"
#endif
#include <toml++/toml.h>
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#endif

namespace dormouse::config {
namespace {

using base::escape;

constexpr std::size_t kLargestText = std::size_t{4} << 20;
constexpr int kDeepestKey = 8;

[[noreturn]] void fail_at(std::string_view where, std::size_t line, std::string_view reason) {
  throw base::Error(fmt::format("{}, line {}: {}", escape(where), line, escape(reason)));
}

// The parser bounds nested values but not dotted keys (a.a.a. ...), which become tables in tables and are freed by recursion.
// Counts the dots of each key, or number, outside strings and comments. On text that is no TOML it agrees with the parser
// up to the parser's first error, which is enough.
void check_key_depth(std::string_view text, std::string_view where) {
  std::size_t line = 1;
  int dots = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      const std::string_view fence = text.substr(at, 3);
      const bool multiline = fence == "\"\"\"" || fence == "'''";
      const std::size_t width = multiline ? 3 : 1;
      at += width;
      while (at < text.size() && text.substr(at, width) != fence.substr(0, width)) {
        if (text[at] == '\\' && c == '"') {
          ++at;  // whatever follows is escaped
        } else if (text[at] == '\n' && !multiline) {
          break;
        }
        if (at < text.size() && text[at] == '\n') ++line;
        ++at;
      }
      at += width - 1;
      // A multi-line string may end in up to two more quotes of its own.
      for (int extra = 0; multiline && extra < 2 && at + 1 < text.size() && text[at + 1] == c; ++extra) ++at;
    } else if (c == '#') {
      at = std::min(text.find('\n', at), text.size()) - 1;
    } else if (c == '.') {
      if (++dots > kDeepestKey) fail_at(where, line, fmt::format("a key of more than {} parts", kDeepestKey));
    } else if (c == '\n' || c == '=' || c == ',' || c == '[' || c == '{') {
      dots = 0;
      if (c == '\n') ++line;
    }
  }
}

Value to_value(const toml::node& node, std::string_view key, std::string_view where) {
  if (const auto* flag = node.as_boolean()) return flag->get();
  if (const auto* whole = node.as_integer()) return whole->get();
  if (const auto* real = node.as_floating_point()) return real->get();
  if (const auto* text = node.as_string()) return text->get();
  const std::size_t line = node.source().begin.line;
  const auto* list = node.as_array();
  if (list == nullptr) {
    const std::string_view kind = node.is_table() ? "a table inside a table" : "a date or time";
    fail_at(where, line, fmt::format("{} is {}; expected a flag, a number, a string or a list of whole numbers", key, kind));
  }
  std::vector<std::int64_t> numbers;
  for (const toml::node& element : *list) {
    const auto* whole = element.as_integer();
    if (whole == nullptr) fail_at(where, line, fmt::format("{} is a list with something else than whole numbers", key));
    numbers.push_back(whole->get());
  }
  return numbers;
}

std::string number_text(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

// "a whole number from 1 to 65536", "a number above or equal to 0", ...
std::string expectation(std::string_view kind, const Field& field) {
  const bool below = std::isfinite(field.max);
  const bool above = std::isfinite(field.min);
  if (above && below) return fmt::format("{} from {} to {}", kind, number_text(field.min), number_text(field.max));
  if (above) return fmt::format("{} of at least {}", kind, number_text(field.min));
  if (below) return fmt::format("{} of at most {}", kind, number_text(field.max));
  return std::string(kind);
}

std::string choice_list(std::string_view choices) {
  std::string list;
  for (const char c : choices) list += c == '|' ? std::string(", ") : std::string(1, c);
  return list;
}

bool is_choice(std::string_view choices, std::string_view text) {
  return !text.empty() && text.find('|') == std::string_view::npos &&
         fmt::format("|{}|", choices).find(fmt::format("|{}|", text)) != std::string::npos;
}

bool in_range(const Field& field, double value) { return std::isfinite(value) && value >= field.min && value <= field.max; }

bool in_range(const Field& field, std::int64_t value) { return in_range(field, static_cast<double>(value)); }

bool in_range(const Field& field, const std::vector<std::int64_t>& values) {
  for (const std::int64_t value : values) {
    if (!in_range(field, value)) return false;
  }
  return true;
}

constexpr std::string_view kBool = "true or false";
constexpr std::string_view kWhole = "a whole number";
constexpr std::string_view kReal = "a number";
constexpr std::string_view kList = "a list of whole numbers";

std::string expected_string(const Field& field) {
  return field.choices.empty() ? std::string("a string in quotes") : "one of " + choice_list(field.choices);
}

// A value for a message: never refused, never long.
std::string shown(const Value& value) {
  constexpr std::size_t kLimit = 80;
  if (const auto* text = std::get_if<std::string>(&value)) return '"' + escape(*text, kLimit) + '"';
  std::string text = to_toml(value);
  return text.size() <= kLimit ? text : text.substr(0, kLimit) + "...";
}

[[noreturn]] void refuse(const Field& field, const Value& value, std::string_view where, std::string_view expected) {
  throw base::Error(fmt::format("{} = {} in {}: expected {}", field.name, shown(value), escape(where, 1024), expected));
}

[[noreturn]] void refuse_text(const Field& field, std::string_view text, std::string_view expected) {
  throw base::UsageError(fmt::format("{}=\"{}\": expected {}", field.name, escape(text, 80), expected));
}

// A count with K/M/G/Ki/Mi/Gi, and a sign.
std::int64_t parse_whole(const Field& field, std::string_view text, std::string_view whole_text, std::string_view kind) {
  const bool negative = !text.empty() && text.front() == '-';
  try {
    const std::int64_t count = base::parse_count(negative ? text.substr(1) : text, field.name);
    return negative ? -count : count;
  } catch (const base::UsageError&) {
    refuse_text(field, whole_text, expectation(kind, field));
  }
}

std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = base::utf8_length(text, at);
    if (length == 0) throw base::Error(fmt::format("the string \"{}\" is not UTF-8 and cannot stand in a config", escape(text)));
    const char c = text[at];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (length == 1 && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)) {
      out += fmt::format("\\u{:04X}", static_cast<unsigned>(c));
    } else {
      out += text.substr(at, length);
    }
    at += length;
  }
  return out + '"';
}

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> digits = {};
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  std::string text(digits.data(), end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";  // a TOML number without either is an integer
  return text;
}

}  // namespace

std::map<std::string, Table> parse_toml(std::string_view text, std::string_view where) {
  if (text.size() > kLargestText) {
    throw base::Error(fmt::format("{} has {}; a config has at most {}", escape(where, 1024), base::human_bytes(text.size()),
                                  base::human_bytes(kLargestText)));
  }
  check_key_depth(text, where);
  toml::table root;
  try {
    root = toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail_at(where, error.source().begin.line, error.description());
  }
  std::map<std::string, Table> sections;
  for (const auto& [key, node] : root) {
    const std::string name(key.str());
    const toml::table* section = node.as_table();
    if (section == nullptr) {
      sections[""][name] = to_value(node, name, where);
      continue;
    }
    if (name.empty()) fail_at(where, node.source().begin.line, "a section without a name");
    Table& table = sections[name];
    for (const auto& [inner, value] : *section) table[std::string(inner.str())] = to_value(value, inner.str(), where);
  }
  return sections;
}

std::string to_toml(const Value& value) {
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return std::to_string(*whole);
  if (const auto* real = std::get_if<double>(&value)) return real_text(*real);
  if (const auto* text = std::get_if<std::string>(&value)) return toml_string(*text);
  std::string list;
  for (const std::int64_t number : std::get<std::vector<std::int64_t>>(value)) {
    if (!list.empty()) list += ", ";
    list += std::to_string(number);
  }
  return "[" + list + "]";
}

void assign(const Field& field, const Value& value, std::string_view where, bool& out) {
  const auto* flag = std::get_if<bool>(&value);
  if (flag == nullptr) refuse(field, value, where, kBool);
  out = *flag;
}

void assign(const Field& field, const Value& value, std::string_view where, std::int64_t& out) {
  const auto* whole = std::get_if<std::int64_t>(&value);
  if (whole == nullptr || !in_range(field, *whole)) refuse(field, value, where, expectation(kWhole, field));
  out = *whole;
}

void assign(const Field& field, const Value& value, std::string_view where, double& out) {
  const auto* real = std::get_if<double>(&value);
  const auto* whole = std::get_if<std::int64_t>(&value);
  if (real == nullptr && whole == nullptr) refuse(field, value, where, expectation(kReal, field));
  const double number = real != nullptr ? *real : static_cast<double>(*whole);
  if (!in_range(field, number)) refuse(field, value, where, expectation(kReal, field));
  out = number;
}

void assign(const Field& field, const Value& value, std::string_view where, std::string& out) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr || (!field.choices.empty() && !is_choice(field.choices, *text))) refuse(field, value, where, expected_string(field));
  out = *text;
}

void assign(const Field& field, const Value& value, std::string_view where, std::vector<std::int64_t>& out) {
  const auto* list = std::get_if<std::vector<std::int64_t>>(&value);
  if (list == nullptr || !in_range(field, *list)) refuse(field, value, where, expectation(kList, field));
  out = *list;
}

void assign_text(const Field& field, std::string_view text, bool& out) {
  for (const std::string_view yes : {"true", "yes", "on", "1"}) {
    if (text == yes) {
      out = true;
      return;
    }
  }
  for (const std::string_view no : {"false", "no", "off", "0"}) {
    if (text == no) {
      out = false;
      return;
    }
  }
  refuse_text(field, text, kBool);
}

void assign_text(const Field& field, std::string_view text, std::int64_t& out) {
  const std::int64_t value = parse_whole(field, text, text, kWhole);
  if (!in_range(field, value)) refuse_text(field, text, expectation(kWhole, field));
  out = value;
}

void assign_text(const Field& field, std::string_view text, double& out) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole_text = status == std::errc{} && end == text.data() + text.size();
  if (!whole_text || !in_range(field, value)) refuse_text(field, text, expectation(kReal, field));
  out = value;
}

void assign_text(const Field& field, std::string_view text, std::string& out) {
  if (!field.choices.empty() && !is_choice(field.choices, text)) refuse_text(field, text, expected_string(field));
  out = text;
}

void assign_text(const Field& field, std::string_view text, std::vector<std::int64_t>& out) {
  std::vector<std::int64_t> values;
  for (std::size_t at = 0; !text.empty() && at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    values.push_back(parse_whole(field, text.substr(at, end - at), text, kList));
    at = end + 1;
  }
  if (!in_range(field, values)) refuse_text(field, text, expectation(kList, field));
  out = values;
}

void unknown_key(std::string_view key, std::string_view where, const std::vector<std::string_view>& known) {
  const std::string near = base::nearest(key, known.data(), known.size());
  if (!near.empty()) {
    throw base::Error(fmt::format("unknown key \"{}\" in {}; did you mean {}?", escape(key), escape(where, 1024), near));
  }
  std::string list;
  for (const auto name : known) list += (list.empty() ? "" : ", ") + std::string(name);
  throw base::Error(fmt::format("unknown key \"{}\" in {}; the keys are {}", escape(key), escape(where, 1024), list));
}

}  // namespace dormouse::config
