#!/bin/sh
# run.sh BUILD SECONDS [CORPUS]: every fuzzer of BUILD (cmake -DDORMOUSE_FUZZ=ON, Clang) for SECONDS, one after the other, starting from the
# files of tests/bad, tests/formats and tests/fuzz/corpus; what they find new goes to CORPUS (default BUILD/corpus). A finding ends it.
set -eu
build=$1 seconds=$2 corpus=${3:-$1/corpus}
here=$(cd "$(dirname "$0")" && pwd)
for program in "$build"/fuzz_*; do
  case $program in *.log | *.obj) continue ;; esac
  reader=$(basename "$program" | sed 's/^fuzz_//')
  mkdir -p "$corpus/$reader"
  echo "fuzz_$reader: ${seconds} s"
  # A leak of the OpenMP runtime's team is none of ours; every input is smaller than the models people have.
  OMP_NUM_THREADS=1 "$program" -max_total_time="$seconds" -max_len=65536 -rss_limit_mb=1024 -malloc_limit_mb=256 -timeout=20 -print_final_stats=1 \
    -artifact_prefix="$corpus/$reader-" "$corpus/$reader" "$here/corpus" "$here/../bad/files" "$here/../formats/exports" >"$build/fuzz_$reader.log" 2>&1 || {
    tail -30 "$build/fuzz_$reader.log"
    exit 1
  }
  grep -E 'stat::number_of_executed_units|stat::new_units_added' "$build/fuzz_$reader.log" || true
done
