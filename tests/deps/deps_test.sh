#!/bin/sh
# tools/deps on machines that lack something, played by stubs before the real commands in PATH: a compiler that hides headers,
# an apt-get and a sudo that only write down how they were called, an id that names the user.
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/apt"

real_cxx=${CXX:-c++}
stub() { printf '#!/bin/sh\n%s\n' "$2" >"$1" && chmod +x "$1"; }
stub "$work/bin/cxx" "$real_cxx \"\$@\" | grep -v -e \"have \$HIDE\$\""
stub "$work/bin/sudo" "echo sudo \"\$@\" >>'$work/calls'"
stub "$work/bin/id" 'echo "$TEST_UID"'
stub "$work/apt/apt-get" "echo \"\$DEBIAN_FRONTEND\" \"\$@\" >>'$work/calls'; [ -z \"\${APT_FAILS:-}\" ]"

# The commands tools/deps uses, without any apt-get.
mkdir "$work/usual"
for command in sh sed awk grep cut sort tr paste mktemp rm cat cmake make ninja env clang-format qemu-x86_64 ${real_cxx%% *} cc1plus; do
  path=$(command -v "$command" || true)
  case $path in /*) ln -s "$path" "$work/usual/$command" ;; esac
done

failures=0
check() {
  if ! eval "$2"; then
    failures=$((failures + 1))
    printf 'FAILED: %s\n  answer %s: %s\n  calls: %s\n' "$1" "$code" "$answer" "$calls"
  fi
}
# play UID PATH HIDE: sets code, answer, calls
play() {
  : >"$work/calls"
  code=0
  answer=$(TEST_UID=$1 PATH=$2 HIDE=$3 CXX=cxx "$root/tools/deps" --check 2>&1) || code=$?
  calls=$(cat "$work/calls")
}
with_apt="$work/bin:$work/apt:$work/usual"
without_apt="$work/bin:$work/usual"

if ! "$root/tools/deps" --check >"$work/now" 2>&1 </dev/null; then
  echo "skipped: this machine itself lacks something: $(cat "$work/now")"
  exit 77
fi

play 0 "$with_apt" nothing
check 'all there: exit 0, no package call' '[ "$code" = 0 ] && [ -z "$calls" ]'

play 1000 "$with_apt" fmt/format.h
check 'a user gets one sudo line and exit 1' '[ "$code" = 1 ] && [ "$answer" = "sudo apt-get install --no-install-recommends libfmt-dev" ]'
check 'for a user nothing is called' '[ -z "$calls" ]'

play 0 "$with_apt" fmt/format.h
check 'root updates, then installs, unattended' '[ "$(printf "%s\n" "$calls" | grep -c "^noninteractive ")" = 2 ] &&
  printf "%s\n" "$calls" | sed -n 1p | grep -q " update$" &&
  printf "%s\n" "$calls" | sed -n 2p | grep -q "DPkg::Lock::Timeout=300.* install --no-install-recommends libfmt-dev$"'
check 'the line is printed first' 'printf "%s\n" "$answer" | sed -n 1p | grep -q "apt-get.*install.*libfmt-dev"'
check 'still missing afterwards: exit 1' '[ "$code" = 1 ]'

play 0 "$without_apt" 'fmt/format.h\|brotli/encode.h\|lzma.h'
check 'without apt: the names on four systems' '[ "$code" = 1 ] && [ -z "$calls" ] &&
  printf "%s\n" "$answer" | grep -q "Debian: *libbrotli-dev libfmt-dev liblzma-dev$" &&
  printf "%s\n" "$answer" | grep -q "Fedora: *brotli-devel fmt-devel xz-devel$" &&
  printf "%s\n" "$answer" | grep -q "Arch: *brotli fmt xz$" &&
  printf "%s\n" "$answer" | grep -q "Homebrew: *brotli fmt xz$"'

play 1000 "$with_apt" brotli/encode.h
check 'only an optional one missing: a note, exit 0, no call' '[ "$code" = 0 ] && [ -z "$calls" ] && printf "%s" "$answer" | grep -q "optional.*brotli"'

stub "$work/bin/cxx" "$real_cxx \"\$@\" | sed 's/^compiler .*/compiler gcc 11/'"
play 1000 "$with_apt" nothing
check 'an old compiler is named, with the way out' '[ "$code" = 1 ] && printf "%s" "$answer" | grep -q "gcc 11.*CXX=g++-12"'

[ "$failures" = 0 ] && echo "tools/deps answers as it should"
[ "$failures" = 0 ]
