// One list of fields per config struct: name, doc, range. TOML reading and writing, --set, help, snapshot and drift all walk it.
//
// A config struct declares, beside itself, a function template
//   template <class Config, class Visit> void for_each_field(Config& config, Visit&& visit) {
//     visit(Field{.name = "d_model", .doc = "width of the residual stream", .min = 1, .max = 65536}, config.d_model);
//     ...
//   }
// where a field is bool, std::int64_t, double, std::string or std::vector<std::int64_t>. Config may be const.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace dormouse::config {

struct Field {
  std::string_view name;
  std::string_view doc;
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  std::string_view choices = "";  // strings: "mix|adamw"; empty = free
  bool progress = false;          // may differ on a resume (cadences, threads)
  // What a saved config without this key means: how the program behaved before the key existed. Frozen, whatever the default becomes.
  // nullptr: the key is as old as its section.
  const char* before = nullptr;
};

}  // namespace dormouse::config
