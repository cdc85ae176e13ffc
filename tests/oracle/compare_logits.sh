#!/bin/sh
# tests/oracle/compare_logits.sh MODEL TEXT [BYTES]: the logits of a run or checkpoint on the first BYTES bytes of TEXT (default: one
# row of the model's length) by `dormouse logits` and by docs/model.py, the same network in numpy. Prints the largest difference; exit 0
# below 2e-4, 1 above, 77 without numpy. $DORMOUSE: the program (build/dormouse); $PYTHON: python3.
set -eu
[ $# -ge 2 ] || { sed -n '2,4p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
dormouse=${DORMOUSE:-$root/build/dormouse}
[ -x "$dormouse" ] || { echo "no $dormouse: make build"; exit 1; }
python=${PYTHON:-python3}
"$python" -c 'import numpy' 2>/dev/null || { echo "skipped: $python has no numpy"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

model=$1
[ -d "$model" ] && model=$model/checkpoint.safetensors
"$dormouse" logits "$model" "$2" --out "$work/program.npy" ${3:+--bytes "$3"} 2>"$work/log" || { cat "$work/log"; exit 1; }
# As many bytes as the program took.
bytes=$(sed -n 's/.*float32 \[\([0-9]*\),256\].*/\1/p' "$work/log")
head -c "$bytes" "$2" >"$work/text"
"$python" "$root/docs/model.py" "$model" "$work/text" "$work/numpy.npy" >"$work/bits"
"$python" - "$work" <<'END'
import sys

import numpy as np

program, statement = (np.load(sys.argv[1] + name).astype(np.float64) for name in ("/program.npy", "/numpy.npy"))
assert program.shape == statement.shape and program.shape[1] == 256, (program.shape, statement.shape)
difference = np.abs(program - statement).max()
print(f"{program.shape[0]} bytes: logits from {statement.min():.2f} to {statement.max():.2f}, largest difference {difference:.2e}, "
      + open(sys.argv[1] + "/bits").read().strip())
sys.exit(0 if difference < 2e-4 else 1)
END
