#!/bin/sh
# includes.sh ROOT: reads every #include "..." below ROOT/src and prints those that leave the edges of ROOT/cmake/rooms.cmake.
set -eu
cd "$1"
{
  sed -n 's/^room(\([a-z]*\)\(.*\))$/room \1\2/p' cmake/rooms.cmake | sed 's/ LIBRARIES.*//; s/ EDGES//'
  find src -mindepth 1 -maxdepth 1 -type d | sed 's|^src/|folder |'
  find src -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.inc' \) -exec grep -HE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"' {} + |
    sed 's|^src/\([^:]*\):[^"]*"\([^"]*\)".*|include \1 \2|'
} | LC_ALL=C sort -r | awk '
  $1 == "room" { rooms[$2] = 1; for (i = 3; i <= NF; i++) may[$2, $i] = 1 }
  $1 == "include" { file[++n] = $2; target[n] = $3 }
  $1 == "folder" { folders[$2] = 1 }
  END {
    for (k in rooms)
      for (i in rooms)
        for (j in rooms)
          if (((i, k) in may) && ((k, j) in may)) may[i, j] = 1
    bad = 0
    for (room in rooms)
      if ((room, room) in may) { print "cmake/rooms.cmake: a cycle through " room; bad = 1 }
    for (folder in folders)
      if (!(folder in rooms) && folder != "cli") { print "src/" folder " is no room of cmake/rooms.cmake"; bad = 1 }
    for (i = 1; i <= n; i++) {
      split(file[i], from, "/")
      split(target[i], to, "/")
      if (!(to[1] in rooms) && to[1] != "cli") continue
      if (from[1] == to[1] || from[1] == "cli" || ((from[1], to[1]) in may)) continue
      print "src/" file[i] " includes \"" target[i] "\", which is not on an edge of " from[1]
      bad = 1
    }
    exit bad
  }' >&2
