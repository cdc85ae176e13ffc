#!/bin/sh
# The threads a run takes: what the affinity mask leaves, or what -t says.
. "$(dirname "$0")/support.sh"
command -v taskset >/dev/null || { echo "skipped: no taskset here (util-linux)"; exit 77; }
first=$(taskset -cp $$ | sed 's/.*: *\([0-9]*\).*/\1/')
train="train --config small.toml --data text.txt --steps 1"
# shellcheck disable=SC2086
taskset -c "$first" "$DORMOUSE" $train --run runs/one 2>err.txt || { cat err.txt; fail "one processor"; }
grep -q 'machine *1 thread,' err.txt || { cat err.txt; fail "on one processor a run takes one thread"; }
# shellcheck disable=SC2086
expect 0 'machine *3 threads' $train --run runs/three -t 3
expect 2 'error: --threads 65: must be from 1 to 64' $train --run runs/many -t 65
expect 2 'error: --threads 1025: must be from 1 to 64' $train --run runs/many -t 1025
expect 2 'error: --threads 1025: must be from 1 to 64' anchors text.txt -t 1025
expect 2 'error: .*threads.*from 0 to 64' $train --run runs/many --set threads=65
finish
