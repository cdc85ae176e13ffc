# Sourced by the tests of the command line: $DORMOUSE is the program, $work an empty directory that goes away.
set -u
[ -x "$DORMOUSE" ] || { echo "skipped: $DORMOUSE is not built"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

# The smallest useful network and a text for it.
cat >small.toml <<'TOML'
[model]
d_model = 16
n_heads = 2
head_dim = 8
d_ffn = 24
rank = 6
n_experts = 2
max_iter = 2
max_seq_len = 32
engram_rows = 64
engram_dim = 4
TOML
i=0
while [ $i -lt 400 ]; do
  echo "line $i: the dormouse sleeps in the teapot until the $((i * 7 % 31))th of May"
  i=$((i + 1))
done >text.txt

fail() {
  echo "FAILED: $*"
  failures=$((failures + 1))
}

# expect CODE 'REGEX' ARGUMENTS...: exit code and a matching line; a failure says exactly one `error: ` line and no assertion text.
expect() {
  code=$1 pattern=$2
  shift 2
  "$DORMOUSE" "$@" >out.txt 2>err.txt </dev/null
  got=$?
  if [ "$got" -ne "$code" ]; then
    fail "exit $got, expected $code: dormouse $*"
    tail -3 err.txt
    return
  fi
  cat out.txt err.txt | tr '\n' '~' | grep -qE -e "$pattern" || { fail "no /$pattern/ from: dormouse $*"; tail -3 err.txt; }
  if [ "$code" -eq 1 ] || [ "$code" -eq 2 ]; then
    [ "$(grep -c '^error: ' err.txt)" -eq 1 ] || { fail "not one error line: dormouse $*"; cat err.txt; }
    [ "$(tail -1 err.txt | cut -c1-7)" = "error: " ] || fail "the error is not the last line: dormouse $*"
  fi
}

finish() {
  [ "$failures" -eq 0 ] || { echo "$failures failed"; exit 1; }
}
