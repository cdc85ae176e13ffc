#!/bin/sh
# dormouse plot: runs over each other in one file that needs nothing else; what cannot be drawn is an error or counted.
. "$(dirname "$0")/support.sh"
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/a --steps 12 --batch 2 --log-every 1 --eval-every 4
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run 'runs/b<&>' --steps 6 --batch 2 --log-every 2 --seed 2

expect 0 'plot.html: 1 run, 12 log lines, 3 evaluations' plot runs/a
grep -q '<!DOCTYPE html>' plot.html || fail "plot.html is no page"
grep -q 'kneser-ney' plot.html || fail "no anchors in the plot"
expect 0 'x.svg: 2 runs' plot runs/a 'runs/b<&>' -o x.svg
grep -q 'b&lt;&amp;&gt;' x.svg || fail "a name is not escaped"
if command -v python3 >/dev/null; then
  python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' x.svg || fail "x.svg is not XML"
fi
if grep -qE '<script|src=|href=' plot.html x.svg; then fail "something is fetched"; fi
expect 0 '"runs":2,"steps":[0-9]+,"evals":[0-9]+,"torn_bytes":0,"unreadable":0,"missing":0' plot runs/a runs/a/metrics.jsonl --out y.html --json
"$DORMOUSE" plot runs/a --out - >page.html 2>err.txt || fail "plot to stdout"
cmp -s page.html plot.html || fail "stdout differs from the file"

# A run in progress, a run of one step, several of one name.
mkdir -p runs/now runs/one other/a
head -6 runs/a/metrics.jsonl >runs/now/metrics.jsonl
printf '{"event":"st' >>runs/now/metrics.jsonl
expect 0 'now: 12 bytes of an unfinished last line left out' plot runs/now
grep -E -m 2 '"event":"(start|step)"' runs/a/metrics.jsonl >runs/one/metrics.jsonl
expect 0 'plot.html: 1 run, 1 log lines' plot runs/one
cp runs/a/metrics.jsonl other/a/
expect 0 'plot.html: 2 runs' plot runs/a other/a
grep -q '>runs/a<' plot.html && grep -q '>other/a<' plot.html || fail "runs of one name are not told apart"

mkdir runs/empty runs/none runs/text
: >runs/empty/metrics.jsonl
echo 'once upon a time' >runs/text/metrics.jsonl
cp plot.html before.html
expect 1 'holds no step yet' plot runs/empty
expect 1 'has no metrics.jsonl; give the directory of a run' plot runs/none
expect 1 'does not exist' plot runs/missing
expect 1 'is not the metrics.jsonl of a run' plot runs/text
expect 1 'is not the metrics.jsonl of a run' plot runs/a text.txt
expect 1 'error: ' plot runs/a --out nowhere/x.html
expect 2 'RUN|runs' plot
expect 2 'did you mean .--out' plot runs/a --ouf x
expect 2 'leave one of them out' plot runs/a --out - --json
cmp -s before.html plot.html || fail "a failed plot touched plot.html"
[ -z "$(find . -name '*.tmp.*')" ] || fail "temporaries are left"

# TensorBoard: a file per start, on request; a torn line is mended and said.
[ -z "$(find runs -name '*tfevents*')" ] || fail "event files without --tensorboard"
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/c --steps 6 --batch 2 --log-every 1 --tensorboard
[ "$(find runs/c -name '*tfevents*' | wc -l)" -eq 1 ] || fail "not one event file after a start"
printf '{"event":"step","st' >>runs/c/metrics.jsonl
expect 0 'metrics.jsonl: its last line, 19 bytes, was never finished' train --run runs/c --extend 4
[ "$(find runs/c -name '*tfevents*' | wc -l)" -eq 2 ] || fail "a resume did not begin a second event file"
grep -a -q 'step/ce' "$(find runs/c -name '*tfevents*' | sort | tail -1)" || fail "no scalars in the second event file"
grep -q '^{"event":"torn","bytes":19,' runs/c/metrics.jsonl || fail "the torn line is lost"
expect 0 'plot.html: 1 run' plot runs/c
finish
