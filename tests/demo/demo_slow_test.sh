#!/bin/sh
# The bar of `make demo` with a fixed number of steps instead of a minute: the project's own text, preset tiny, default settings;
# BPB below 2.5 and below the order-3 Kneser-Ney of the same window; every family of anchors printed beside it; a sample written.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dormouse=${DORMOUSE:-$root/build/dormouse}
[ -x "$dormouse" ] || { echo "skipped: $dormouse is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

status=0
"$root/tools/demo" "$dormouse" "$work/demo" 260steps >"$work/sample" 2>"$work/log" </dev/null || status=$?
if [ "$status" != 0 ]; then
  cat "$work/log"
  exit 1
fi
sed -n '/^done:/,$p' "$work/log"

bpb=$(sed -n 's/^done:.*held-out BPB \([0-9.]*\) over.*/\1/p' "$work/log")
kneser_ney=$(sed -n 's/^ *kneser-ney 1\.\.[0-9]* *//p' "$work/log" | awk '{ print $3 }')
failures=0
fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}
below() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 > 0 && b + 0 > 0 && a + 0 < b + 0) }'; }
below "$bpb" 2.5 || fail "BPB $bpb is not below 2.5"
below "$bpb" "$kneser_ney" || fail "BPB $bpb is not below Kneser-Ney 3, $kneser_ney"
for anchor in 'uniform, unigram' 'kneser-ney' 'witten-bell' 'not a distribution' 'compressors, alone' 'compressors, conditional'; do
  grep -q "^ *$anchor\|$anchor)" "$work/log" || fail "no anchor \"$anchor\" beside the BPB"
done
[ "$(wc -c <"$work/sample")" -ge 300 ] || fail "the sample has $(wc -c <"$work/sample") bytes"
[ "$failures" -eq 0 ]
