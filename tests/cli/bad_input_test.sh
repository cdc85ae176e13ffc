#!/bin/sh
# Every bad input of `dormouse train` and of the commands that read a model: one line, the right exit code, no run left behind.
. "$(dirname "$0")/support.sh"
: >empty.txt
printf x >one.txt
head -c 200 text.txt >few.txt
expect 1 'error: .*empty\.txt.*empty' train --data empty.txt --run runs/bad
expect 1 'error: .*one\.txt' train --data one.txt --run runs/bad
expect 1 'error: .*few\.txt' train --data few.txt --run runs/bad
expect 1 'error: .*nowhere' train --data nowhere --run runs/bad
expect 1 'error: .*nowhere' train --data text.txt --eval nowhere --run runs/bad
expect 2 'error: .*--data' train
expect 2 'error: .*--data' train --run runs/bad

mkdir -p tree/.hidden 'tree/a b'
mkfifo tree/pipe
cp text.txt "tree/a b/text.txt"
expect 0 'skipped' train --config small.toml -t 1 --data tree --run runs/tree --steps 1
mkdir only && mkfifo only/pipe
expect 1 'error: .*only' train --data only --run runs/bad
expect 1 'error: .*(pipe|regular)' train --data only/pipe --run runs/bad
if [ "$(id -u)" -ne 0 ]; then
  cp text.txt tree/secret && chmod 000 tree/secret
  expect 0 'unreadable' train --config small.toml -t 1 --data tree --run runs/secret --steps 1
fi

# An unreadable entry, for root too: a link to nowhere.
ln -s nowhere tree/dangling
expect 0 'skipped.*unreadable.*dangling' train --config small.toml -t 1 --data tree --run runs/unreadable --steps 1

expect 1 'error: .*(tree.*tree|inside|overlap|contain)' train --data tree --eval "tree/a b" --run runs/bad
expect 1 'error: .*text\.txt' train --data text.txt --eval text.txt --run runs/bad
expect 1 'error: .*(tree.*tree|inside|overlap|contain)' train --data "tree/a b" --eval tree --run runs/bad
expect 2 'choose one' train --data text.txt --eval one.txt --eval-tail 100 --run runs/bad

expect 2 'error: .*tinny.*tiny' train --data text.txt --preset tinny --run runs/bad
expect 2 'error: .*d_modle.*d_model' train --data text.txt --set d_modle=3 --run runs/bad
expect 2 'error: unknown key "foo" in --set foo=3; [^ ]*dormouse train --help lists all keys' train --data text.txt --set foo=3 --run runs/bad
expect 0 'Keys of --set.* d_model .* lr .* eval_tail' train --help
expect 2 'error: .*--batc.*--batch' train --data text.txt --batc 3 --run runs/bad
expect 2 'error: .*trian.*train' trian
expect 2 'error: .*d_model.*whole number' train --data text.txt --set d_model=wide --run runs/bad
expect 2 'error: .*key=value' train --data text.txt --set d_model --run runs/bad
expect 2 'error: unexpected argument .n_experts=3.; .*repeated.*: --set n_experts=3' train --data text.txt --set d_model=32 n_experts=3 --run runs/bad
expect 2 'error: unexpected argument .text.txt.; was --data text.txt meant' train text.txt
expect 2 'error: unexpected argument .Dear you.; was --prompt .Dear you. meant' generate runs/a 'Dear you'
expect 2 'error: unexpected argument .more.; see [^ ]*dormouse train --help' train --data text.txt more --run runs/bad
expect 2 'error: .*--steps 0' train --data text.txt --steps 0 --run runs/bad
expect 2 'error: .*--batch 0' train --data text.txt --batch 0 --run runs/bad
expect 2 'error: .*--batch' train --data text.txt --batch 100000000000000000000 --run runs/bad
expect 2 'error: .*batch' train --data text.txt --batch 1000000 --run runs/bad
expect 2 'error: .*--seq-len 512.*256' train --data text.txt --seq-len 512 --run runs/bad
expect 2 'error: .*--lr' train --data text.txt --lr nan --run runs/bad
expect 2 'error: .*--lr' train --data text.txt --lr -1 --run runs/bad
expect 2 'error: .*--time-limit' train --data text.txt --time-limit soon --run runs/bad
expect 2 'error: .*choose one' train --data text.txt --time-limit 5m --steps 3 --run runs/bad
expect 2 'error: .*opt' train --data text.txt --opt sgd --run runs/bad
expect 2 'error: .*--compute' train --data text.txt --compute f16 --run runs/bad
expect 2 'error: --compute i16 needs a CPU with AVX2' train --data text.txt --compute i16 --cpu scalar --run runs/bad
expect 2 'error: unknown flag .--mistyped' export --mistyped x
expect 2 'error: --threads 0: must be from 1 to 64' anchors text.txt -t 0
expect 2 'error: --threads 0: must be from 1 to 64' eval text.txt --data text.txt -t 0
expect 2 'error: .*cpu' train --data text.txt --cpu z80 --run runs/bad
expect 2 'error: ' train --data text.txt --preset tiny --config small.toml --run runs/bad
expect 1 'error: .*n_heads' train --data text.txt --set n_heads=3 --run runs/bad
printf '[model]\nd_model = "wide"\n' >wrong.toml
expect 1 'error: .*d_model.*wrong\.toml' train --data text.txt --config wrong.toml --run runs/bad
printf '[model\n' >broken.toml
expect 1 'error: .*broken\.toml' train --data text.txt --config broken.toml --run runs/bad
printf '[model]\nd_modle = 3\n' >unknown.toml
expect 1 'error: .*d_modle.*d_model' train --data text.txt --config unknown.toml --run runs/bad
printf '[run]\ncolour = 3\n' >unknown.toml
expect 1 'error: unknown key "colour" in unknown.toml; the keys are .*run_id' train --data text.txt --config unknown.toml --run runs/bad
[ ! -e runs/bad ] || fail "a refused run left runs/bad behind"

# Files that are no model, or no longer one.
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/a --steps 2
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/b --steps 2 --set d_model=32
model=runs/a/checkpoint.safetensors
expect 0 'bpb' eval $model --data text.txt
expect 1 'error: .*text\.txt' eval text.txt --data text.txt
expect 1 'error: .*only' eval only --data text.txt
expect 1 'error: ' eval only/pipe --data text.txt
expect 1 'error: .*gone' generate gone -p x
head -c 3000 $model >cut.safetensors
expect 1 'error: .*cut\.safetensors' eval cut.safetensors --data text.txt
head -c 5 $model >cut.safetensors
expect 1 'error: .*cut\.safetensors' info cut.safetensors
# One bit of the last tensor of the weights file.
size=$(wc -c <runs/a/best.safetensors)
cp runs/a/best.safetensors flipped.safetensors
printf '\252' | dd of=flipped.safetensors bs=1 seek=$((size - 3)) conv=notrunc 2>/dev/null
expect 1 'error: .*flipped\.safetensors' eval flipped.safetensors --data text.txt
expect 1 'error: .*flipped\.safetensors' info flipped.safetensors
# A NaN as the last weight, in a file without checksums.
LC_ALL=C sed -e 's/"crc32"/"xrc32"/' -e 's/"crc32_header"/"xrc32_header"/' runs/a/best.safetensors >nan.safetensors
expect 0 'bpb' eval nan.safetensors --data text.txt
expect 0 '"not_finite":0' info nan.safetensors --json
printf '\000\000\300\177' | dd of=nan.safetensors bs=1 seek=$((size - 4)) conv=notrunc 2>/dev/null
for command in 'eval nan.safetensors --data text.txt' 'export nan.safetensors' 'logits nan.safetensors text.txt --out x.npy'; do
  # shellcheck disable=SC2086
  expect 1 'error: .*nan\.safetensors.*(finite|not a number|NaN|nan)' $command
done
expect 0 'checksums absent~WARNING: 1 value NaN or infinite, in 1 tensor, the first model\.' info nan.safetensors
expect 0 '"first_not_finite":"model\.[a-z0-9._]+","not_finite":1,' info nan.safetensors --json
# Another config's weights under a config that names other shapes.
LC_ALL=C sed 's/d_model = 16/d_model = 32/' nan.safetensors >other.safetensors
expect 1 'error: .*other\.safetensors' eval other.safetensors --data text.txt
# Another config's weights under this config.
cp runs/b/checkpoint.safetensors runs/a/checkpoint.safetensors
expect 1 'error: .*(another run|belongs)' train --run runs/a
expect 1 'error: .*runs/a.*another model' eval runs/a
expect 1 'error: .*one\.txt|at least 2' eval runs/b --data one.txt
expect 2 'error: .*depth' generate runs/b -p x --depth 9
expect 2 'error: .*--temp' generate runs/b -p x --temp -1
expect 2 'error: .*top-p' generate runs/b -p x --top-p 0

# A run keeps its settings, its data and its name.
expect 2 'error: .*batch = 8.*--batch 4' train --run runs/b --batch 4
expect 2 'error: .*preset' train --run runs/b --preset nano
expect 1 'error: .*--new' train --run runs/b --new
expect 0 'finished' train --run runs/b
expect 0 'finished' train --config small.toml -t 1 --data text.txt --run runs/b --steps 2 --set d_model=32
cp text.txt moved.txt
expect 1 'error: runs/b was trained on other data than moved.txt holds now: text.txt is not there.*--data.*--run' train --run runs/b --data moved.txt
echo more >>text.txt
expect 1 'error: .*other data.*: text.txt has [0-9,]+ bytes and had [0-9,]+; bring the files back, give --data .*--run~' train --run runs/b
expect 1 'error: .*other data.*: text.txt has .*; bring the files back, or score another text with --data~' eval runs/b
expect 0 'not known here \(.*other data.*: text.txt has .*; bring the files back and export again\)' export runs/b
cp text.txt held.txt
expect 0 'done:' train --config small.toml -t 1 --data moved.txt --eval held.txt --run runs/c --steps 2
echo more >>held.txt
expect 1 'error: the held-out text held.txt of runs/c changed: held.txt has .*, give --eval .*--run~' train --run runs/c
expect 1 'error: the held-out text held.txt of runs/c changed: held.txt has .* score another text with --data~' eval runs/c
mkdir filled && touch filled/thesis.doc
expect 1 'error: .*thesis' train --data moved.txt --run filled
# An empty value is no flag left out, but a prompt may be empty; errors of files say a way out.
expect 2 'error: --out is empty' export nothing -o ''
expect 2 'error: --threads is empty' eval nothing --data text.txt -t ''
expect 2 'error: --data is empty' train --data ''
expect 1 'error: cannot open "nowhere/x": No such file or directory; check the name and its folder' info nowhere/x
finish
