#!/bin/sh
# Every file of tests/bad/files: refused with one line, the expected one, by the commands that read models; the good ones are read.
. "$(dirname "$0")/../cli/support.sh"
here=$SOURCE/tests/bad
if command -v python3 >/dev/null 2>&1; then
  python3 "$here/make.py" made
  diff -r made "$here/files" >/dev/null || fail "tests/bad/files are not what tests/bad/make.py writes"
fi
for file in "$here"/files/good-*; do
  name=$(basename "$file")
  expect 0 'checksums (payload )?verified' info "$file"
  expect 0 'seed' generate "$file" -p x -n 3 -s 1
  expect 0 'bpb' eval "$file" --data text.txt --bytes 200 -t 1
done
count=0
tab=$(printf '\t')
while IFS="$tab" read -r name pattern; do
  file=$here/files/$name
  [ -f "$file" ] || fail "messages.txt names $name, which is not there"
  expect 1 "error: .*$pattern" generate "$file" -p x -n 1
  grep -qF "$name" err.txt || fail "the answer to $name does not name it: $(cat err.txt)"
  # What is no export is another kind of file to these; nothing of it is computed with.
  for command in "eval $file --data text.txt -t 1" "logits $file text.txt --out out.npy -t 1"; do
    # shellcheck disable=SC2086
    expect 1 "error: .*$name" $command
  done
  "$DORMOUSE" info "$file" >out.txt 2>err.txt
  got=$?
  [ $got -le 1 ] && [ "$(grep -c '^error: ' err.txt)" -eq $got ] || fail "info of $name: exit $got"
  count=$((count + 1))
done <"$here/messages.txt"
[ "$count" -ge 60 ] || fail "only $count bad files"
[ "$count" -eq "$(ls "$here/files" | grep -vc '^good-')" ] || fail "messages.txt does not name every bad file"
finish
