#!/bin/sh
# A network trained for some steps against docs/model.py, the independent statement; both Engram gates, and arms off.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../cli/support.sh"
python3 -c 'import numpy' 2>/dev/null || { echo "skipped: python3 has no numpy"; exit 77; }
compare=$here/compare_logits.sh
for set in seed=1 engram_gate=smooth use_engram=false use_kda=false; do
  expect 0 'done:' train --config small.toml -t 1 --data text.txt --run "runs/$set" --steps 60 --lr 0.01 --set "$set"
  sh "$compare" "runs/$set" text.txt || fail "$set"
done
expect 0 'done:' train --preset tiny --data text.txt --run runs/tiny --steps 12 --batch 4 --seq-len 64 --lr 0.01 --eval-bytes 1000
sh "$compare" runs/tiny text.txt 128 || fail tiny
finish
