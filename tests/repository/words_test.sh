#!/bin/sh
# No committed file names the place where it was written, a registry host, or holds a large binary. The words stand here in two
# pieces, so that this file passes too.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
if ! git rev-parse --is-inside-work-tree >/dev/null 2>&1 || [ ! -e .git ]; then
  echo "skipped: not a git checkout"
  exit 77
fi

status=0
for word in /work/ma''in /work/sha''red /tmp/build''- .libr''ary py''pi. deb.deb''ian archive.ubu''ntu proxy.gol''ang registry.np''m \
  sub''agent 'AI assi''stant' chat''gpt 'helper ses''sion' /ro''ot/; do
  if git grep -n -I -i -F -e "$word" -- .; then
    echo "a committed file names $word"
    status=1
  fi
done

large=$(git ls-files -z | xargs -0 sh -c 'for f; do [ ! -f "$f" ] || [ "$(wc -c <"$f")" -le 1048576 ] || echo "$f"; done' sh)
if [ -n "$large" ]; then
  echo "committed files above 1 MiB: $large"
  status=1
fi
exit "$status"
