#!/bin/sh
# Every #include of src/ stays on the edges of cmake/rooms.cmake: a room includes itself, the rooms beside it, and whatever those
# may include; cli may include all. The rooms themselves form no cycle. docs/map.md shows the same edges.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

# "room edge edge ..." per line of a rooms.cmake
edges_of() { sed -n 's/^room(\([a-z]*\)\(.*\))$/\1\2/p' "$1" | sed 's/ LIBRARIES.*//; s/ EDGES//'; }

sh "$here/includes.sh" "$root" || fail "an include leaves the edges of cmake/rooms.cmake"

edges_of "$root/cmake/rooms.cmake" >"$work/rooms"
[ -s "$work/rooms" ] || fail "no room found in cmake/rooms.cmake"

# rows of the map: | `room/` | what it owns | edge, edge |
sed -n 's/^| `\([a-z]*\)\/` |.*| \([^|]*\) |$/\1 \2/p' "$root/docs/map.md" | sed 's/[,–]/ /g' |
  awk '{ $1 = $1; print }' | grep -v '^cli ' >"$work/map" || true
diff "$work/rooms" "$work/map" >&2 || fail "docs/map.md shows other rooms or edges than cmake/rooms.cmake"

# The checker itself must refuse: an upward include, a room not listed, a cycle.
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/cmake" "$work/tree/src/base" "$work/tree/src/ops" "$work/tree/src/cli" "$work/tree/src/deep/inside"
  printf 'room(base LIBRARIES fmt::fmt)\nroom(ops EDGES base)\nroom(deep EDGES ops LIBRARIES hwy)\n' >"$work/tree/cmake/rooms.cmake"
  printf '#pragma once\n#include <vector>\n' >"$work/tree/src/base/error.h"
  printf '#include "base/error.h"\n' >"$work/tree/src/ops/ops.h"
  printf '#include "base/error.h"\n#include "ops/ops.h"\n#include "deep/inside/x.h"\n#include "local.h"\n' >"$work/tree/src/deep/inside/x.cpp"
  printf '#include "deep/inside/x.h"\n' >"$work/tree/src/cli/main.cpp"
}
tree
sh "$here/includes.sh" "$work/tree" || fail "a clean tree is refused"
refused() {
  if sh "$here/includes.sh" "$work/tree" >"$work/answer" 2>&1; then fail "not refused: $1"; fi
  grep -q "$2" "$work/answer" || fail "the answer to $1 does not name it: $(cat "$work/answer")"
}
printf '#include "ops/ops.h"\n' >"$work/tree/src/base/file.cpp"
refused "an upward include" 'src/base/file.cpp.*ops/ops.h'
tree
printf '  #  include "cli/main.h"\n' >"$work/tree/src/deep/inside/y.h"
refused "an include of cli" 'src/deep/inside/y.h.*cli/main.h'
tree
mkdir "$work/tree/src/stray"
printf 'int x;\n' >"$work/tree/src/stray/x.cpp"
refused "a folder that is no room" 'stray'
tree
printf 'room(base EDGES deep)\nroom(ops EDGES base)\nroom(deep EDGES ops)\n' >"$work/tree/cmake/rooms.cmake"
refused "a cycle" 'cycle'

[ "$failures" = 0 ] && echo "include edges hold"
[ "$failures" = 0 ]
