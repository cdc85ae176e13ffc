#!/bin/sh
# Exports of every released version of the format load for ever and score what they scored when they were written.
. "$(dirname "$0")/../cli/support.sh"
here=$SOURCE/tests/formats
scores() {
  expect 0 "\"bpb\":$2" eval "$here/exports/$1" --data "$here/0.1/text.txt" -t 1 --json
  expect 0 'checksums verified' info "$here/exports/$1"
}
scores f32.dmexp 1.403
scores f16.dmexp 1.403
scores bf16.dmexp 1.402
scores int8.dmexp 1.405
scores ternary.dmexp 3.862
scores bf16.safetensors 1.402
expect 0 'loop.readout.u +BF16.*checksum verified' info "$here/exports/bf16.gguf"
expect 0 'seed' generate "$here/exports/int8.dmexp" -p x -n 5
if command -v python3 >/dev/null 2>&1; then
  for file in "$here"/exports/*.dmexp; do
    python3 "$SOURCE/tools/read_dmexp.py" "$file" --values 1 >out.txt || fail "read_dmexp.py $file"
  done
fi
finish
