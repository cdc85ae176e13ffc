#!/bin/sh
# Evaluation from the command line: the same twice, the same as the run's own, N-1 scored bytes for N, whatever the batch was.
. "$(dirname "$0")/support.sh"
value() { sed -n "s/.*\"$1\":\([-0-9.e+]*\).*/\1/p" "$2" | tail -1; }
for batch in 3 8; do
  expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/$batch --steps 40 --batch $batch --lr 0.01
  "$DORMOUSE" eval runs/$batch -t 1 --json >one.json 2>/dev/null || fail "eval runs/$batch"
  "$DORMOUSE" eval runs/$batch -t 1 --json >two.json 2>/dev/null
  cmp -s one.json two.json || fail "two evaluations differ"
  grep '"event":"end"' runs/$batch/metrics.jsonl >end.json
  [ "$(value bpb one.json)" = "$(value bpb end.json)" ] || fail "batch $batch: eval says $(value bpb one.json), the run $(value bpb end.json)"
  [ "$(value scored one.json)" -eq $(($(value bytes one.json) - 1)) ] || fail "scored $(value scored one.json) of $(value bytes one.json)"
done
for n in 2 32 33 34 65 500; do
  "$DORMOUSE" eval runs/8 -t 1 --data text.txt --bytes "$n" --json >one.json 2>/dev/null
  [ "$(value bytes one.json)" -eq $n ] && [ "$(value scored one.json)" -eq $((n - 1)) ] || fail "$n bytes: $(cat one.json)"
done

# A text that the run was trained on is called that; another is not.
cp text.txt copy.txt
expect 0 'bpb.*WARNING: runs/8/best.safetensors was trained on copy.txt: ' eval runs/8/best.safetensors --data copy.txt --bytes 100
[ "$(wc -l <err.txt)" -eq 1 ] || fail "the warning is not one line: $(cat err.txt)"
expect 0 'bpb' eval runs/8 --data small.toml
[ ! -s err.txt ] || fail "a new text is warned of, or a bar is drawn without a terminal: $(cat err.txt)"

head -c 5000 text.txt | tail -c 3000 >some.txt
expect 0 'some.txt: WARNING: 100% of it stands in the training text too' eval runs/8 --data some.txt
expect 0 'some.txt: WARNING: 100% of it stands' eval runs/8/best.safetensors --data some.txt
mv text.txt elsewhere.txt
expect 0 'bpb' eval runs/8 --data some.txt
[ ! -s err.txt ] || fail "without the training text: $(cat err.txt)"
mv elsewhere.txt text.txt

# A run says how much of its held-out text it trains on all the same.
expect 0 'held out .*copy.txt.; WARNING: 100% of it stands in the training text too' train --config small.toml -t 1 --data text.txt \
  --eval copy.txt --run runs/copy --steps 1
cat small.toml text.txt >parts.txt
expect 0 'parts.txt.; WARNING: 9[0-9]% of it' train --config small.toml -t 1 --data text.txt --eval parts.txt --run runs/parts --steps 1
expect 0 'held out .*small.toml' train --config small.toml -t 1 --data text.txt --eval small.toml --run runs/other --steps 1
! grep -q 'training text too' out.txt err.txt || fail "other text is called that of the training"
finish
