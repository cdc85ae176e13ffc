#!/bin/sh
# What surrounds the process: closed or full streams, a reader that goes away, a file size limit, nohup, pipes in the place of files.
. "$(dirname "$0")/support.sh"
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/a --steps 2
good() { # every file of run $1 that stands under a final name is whole
  for file in "$1"/*.safetensors; do
    [ ! -e "$file" ] || "$DORMOUSE" info "$file" >/dev/null 2>&1 || fail "$file is damaged"
  done
  [ "$(find "$1" -name '*.tmp.*' | wc -l)" -eq 0 ] || fail "$1 keeps a temporary file"
}
# refuses CODE 'REGEX' 'SHELL LINE': exit code and the one error line of a line with redirections.
refuses() {
  eval "$3" 2>err.txt
  code=$?
  [ $code -eq "$1" ] || fail "exit $code, expected $1: $3"
  [ "$(grep -cE "^error: .*$2" err.txt)" -eq 1 ] || { fail "no one line /$2/ from: $3"; tail -3 err.txt; }
}

if [ -w /dev/full ]; then
  for command in 'eval runs/a' 'info runs/a' 'info --preset tiny' 'generate runs/a -p x -n 9' '--help' 'train --help' '--version'; do
    refuses 1 'stdout: No space' "\"\$DORMOUSE\" $command >/dev/full"
  done
fi
refuses 1 'stdout: Bad file' '"$DORMOUSE" eval runs/a >&-'
refuses 1 'stdin: Is a directory' '"$DORMOUSE" generate runs/a -f - -n 3 <runs >out.txt'
refuses 1 'stdin: Bad file' '"$DORMOUSE" generate runs/a -f - -n 3 <&- >out.txt'

# Log lines must not land in the files that are opened next.
"$DORMOUSE" train --config small.toml -t 1 --data text.txt --run runs/closed --steps 3 --log-every 1 <&- >&- 2>&-
[ $? -eq 0 ] || fail "a run without streams"
good runs/closed
grep -qE '^(step|EVAL) ' runs/closed/config.toml runs/closed/lock && fail "log lines in another file"

# A reader that goes away costs no step.
mkfifo reader
"$DORMOUSE" train --config small.toml -t 1 --data text.txt --run runs/pipe --steps 1000000 --log-every 1 --json >reader 2>err.txt &
pid=$!
head -2 reader >out.txt
wait $pid
code=$?
[ $code -eq 141 ] || fail "a broken pipe: exit $code, expected 141"
grep -q 'resumes' err.txt || fail "a broken pipe: does not say how to go on"
good runs/pipe
"$DORMOUSE" generate runs/a -p x -n 100000000 2>err.txt | head -c 10 >out.txt
[ "$(grep -vc '^seed' err.txt)" -eq 0 ] || fail "a broken pipe of generate is not quiet"

for blocks in 4 24 48; do # of 512 or 1,024 bytes
  rm -rf runs/limit
  refuses 1 'File too large' "(ulimit -f $blocks; \"\$DORMOUSE\" train --config small.toml -t 1 --data text.txt --run runs/limit --steps 2 --json >out.txt)"
  [ ! -e runs/limit ] || good runs/limit
done
refuses 1 'File too large' '(ulimit -f 1; "$DORMOUSE" logits runs/a text.txt --out l.npy)'
[ -z "$(find . -maxdepth 1 -name 'l.npy*')" ] || fail "a refused write leaves a file"

(trap '' HUP && exec "$DORMOUSE" train --config small.toml -t 1 --data text.txt --run runs/nohup --steps 1000000 --log-every 1) 2>log.txt &
pid=$!
n=0
while ! grep -q '^step 5 ' log.txt && [ $n -lt 300 ]; do
  sleep 0.05
  n=$((n + 1))
done
kill -HUP $pid
sleep 0.3
kill -TERM $pid 2>/dev/null
wait $pid
code=$?
[ $code -eq 143 ] || fail "HUP under nohup: exit $code, expected 143 of the TERM after it"

for name in metrics.jsonl log.txt; do
  cp -r runs/a runs/fifo && rm "runs/fifo/$name" && mkfifo "runs/fifo/$name"
  expect 1 "error: .*$name" train --run runs/fifo
  rm -rf runs/fifo
done
cp -r runs/a runs/lost && rm runs/lost/checkpoint.safetensors runs/lost/previous.safetensors
expect 1 'error: .*no checkpoint\.safetensors' train --run runs/lost
dd if=/dev/null of=huge bs=1 seek=5000000000 2>/dev/null
expect 0 'float32 \[32,256\]' logits runs/a huge --out l.npy
cp text.txt "$(printf 'caf\351.txt')"
expect 1 'error: .*UTF-8.*rename' train --data "$(printf 'caf\351.txt')" --run runs/bad
mkdir folder && mv caf*.txt folder/ && cp text.txt folder/
expect 0 'done:' train --config small.toml -t 1 --data folder --run runs/latin --steps 1
if [ "$(id -u)" -ne 0 ]; then
  mkdir closed && chmod 000 closed
  expect 1 'error: cannot read closed: Permission denied.*--run' train --data text.txt --run closed
  chmod 700 closed
fi
expect 2 'error: .*compute.*one of f32, bf16, i16' train --data text.txt --set compute=f8 --run runs/bad
expect 2 'error: --steps .*more than once' train --data text.txt --steps 1 --steps 2
finish
