#!/bin/sh
# compress and decompress through the program: round trips, streams, threads, and every refusal, after which nothing new stands there.
. "$(dirname "$0")/support.sh"
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/a --steps 60
expect 0 '' export runs/a --dtype f32 -o a.dmexp
expect 0 'compress' --help
expect 0 'Only the same export' compress --help
expect 0 'exit code is 0' decompress --help

head -c 3000 text.txt >some.txt
: >empty
printf 'x' >one
head -c 4000 /dev/zero >zeros
head -c 3000 "$DORMOUSE" >program
head -c 3000 /dev/urandom >noise
for name in some.txt empty one zeros program noise; do
  expect 0 "^$name: [0-9,]+ -> [0-9,]+ bytes" compress a.dmexp $name out.dmz --block 500
  expect 0 'out.dmz: ' decompress a.dmexp out.dmz back --stats
  cmp -s $name back || fail "$name does not come back"
done
expect 0 '' compress a.dmexp some.txt some.dmz --block 200 -t 1
expect 0 '' compress a.dmexp some.txt two.dmz --block 200 -t 2
cmp -s some.dmz two.dmz || fail "two threads write another archive than one"
expect 0 '' decompress a.dmexp some.dmz back -t 2
cmp -s some.txt back || fail "two threads read otherwise than one"
expect 0 'blocks, [0-9]+ of them raw.*bytes/s' compress runs/a some.txt run.dmz --stats --block 200
expect 0 '1 block, [0-9]+ of them raw.*bytes/s' compress runs/a some.txt run.dmz --stats
expect 0 'original bytes +3,000.*blocks +15 of 200 bytes.*checksums verified' info some.dmz
expect 0 '"original_bytes":3000,.*"checksums":"verified"' info some.dmz --json
expect 0 '"original_bytes":3000,.*"message_bpb":[0-9.]+' compress runs/a some.txt run.dmz --json

# The messages have the length that eval says, in the same windows.
bpb=$("$DORMOUSE" eval a.dmexp --data some.txt --seq-len 200 --json -t 1 | sed 's/.*"bpb":\([0-9.]*\).*/\1/')
message=$("$DORMOUSE" compress a.dmexp some.txt some.dmz --block 200 --json | sed 's/.*"message_bpb":\([0-9.]*\).*/\1/')
# 15 messages, each up to a byte longer than its bits
awk -v a="$bpb" -v b="$message" 'BEGIN { exit !(b > a * 0.999 && b < a * 1.001 + 15 * 8 / 2999) }' || fail "eval says $bpb, compress $message"

# Streams.
"$DORMOUSE" compress a.dmexp - - --block 200 <some.txt >stream.dmz 2>err.txt || fail "compress through streams: $(cat err.txt)"
"$DORMOUSE" decompress a.dmexp - - <stream.dmz 2>err.txt | cmp -s - some.txt || fail "decompress through streams: $(cat err.txt)"
"$DORMOUSE" compress a.dmexp - - </dev/null 2>/dev/null | "$DORMOUSE" decompress a.dmexp - back 2>/dev/null
[ -e back ] && [ ! -s back ] || fail "an empty stream does not come back"
expect 2 'error: .*--json.*OUT a name' compress a.dmexp some.txt - --json
if [ -w /dev/full ]; then
  "$DORMOUSE" decompress a.dmexp some.dmz - >/dev/full 2>err.txt && fail "a full stdout is not noticed"
  grep -q '^error: .*stdout' err.txt || fail "a full stdout: $(cat err.txt)"
fi

# Refusals; the file that stood there stays.
echo before >kept
refused() { # CODE REGEX ARGUMENTS
  expect "$@"
  [ "$(cat kept)" = before ] || fail "a refused command wrote: $*"
  [ "$(find . -name '*.tmp.*' | wc -l)" -eq 0 ] || fail "a temporary file stays: $*"
}
head -c 300 some.dmz >cut.dmz
refused 1 'error: cut.dmz is cut off after 300 bytes' decompress a.dmexp cut.dmz kept
(head -c 100 some.dmz; printf 'X'; tail -c +102 some.dmz) >changed.dmz
refused 1 'error: changed.dmz .*changed or cut' decompress a.dmexp changed.dmz kept
"$DORMOUSE" decompress a.dmexp - kept <changed.dmz 2>err.txt && fail "a changed stream is not noticed"
[ "$(cat kept)" = before ] || fail "a changed stream wrote"
refused 1 'error: text.txt is a text file, not a file that dormouse compress wrote' decompress a.dmexp text.txt kept
refused 1 'error: a.dmexp is a dormouse export' decompress a.dmexp a.dmexp kept
refused 1 'error: empty is empty' decompress a.dmexp empty kept
refused 1 'error: runs is a directory' decompress a.dmexp runs kept
refused 1 'error: runs is a directory' compress a.dmexp runs kept
refused 1 'error: .*nowhere' compress a.dmexp nowhere kept
mkfifo pipe
refused 1 'error: pipe is a named pipe' compress a.dmexp pipe kept
refused 1 'error: pipe is a named pipe' decompress a.dmexp pipe kept
refused 1 'error: .*pipe.*it is a pipe' compress a.dmexp some.txt pipe
refused 1 'error: .*runs.*directory' decompress a.dmexp some.dmz runs
refused 2 'error: OUT kept is IN itself' compress a.dmexp kept kept
refused 2 'error: OUT a.dmexp is the model' compress a.dmexp some.txt a.dmexp
refused 2 'error: --block' compress a.dmexp some.txt kept --block 0
refused 2 'error: --block' compress a.dmexp some.txt kept --block 2Mi
refused 1 'error: .*is a training checkpoint.*dormouse export' compress runs/a/checkpoint.safetensors some.txt kept
refused 1 'error: .*compressed file.*dormouse decompress' generate some.dmz
refused 1 'error: .*compressed file.*dormouse decompress' generate some.dmz -p x
expect 0 '' export runs/a --dtype int8 -o other.dmexp
refused 1 'error: some.dmz was compressed with another model than other.dmexp' decompress other.dmexp some.dmz kept
level=$("$DORMOUSE" --version | sed 's/.*CPU level \([a-z0-9]*\).*/\1/')
if [ "$level" != scalar ]; then
  refused 1 "error: some.dmz was compressed at CPU level $level and this is scalar.*--cpu $level" decompress a.dmexp some.dmz kept --cpu scalar
  expect 0 '' compress a.dmexp some.txt scalar.dmz --cpu scalar
  expect 0 '' decompress a.dmexp scalar.dmz back --cpu scalar
  cmp -s some.txt back || fail "at CPU level scalar it does not come back"
fi
# Ended by a signal in the middle of a text that goes on: nothing half written stays.
mkfifo endless
sleep 60 >endless &
feeder=$!
"$DORMOUSE" compress a.dmexp - slow.dmz <endless 2>err.txt &
pid=$!
tries=0
until [ -e "slow.dmz.tmp.$pid" ] || [ $tries -gt 300 ]; do
  sleep 0.1
  tries=$((tries + 1))
done
[ -e "slow.dmz.tmp.$pid" ] || fail "compress has no temporary after 30 seconds: $(cat err.txt)"
kill -TERM $pid
got=0
wait $pid || got=$?
[ $got -eq 143 ] || fail "compress ended by TERM: exit $got"
kill $feeder
for left in slow.dmz*; do
  [ ! -e "$left" ] || fail "$left stays after TERM"
done
finish
