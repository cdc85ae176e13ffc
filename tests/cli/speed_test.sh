#!/bin/sh
# speed, its fingerprint, and generate --stats: what they print adds up.
. "$(dirname "$0")/support.sh"
expect 0 'done:' train --config small.toml -t 1 --data text.txt --run runs/a --steps 4
expect 0 'limit of this machine' --help
expect 0 'one text .*% of the limit.*3 texts together .*times one.*reading a prompt' speed runs/a --batch 3 --repeats 2 -t 1
expect 0 '^\{"model":"runs/a/model.dmexp","cpu_level":"[a-z0-9]+","threads":1,.*"streams":8,"repeats":1,"one_bytes_per_second":[0-9.]+' \
  speed runs/a --repeats 1 --json -t 1
awk 'BEGIN { RS = "," } /"one_bytes_per_second"/ { split($0, a, ":"); one = a[2] } /"limit_bytes_per_second"/ { split($0, a, ":"); limit = a[2] }
  /"share_of_limit"/ { split($0, a, ":"); share = a[2] }
  END { exit !(one > 0 && limit > 0 && share > one / limit * 0.999 && share < one / limit * 1.001) }' out.txt ||
  fail "share_of_limit is not one over limit: $(cat out.txt)"
expect 0 'preset tiny \(f32, untrained\)' speed --preset tiny --repeats 1
expect 0 'attention .*experts .*update .*retraction .*of the limit: one large product' speed --preset tiny --train --repeats 1 --batch 1 --seq-len 32 -t 1
expect 0 'runs/a \(its sizes, untrained\), 2 rows of ' speed runs/a --train --repeats 1 --batch 2 -t 1
expect 0 '"attention_forward_ms":[0-9.]+.*"step_ms":[0-9.]+.*"share_of_limit":[0-9.]+' \
  speed --preset tiny --train --repeats 2 --batch 2 --seq-len 17 --set n_experts=3 --json
expect 0 'avx512|avx2|sse4|ssse3|scalar' speed --fingerprint -t 1
expect 0 '"training":"[0-9a-f]{16}","decoding":"[0-9a-f]{16}"' speed --fingerprint -t 2 --json
expect 0 '2 rows of 32 bytes' speed --preset tiny --train --repeats 1 --set batch=2 --set seq_len=32 -t 1
expect 2 'error: --fingerprint computes one small model of its own' speed --fingerprint --preset tiny
expect 2 'error: MODEL is missing; [^ ]*dormouse generate --help' generate
expect 2 'error: --out is missing; [^ ]*dormouse logits --help' logits runs/a text.txt
expect 2 'error: --set, .*add --train' speed runs/a --set n_experts=3
expect 2 'error: .*--seq-len' speed --preset tiny --train --seq-len 100000
expect 2 'error: .*--seq-len' speed runs/a --train --seq-len 0
expect 2 'error: --set changes a preset' speed runs/a --train --set n_experts=3
expect 2 'error: speed takes a MODEL' speed
expect 2 'error: speed takes a MODEL' speed runs/a --preset tiny
expect 2 'error: .*--batch' speed runs/a --batch 0
expect 2 'error: .*--repeats' speed runs/a --repeats 0
expect 2 'error: --batch.*4096' speed runs/a --batch 9000000000000000000
expect 1 'error: .*checkpoint.*dormouse export' speed runs/a/checkpoint.safetensors
expect 0 'bytes/s, [0-9]+% of the [0-9]+ that reading its weights allows here' generate runs/a -n 20 --stats
expect 0 '"limit_bytes_per_second":[0-9.]+' generate runs/a -n 20 --stats --json
finish
