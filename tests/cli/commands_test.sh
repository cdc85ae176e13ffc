#!/bin/sh
# What the commands print: help, version, JSON, exit codes, generation.
. "$(dirname "$0")/support.sh"
expect 0 'dormouse 0\..*commit.*GEMM' --version
expect 0 'train.*generate' --help
expect 2 'error: .*--bogus' --bogus=1
for command in train eval logits anchors export info generate; do
  expect 0 "xample" $command --help
done
for preset in tiny nano small base; do expect 0 "$preset: [0-9]+ tensors" info --preset $preset; done
expect 0 'small: 45 tensors, 8,399,693 parameters' info --preset small
expect 0 'Kneser|kneser' anchors text.txt
expect 0 '^\{.*"best":' anchors text.txt --json
expect 2 'unknown command `trian`, did you mean `train`' trian --help
expect 1 '\{"error":' eval nowhere --json

expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/a --steps 3 --log-every 1 --json
! grep -q '  hint ' err.txt || fail "a hint on larger memory for a small text"
[ "$(grep -c '"event":"step"' out.txt)" -eq 3 ] || fail "train --json prints one object per logged step"
grep -qF "next:  $DORMOUSE generate runs/a " err.txt && grep -qF " $DORMOUSE train --run runs/a --extend " err.txt ||
  fail "the next commands do not begin as the program was called"
tail -1 out.txt >end.json
grep -q '"event":"end".*"bpb":' end.json || fail "train --json does not end with the result"
i=0
while [ $i -lt 25 ]; do cat text.txt; i=$((i + 1)); done >large.txt
expect 0 'hint     --set engram_rows=262144' train --config small.toml -t 1 --data large.txt --run runs/large --steps 1
expect 0 'finished' train --run runs/large
! grep -q '  hint ' err.txt || fail "a hint on a resume"
expect 0 'finished' train --run runs/a --json
cmp -s end.json out.txt || fail "train --json of a finished run prints another result: $(cat out.txt)"
[ "$(grep -c '"event":"end"' runs/a/metrics.jsonl)" -eq 1 ] || fail "a finished run is logged as ending again"
expect 0 '"bpb":.*"rec_bpb":.*"bytes":' eval runs/a --data text.txt --bytes 500 --json
expect 0 'depth +2 ' eval runs/a --data text.txt --bytes 500 --depths
expect 0 'held-out text' eval runs/a
expect 0 'model +[^:]*: .*done: [0-9]+ steps in .*held-out BPB .*next: .*dormouse generate .*checkpoint.safetensors: .*checksums verified' info runs/a
! grep -q 'model.embedding' out.txt || fail "info of a run lists its tensors"
expect 0 'model.embedding.weight .*checksums verified' info runs/a/checkpoint.safetensors
mkdir other && cp runs/a/checkpoint.safetensors other/
expect 0 'done: [0-9]+ steps .*checksums verified' info other/
cp runs/a/best.safetensors other/checkpoint.safetensors
expect 0 'model.embedding.weight .*checksums verified' info other
! grep -q 'next:' out.txt || fail "info says how to go on from weights alone"
expect 0 '"checksums":"verified"' info runs/a/best.safetensors --json
expect 0 'float32 \[32,256\]' logits runs/a text.txt -o x.npy --bytes 32
[ "$(wc -c <x.npy)" -eq $((128 + 32 * 256 * 4)) ] || fail "the size of x.npy"
[ "$(head -c 6 x.npy | tail -c 5)" = NUMPY ] || fail "the magic of x.npy"

# The same seed says the same; greedy needs none; -n bytes exactly; stop strings.
"$DORMOUSE" generate runs/a -p 'the ' -n 40 -s 3 --raw >g1 2>e1
"$DORMOUSE" generate runs/a -p 'the ' -n 40 -s 3 --raw >g2 2>e2
cmp -s g1 g2 || fail "the same seed, other bytes"
[ "$(wc -c <g1)" -eq 40 ] || fail "-n 40 wrote $(wc -c <g1) bytes"
grep -q '^seed 3, weights of step 3$' e1 || fail "the seed and the step are not printed: $(cat e1)"
"$DORMOUSE" generate runs/a -p 'the ' -n 40 -s 4 --raw >g3 2>/dev/null
cmp -s g1 g3 && fail "another seed, the same bytes"
printf 'the ' | "$DORMOUSE" generate runs/a -f - -n 40 -s 3 --raw >g4 2>/dev/null
cmp -s g1 g4 || fail "-f - and -p differ"
"$DORMOUSE" generate runs/a -p 'the\x20' -e -n 40 -s 3 --raw >g5 2>/dev/null
cmp -s g1 g5 || fail "-e does not read \\x20"
"$DORMOUSE" generate runs/a -p x -n 40 --temp 0 --raw >g6 2>/dev/null
"$DORMOUSE" generate runs/a -p x -n 40 --temp 0 -s 9 --raw >g7 2>/dev/null
cmp -s g6 g7 || fail "greedy depends on the seed"
"$DORMOUSE" generate runs/a -p x -n 2000 --top-k 256 --temp 50 -s 1 >g8 2>/dev/null
LC_ALL=C grep -q '[^[:print:][:space:]]' g8 && [ "$(iconv -f UTF-8 -t UTF-8 g8 2>/dev/null | wc -c)" -ne "$(wc -c <g8)" ] && fail "not UTF-8 without --raw"
stop=$(head -c 12 g6 | tail -c 4)
"$DORMOUSE" generate runs/a -p x -n -1 --temp 0 --stop "$stop" --raw >g9 2>/dev/null
head -c "$(wc -c <g9)" g6 | cmp -s - g9 || fail "--stop changed the text"
[ "$(wc -c <g9)" -le 8 ] || fail "--stop did not stop"
"$DORMOUSE" generate runs/a -p x -n 100000 2>/dev/null | head -c 10 >/dev/null
finish
