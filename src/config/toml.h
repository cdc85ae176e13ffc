// Flat values <-> config structs. The parser is toml++, in the one .cpp of this room.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/field.h"

namespace dormouse::config {

using Value = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>>;

// Section name ("" for the top level) -> key -> value, one level of sections. `where` names the file in errors. Values of
// other types (dates, nested tables, arrays of non-integers), duplicate keys, bad UTF-8: base::Error with line and reason.
using Table = std::map<std::string, Value>;
std::map<std::string, Table> parse_toml(std::string_view text, std::string_view where);

// The other shape of TOML that dormouse reads: values at the top level, and lists of tables ([[name]]) of values. The same errors.
struct Document {
  Table values;
  std::map<std::string, std::vector<Table>> lists;
};
Document parse_document(std::string_view text, std::string_view where);

std::string to_toml(const Value& value);  // "true", "42", "0.003" (shortest form that reads back), quoted string, [2, 3, 4]

// Converts to the type of `out`, checks range and choices; int -> double is fine, everything else wrong is an error such as
// `d_model = "x" in runs/a/config.toml: expected a whole number from 1 to 65536`.
void assign(const Field& field, const Value& value, std::string_view where, bool& out);
void assign(const Field& field, const Value& value, std::string_view where, std::int64_t& out);
void assign(const Field& field, const Value& value, std::string_view where, double& out);
void assign(const Field& field, const Value& value, std::string_view where, std::string& out);
void assign(const Field& field, const Value& value, std::string_view where, std::vector<std::int64_t>& out);
// "--set key=value" text: true/false/yes/no/on/off/1/0; counts with K/M; numbers; comma lists.
void assign_text(const Field& field, std::string_view text, bool& out);
void assign_text(const Field& field, std::string_view text, std::int64_t& out);
void assign_text(const Field& field, std::string_view text, double& out);
void assign_text(const Field& field, std::string_view text, std::string& out);
void assign_text(const Field& field, std::string_view text, std::vector<std::int64_t>& out);

// Error for an unknown key, with the nearest known one suggested; when none is near, with `hint`, or "": the known keys.
[[noreturn]] void unknown_key(std::string_view key, std::string_view where, const std::vector<std::string_view>& known,
                              std::string_view hint = "");

// Error for a key that a saved config must have.
[[noreturn]] void lost_key(std::string_view key, std::string_view where);

// Fills `config` from `table`; keys absent keep their value; unknown keys are errors naming the nearest.
template <class Config>
void read_table(Config& config, const Table& table, std::string_view where) {
  std::vector<std::string_view> known;
  std::size_t used = 0;
  for_each_field(config, [&](const Field& field, auto& value) {
    known.push_back(field.name);
    if (const auto it = table.find(std::string(field.name)); it != table.end()) {
      assign(field, it->second, where, value);
      ++used;
    }
  });
  if (used == table.size()) return;
  for (const auto& entry : table) {
    bool found = false;
    for (const auto name : known) found = found || name == entry.first;
    if (!found) unknown_key(entry.first, where, known);
  }
}

// The same for what write_table wrote: a key absent there takes Field::before, and without one the file has lost it, an error.
template <class Config>
void read_saved_table(Config& config, const Table& table, std::string_view where) {
  for_each_field(config, [&](const Field& field, auto& value) {
    if (table.contains(std::string(field.name))) return;
    if (field.before == nullptr) lost_key(field.name, where);
    assign_text(field, field.before, value);
  });
  read_table(config, table, where);
}

// "key = value" lines in field order.
template <class Config>
std::string write_table(const Config& config) {
  std::string text;
  for_each_field(config,
                 [&](const Field& field, const auto& value) { text += std::string(field.name) + " = " + to_toml(Value(value)) + "\n"; });
  return text;
}

// Applies one `key=value`; returns false when the struct has no such key.
template <class Config>
bool set_field(Config& config, std::string_view key, std::string_view text) {
  bool found = false;
  for_each_field(config, [&](const Field& field, auto& value) {
    if (field.name != key) return;
    assign_text(field, text, value);
    found = true;
  });
  return found;
}

}  // namespace dormouse::config
