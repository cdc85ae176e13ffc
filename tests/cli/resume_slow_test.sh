#!/bin/sh
# A run stopped by a signal saves, says how it ended, and resumes to exactly what it would have been; --extend goes on.
. "$(dirname "$0")/support.sh"
common="--config small.toml -t 1 --data text.txt --steps 400 --accum 2 --compute f32"
# shellcheck disable=SC2086
expect 0 'done:' train $common --run runs/whole
# Runs a command whose steps are logged into log.txt, and sends it a signal after so many; its exit code.
stop_after() { # LINES SIGNAL WORDS...
  lines=$1 signal=$2
  shift 2
  : >log.txt  # before the command is there: not the log of the last one
  "$DORMOUSE" "$@" 2>log.txt &
  n=0
  while [ "$(grep -c '^step ' log.txt)" -lt "$lines" ] && [ $n -lt 300 ]; do
    sleep 0.05
    n=$((n + 1))
  done
  kill -"$signal" $!
  wait $!
}
stop_and_resume() { # SIGNAL CODE
  # shellcheck disable=SC2086
  stop_after 5 "$1" train $common --run runs/"$1" --log-every 1
  code=$?
  [ $code -eq "$2" ] || fail "SIG$1: exit $code, expected $2"
  grep -q 'the same command resumes' log.txt || fail "SIG$1: does not say how to go on"
  expect 0 'resumed at step .*done:' train --run runs/"$1"
  "$DORMOUSE" logits runs/"$1" text.txt --out "$1.npy" --bytes 32 2>/dev/null
  cmp -s whole.npy "$1.npy" || fail "SIG$1: resumed weights differ from the uninterrupted run's"
}
"$DORMOUSE" logits runs/whole text.txt --out whole.npy --bytes 32 2>/dev/null
stop_and_resume TERM 143
stop_and_resume INT 130
stop_and_resume HUP 129
cmp -s runs/TERM/best.safetensors runs/INT/best.safetensors && fail "two runs share a run id"

expect 0 'extended to 500 steps.*done: 500 steps' train --run runs/whole --extend 100
expect 0 'finished' train --run runs/whole
stop_after 1 TERM train --run runs/TERM --extend 1000000
grep -q 'train --run runs/TERM resumes' log.txt || fail "a stopped --extend: does not say how to go on"
expect 0 'so far: [0-9,]+ of 1,000,[0-9]+ steps .*next: .*train --run runs/TERM ' info runs/TERM
! grep -q 'rose after' out.txt || fail "info compares with an evaluation after the state before the decay"
expect 2 'error: .*not finished|finished' train --data text.txt --run runs/fresh --config small.toml --extend 10
finish
