#!/bin/sh
# Headers stay short (code that must stand in one, the kernels of *-inl.h and the templates of ops/reference, may be longer).
# One binary starts on any x86-64: code for one CPU level (target attributes and pragmas) stands in src/ops/cpu only, and no
# build file asks for a CPU or for fast-math. Room headers are included in quotes, where edges_test.sh sees them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
longest=200
longest_kernel=400

# check ROOT: prints every breach, one per line
check() {
  (
    cd "$1"
    find src -name '*.h' -exec awk -v interface=$longest -v kernel=$longest_kernel '
      function judge() {
        most = name ~ /-inl\.h$|^src\/ops\/reference\// ? kernel : interface
        if (name != "" && lines > most) print name ": " lines " lines, at most " most
      }
      FNR == 1 { judge() }
      { name = FILENAME; lines = FNR }
      END { judge() }' {} +
    find src -type f \( -name '*.h' -o -name '*.cpp' -o -name '*.inc' \) ! -path 'src/ops/cpu/*' -exec \
      grep -nHE -e '-m(arch|tune|cpu|avx|sse)|__attribute__[[:space:]]*\(\([^)]*target|gnu::target' \
      -e '#[[:space:]]*pragma.*[[:space:]]target[[:space:]("]' {} + |
      grep -v 'pragma omp' || true
    grep -nHE -e '-m(arch|tune|cpu|avx|sse)|-Ofast|-ffast-math|-funsafe-math' CMakeLists.txt cmake/*.cmake tests/CMakeLists.txt || true
    for folder in src/*/; do
      room=$(basename "$folder")
      find src -type f -exec grep -nHE "^[[:space:]]*#[[:space:]]*include[[:space:]]*<$room/" {} + || true
    done
  )
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
fail() {
  echo "FAILED: $*" >&2
  failures=$((failures + 1))
}

check "$here/../.." >"$work/breaches"
[ ! -s "$work/breaches" ] || fail "$(cat "$work/breaches")"

# The checker itself must accept a clean tree and refuse each breach.
tree() {
  rm -rf "$work/tree"
  mkdir -p "$work/tree/cmake" "$work/tree/tests" "$work/tree/src/base" "$work/tree/src/ops/cpu"
  printf '__attribute__((target("avx512f"))) int dot();\n' >"$work/tree/src/ops/cpu/dot.cpp"
  awk -v most=$longest 'BEGIN { for (i = 0; i < most; ++i) print "int x;" }' >"$work/tree/src/base/long.h"
  printf '#include <vector>\n#include "base/long.h"\n#pragma omp target\n' >"$work/tree/src/base/a.cpp"
  printf 'int y;\n' >"$work/tree/src/base/short.h"
  printf 'add_compile_options(-O2)\n' | tee "$work/tree/CMakeLists.txt" "$work/tree/cmake/rooms.cmake" >"$work/tree/tests/CMakeLists.txt"
}
refused() {
  check "$work/tree" >"$work/breaches"
  grep -q "$2" "$work/breaches" || fail "not refused: $1"
}
tree
check "$work/tree" >"$work/breaches"
[ ! -s "$work/breaches" ] || fail "a clean tree is refused: $(cat "$work/breaches")"
echo 'int z;' >>"$work/tree/src/base/long.h"
refused "a long header" 'src/base/long.h: 201 lines'
tree
kernels=$work/tree/src/ops/cpu
cat "$work/tree/src/base/long.h" "$work/tree/src/base/long.h" >"$kernels/long-inl.h"
cat "$kernels/long-inl.h" "$work/tree/src/base/short.h" >"$kernels/longer-inl.h"
refused "a long kernel" 'src/ops/cpu/longer-inl.h: 401 lines'
if grep -q 'long-inl.h' "$work/breaches"; then fail "a kernel of $longest_kernel lines is refused"; fi
tree
echo '__attribute__((always_inline, target("avx2"))) int f();' >>"$work/tree/src/base/a.cpp"
refused "a target attribute" 'src/base/a.cpp:4'
tree
echo '[[gnu::target("avx2")]] int f();' >>"$work/tree/src/base/short.h"
refused "a target attribute of C++" 'src/base/short.h:2'
tree
echo '#pragma GCC target("avx2")' >>"$work/tree/src/base/a.cpp"
refused "a target pragma" 'src/base/a.cpp:4'
tree
echo 'add_compile_options(-march=native)' >>"$work/tree/CMakeLists.txt"
refused "-march" 'CMakeLists.txt:2'
tree
echo 'add_compile_options(-ffast-math)' >>"$work/tree/cmake/rooms.cmake"
refused "fast-math" 'cmake/rooms.cmake:2'
tree
echo '#include <base/short.h>' >>"$work/tree/src/ops/cpu/dot.cpp"
refused "a room header in angle brackets" 'src/ops/cpu/dot.cpp:2'

[ "$failures" = 0 ] && echo "headers, CPU levels and build flags hold"
[ "$failures" = 0 ]
