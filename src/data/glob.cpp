#include "data/glob.h"

#include <vector>

namespace dormouse::data {
namespace {

// reach[j]: the glob read so far matches path[0, j). O(|glob| * |path|), whatever the stars.
bool matches(std::string_view glob, std::string_view path) {
  std::vector<char> reach(path.size() + 1, 0), next(path.size() + 1);
  reach[0] = 1;
  for (std::size_t i = 0; i < glob.size();) {
    const bool deep = glob.substr(i).starts_with("**");
    const bool deep_slash = glob.substr(i).starts_with("**/");
    const char c = glob[i];
    if (deep_slash) {  // nothing, or any bytes up to and including a slash
      bool open = false;
      for (std::size_t j = 0; j <= path.size(); ++j) {
        next[j] = reach[j] || (open && path[j - 1] == '/');
        open = open || reach[j];
      }
      i += 3;
    } else if (c == '*') {
      for (std::size_t j = 0; j <= path.size(); ++j) next[j] = reach[j] || (j > 0 && next[j - 1] && (deep || path[j - 1] != '/'));
      i += deep ? 2 : 1;
    } else {
      next[0] = 0;
      for (std::size_t j = 1; j <= path.size(); ++j) next[j] = reach[j - 1] && (c == '?' ? path[j - 1] != '/' : path[j - 1] == c);
      ++i;
    }
    reach.swap(next);
  }
  return reach[path.size()] != 0;
}

}  // namespace

bool glob_matches(std::string_view glob, std::string_view path) {
  if (glob.find('/') == std::string_view::npos) path.remove_prefix(path.rfind('/') + 1);
  return matches(glob, path);
}

}  // namespace dormouse::data
