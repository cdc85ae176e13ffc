#!/bin/sh
# The binary takes two training steps on older processors, played by qemu-user: Nehalem (SSE4.2, no AVX) and Haswell (AVX2, no
# AVX-512). An instruction above the level kills the process with SIGILL.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
dormouse=${DORMOUSE:-$root/build/dormouse}
if ! command -v qemu-x86_64 >/dev/null 2>&1; then
  echo "skipped: no qemu-x86_64 here (Debian: qemu-user)"
  exit 77
fi
if [ "$(uname -m)" != x86_64 ]; then
  echo "skipped: the binary is not for x86-64"
  exit 77
fi

export OMP_WAIT_POLICY=PASSIVE  # set, the program does not start itself again, which would leave the emulator

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/corpus"
head -c 40000 "$root/LICENSE" >"$work/corpus/a.txt"
cat "$root"/src/*/*.h | head -c 40000 >"$work/corpus/b.txt"

for cpu in Nehalem Haswell; do
  code=0
  qemu-x86_64 -cpu "$cpu" "$dormouse" train --data "$work/corpus" --run "$work/$cpu" --new --threads 2 --steps 2 --batch 2 --seq-len 32 \
    --eval-bytes 256 --preset tiny --set d_model=32 --set n_heads=1 --set head_dim=32 --set d_ffn=64 --set rank=8 --set max_iter=2 \
    --set max_seq_len=32 --set engram_rows=256 >"$work/out" 2>&1 </dev/null || code=$?
  if [ "$code" != 0 ]; then
    echo "FAILED on $cpu, exit $code:"
    cat "$work/out"
    exit 1
  fi
  if ! grep -q 'step *2' "$work/$cpu/status.txt" "$work/out"; then
    echo "FAILED on $cpu: two steps were not reported"
    cat "$work/out"
    exit 1
  fi
  if grep -qi 'nan' "$work/$cpu/metrics.jsonl"; then
    echo "FAILED on $cpu: a metric is not a number"
    exit 1
  fi
  case $cpu in
  Nehalem) level='CPU level \(scalar\|ssse3\|sse4\)' ;;
  Haswell) level='CPU level avx2' ;;
  esac
  if ! grep -q "$level" "$work/out"; then
    echo "FAILED on $cpu: another CPU level than expected"
    cat "$work/out"
    exit 1
  fi
  echo "$cpu: two steps, $(grep -o "$level" "$work/out" | head -n 1)"
done
