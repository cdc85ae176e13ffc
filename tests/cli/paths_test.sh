#!/bin/sh
# Paths with spaces, a newline, a leading dash, 250 bytes, quotes: for data, runs and models.
. "$(dirname "$0")/support.sh"
long=$(printf '%0250d' 7)
for name in 'with space' 'new
line' '-dash' "it's" "$long" 'büß'; do
  cp text.txt "./$name"
  expect 0 'done:' train --config small.toml -t 1 --steps 1 --data "./$name" --run "runs/$name"
  expect 0 'bpb' eval "runs/$name" --data "./$name"
  [ "$("$DORMOUSE" generate "runs/$name" -p x -n 5 --json 2>/dev/null | wc -l)" -eq 1 ] || fail "generate from $name"
done
expect 0 'done:' train --config small.toml -t 1 --steps 1 --data=-dash --run runs/dash
expect 0 'done:' train --config small.toml -t 1 --steps 1 --data 'with space'
[ -f runs/with_space-small/config.toml ] || fail "the default name of a run"
mkdir -- "-folder" && cp text.txt ./-folder/
expect 0 'done:' train --config small.toml -t 1 --steps 1 --data=-folder --run=-run
expect 0 'bpb' eval --data text.txt -- -run
finish
