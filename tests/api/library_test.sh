#!/bin/sh
# The example of docs/library.md, compiled as C11, writes what its page says; the library shows only its interface.
. "$(dirname "$0")/../cli/support.sh"
build=$(dirname "$DORMOUSE")
model=$SOURCE/tests/formats/exports/bf16.dmexp
[ -x "$build/library_example" ] || { echo "skipped: library_example is not built"; exit 77; }

"$build/library_example" "$model" 'Dear ' >example.txt 2>err.txt || fail "the example: $(cat err.txt)"
grep -q '^80 bytes in' err.txt && grep -q '^the likeliest next byte is' err.txt || fail "the example says: $(cat err.txt)"
"$DORMOUSE" generate "$model" -p 'Dear ' -n 80 --temp 0.7 -s 1 --raw >program.txt 2>/dev/null
cmp -s example.txt program.txt || fail "the example writes other bytes than the program"
"$build/library_example" text.txt 'x' >out.txt 2>err.txt && fail "the example takes a text for a model"
grep -q '^open: text.txt is a text file, not an export' err.txt || fail "the example says: $(cat err.txt)"

if command -v nm >/dev/null 2>&1; then
  nm -D --defined-only "$build/libdormouse.so" | sed 's/.* //; s/@.*//' | grep -v '^LIBDORMOUSE_0$' | sort >shown.txt
  sed -n 's/^DORMOUSE_API .*[ *]\(dormouse_[a-z_]*\)(.*/\1/p' "$SOURCE/include/dormouse.h" | sort >declared.txt
  [ "$(wc -l <declared.txt)" -ge 15 ] || fail "few functions found in dormouse.h"
  diff declared.txt shown.txt || fail "libdormouse.so shows other names than dormouse.h"
fi
if command -v readelf >/dev/null 2>&1; then
  readelf -d "$build/libdormouse.so" | grep -q 'SONAME.*\[libdormouse.so.0\]' || fail "the soname is not libdormouse.so.0"
fi

# Installed, and found by pkg-config.
if cmake --install "$build" --prefix "$work/usr" >install.txt 2>&1; then
  [ -f "$work/usr/include/dormouse.h" ] || fail "no header is installed"
  if command -v pkg-config >/dev/null 2>&1; then
    PKG_CONFIG_PATH=$(dirname "$(find "$work/usr" -name dormouse.pc)")
    export PKG_CONFIG_PATH
    [ "$(pkg-config --modversion dormouse)" = "$("$DORMOUSE" --version | cut -d' ' -f2)" ] || fail "dormouse.pc has another version"
    library=$(pkg-config --variable=libdir dormouse)
    [ -e "$library/libdormouse.so" ] || fail "dormouse.pc points at $library, where no libdormouse.so is"
    [ -f "$(pkg-config --variable=includedir dormouse)/dormouse.h" ] || fail "dormouse.pc points at no header"
  fi
else
  cat install.txt
  fail "cmake --install"
fi
finish
