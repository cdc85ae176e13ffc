#!/bin/sh
# export, info of what it writes, and who reads what: an independent reader agrees, every refusal names the command that works.
. "$(dirname "$0")/support.sh"
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/a --steps 4 --eval-every 2
expect 0 'export' --help
expect 0 'dtype.*best' export --help

# Sizes: 24 + header + parameters x bytes; the header's length stands at byte 8.
u32() { od -An -tu4 -j "$2" -N 4 "$1" | tr -d ' '; }
parameters=$("$DORMOUSE" info runs/a --json | sed 's/.*"parameters":\([0-9]*\).*/\1/')
for dtype in f32 f16 bf16; do
  expect 0 "$dtype.*next:  [^ ]*dormouse generate $dtype.dmexp" export runs/a --dtype $dtype -o $dtype.dmexp
  bytes=2
  [ $dtype = f32 ] && bytes=4
  [ "$(wc -c <$dtype.dmexp)" -eq $((24 + $(u32 $dtype.dmexp 8) + parameters * bytes)) ] || fail "size of $dtype.dmexp"
  expect 0 "dtype +$dtype.*source +checkpoint.safetensors@step4.*checksums verified.*max_iter = 2" info $dtype.dmexp
done
expect 0 'int8' export runs/a --dtype int8 -o int8.dmexp
expect 1 'error: .*not ternary.*--force' export runs/a --dtype ternary -o ternary.dmexp
expect 0 'rounding to ternary: bpb [0-9.]+ -> [0-9.]+ over [0-9,]+ B' export runs/a --dtype ternary --force -o ternary.dmexp
cp runs/a/checkpoint.safetensors loose.safetensors
expect 0 'not known here.*dormouse eval loose.dmexp --data' export loose.safetensors --dtype ternary --force

# How far its logits are from those of f32.
for dtype in f16 bf16 int8 ternary; do
  expect 0 "largest difference of a logit over 4,096 bytes of the run's held-out text: [0-9.e-]*[1-9][0-9.e-]* \($dtype against f32\)" \
    export runs/a --dtype $dtype --force -o x.dmexp
done
"$DORMOUSE" export runs/a --dtype bf16 --json 2>/dev/null | grep -q '"logit_difference":.*"logit_positions":4096' || fail "logits in export --json"
expect 0 'f32' export runs/a --dtype f32 -o x.dmexp
grep -q 'difference of a logit' out.txt && fail "f32 is compared with itself"
expect 0 'largest difference of a logit from f32: not known here \(no run directory' export loose.safetensors
mv text.txt away.txt
expect 0 'largest difference of a logit from f32: not known here \(.*text.txt' export runs/a -o x.dmexp
mv away.txt text.txt
expect 0 'loose.safetensors@step4' info loose.dmexp --json

# Logits of an f32 export are those of its checkpoint, bit for bit; the others differ.
for model in runs/a runs/a/checkpoint.safetensors f32.dmexp bf16.dmexp int8.dmexp; do
  expect 0 '' logits $model text.txt --out "$(basename $model).npy" -t 1
done
cmp -s a.npy f32.dmexp.npy || fail "f32 logits differ from the run's"
cmp -s checkpoint.safetensors.npy f32.dmexp.npy || fail "f32 logits differ from the checkpoint's"
cmp -s f32.dmexp.npy bf16.dmexp.npy && fail "bf16 logits are those of f32"
expect 0 'bpb' eval bf16.dmexp --data text.txt --bytes 500 -t 1

# The independent reader.
if command -v python3 >/dev/null 2>&1; then
  for dtype in f32 f16 bf16 int8 ternary; do
    expect 0 'safetensors' export $dtype.dmexp --format safetensors --dtype f32 -o $dtype.safetensors
    python3 "$SOURCE/tools/read_dmexp.py" $dtype.dmexp --compare $dtype.safetensors >out.txt 2>&1 || { fail "read_dmexp.py: $dtype"; tail -3 out.txt; }
    grep -q '^[0-9]* tensors compared, 0 differ$' out.txt || fail "read_dmexp.py says: $(tail -1 out.txt)"
  done
  python3 "$SOURCE/tools/read_dmexp.py" bf16.dmexp --compare f32.safetensors >out.txt 2>&1 && fail "read_dmexp.py finds bf16 and f32 equal"
  head -c 1000 bf16.dmexp >cut.dmexp
  python3 "$SOURCE/tools/read_dmexp.py" cut.dmexp >out.txt 2>&1 && fail "read_dmexp.py reads a file cut short"
  python3 "$SOURCE/tools/read_checkpoint.py" bf16.safetensors --check >out.txt || fail "read_checkpoint.py of an interchange file"
fi

# Interchange and GGUF.
expect 0 'next:' export runs/a --format safetensors
expect 0 'dormouse.kind +model.*format +pt.*bf16.*checksums verified' info runs/a/model.safetensors
expect 0 'bpb' eval runs/a/model.safetensors --data text.txt --bytes 500 -t 1
expect 0 'next:' export runs/a/model.safetensors -o back.dmexp
expect 0 'gguf' export runs/a --format gguf
expect 0 'general.architecture +dormouse.*loop.readout.u +BF16 +\[6, 16\].*checksum verified' info runs/a/model.gguf
expect 1 'error: .*blocks of 256.*--dtype bf16' export runs/a --format gguf --dtype ternary --force -o t.gguf
expect 2 'error: .*--dtype' export runs/a --format safetensors --dtype int8 -o x.safetensors
expect 2 'error: .*--dtype' export runs/a --format gguf --dtype f16 -o x.gguf

# generate reads exports only.
rm -f runs/a/model.dmexp
expect 1 'error: runs/a.*has no model.dmexp; write it: [^ ]*dormouse export runs/a~' generate runs/a -p x
eval "$(sed -n 's/.*write it: //p' err.txt)" >/dev/null 2>&1 || fail "the command of the refusal does not work"
expect 0 'seed' generate runs/a -p x -n 3
expect 1 'error: .*is a training checkpoint .*with optimizer state.*convert it: [^ ]*dormouse export runs/a/checkpoint.safetensors~' \
  generate runs/a/checkpoint.safetensors -p x
eval "$(sed -n 's/.*convert it: //p' err.txt)" >/dev/null 2>&1 || fail "the command of the refusal does not work"
expect 0 'seed' generate runs/a/checkpoint.dmexp -p x -n 3
expect 1 'error: .*weights of a run.*dormouse export runs/a/best.safetensors' generate runs/a/best.safetensors -p x
expect 1 'error: .*is a GGUF model' generate runs/a/model.gguf -p x
expect 1 'error: .*is a text file' generate text.txt -p x
expect 1 'error: .*is a directory|without model.dmexp' generate runs -p x
mkfifo pipe
expect 1 'error: .*FIFO' generate pipe -p x
expect 1 'error: .*FIFO' export pipe
expect 1 'error: .*is a text file' export text.txt
expect 1 'error: .*is a text file' info text.txt

# An export older than what it was made of.
expect 0 '' export runs/a
cp runs/a/model.dmexp old.dmexp
expect 0 'done:' train --run runs/a --extend 4 -t 1
cp old.dmexp runs/a/model.dmexp
expect 1 'error: runs/a/model.dmexp.*is of step 4, and checkpoint.safetensors beside it of step [0-9]+; write it anew: [^ ]*dormouse export runs/a, or of the best weights so far: [^ ]*dormouse export runs/a --best~' \
  generate runs/a -p x
expect 0 '' export runs/a
expect 0 'seed' generate runs/a -p x -n 3

# --best, and what is not written over.
expect 0 'best.safetensors@step|from runs/a/best.safetensors' export runs/a --best
expect 0 'source +best.safetensors@step' info runs/a/model.dmexp
expect 2 'error: .*--best' export runs/a/best.safetensors --best
expect 1 'error: .*text.txt exists and is a text file' export runs/a -o text.txt
expect 1 'error: .*best.safetensors exists' export runs/a --format safetensors -o runs/a/best.safetensors
expect 2 'error: .*is what is exported' export runs/a --format safetensors -o runs/a/checkpoint.safetensors
expect 2 'error: .*--dtype \"f64\"' export runs/a --dtype f64
expect 2 'error: .*--format \"onnx\"' export runs/a --format onnx
expect 1 'error: .*nowhere' export runs/a -o nowhere/x.dmexp
"$DORMOUSE" export runs/a --json 2>/dev/null | grep -q '"flushed":' || fail "export --json"
if [ -e /dev/full ]; then
  expect 1 'error: ' export runs/a -o /dev/full
fi
finish
