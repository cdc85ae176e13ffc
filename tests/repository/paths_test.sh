#!/bin/sh
# Every path of the tree that a document names in backticks exists.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
missing=$(grep -ohE '`(src|tests|tools|docs|cmake|bench)/[A-Za-z0-9_./-]+`' README.md docs/*.md docs/decisions/*.md | tr -d '`' | sort -u |
  while IFS= read -r path; do [ -e "$path" ] || echo "$path"; done)
if [ -n "$missing" ]; then
  printf 'named in a document, not in the tree:\n%s\n' "$missing"
  exit 1
fi
