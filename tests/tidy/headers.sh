#!/bin/bash
# headers.sh SOURCE_DIR: each public header alone, and all of them together, compile as C11 and as C++17
# with the warnings of a strict user, by every compiler that is here; g++ and gcc must be.
set -u -o pipefail
. "$(dirname "$0")/lib.bash"

warnings="-Wall -Wextra -pedantic -Wshadow -Werror"

# compile HEADERS...: one translation unit that includes them, in each language.
compile() {
    local header unit=
    for header in "$@"; do
        unit+="#include <troupe/${header##*/}>"$'\n'
    done
    # shellcheck disable=SC2086  # words on purpose
    {
        try "$unit" $c -std=c11 $warnings -x c
        try "$unit" $cxx -std=c++17 $warnings -x c++
    }
}

# try UNIT COMPILER...
try() {
    local unit=$1 errors
    shift
    errors=$("$@" -Iinclude -fsyntax-only - <<< "$unit" 2>&1) ||
        complain "include/troupe: $1 $2" "$(grep -m 1 -E 'error' <<< "$errors")"
}

tried=0
for compilers in "gcc g++" "clang clang++"; do
    read -r c cxx <<< "$compilers"
    if ! command -v "$c" "$cxx" > /dev/null; then
        [ "$c" != gcc ] || complain "tests/tidy/headers.sh:1" "gcc or g++ is missing"
        continue
    fi
    for header in include/troupe/*.h; do
        compile "$header"
        tried=$((tried + 1))
    done
    compile include/troupe/*.h
done
[ "$tried" -gt 0 ] || complain "tests/tidy/headers.sh:1" "no header was tried"
finish
