#!/usr/bin/env bash
# Builds troupe and runs every test: plain, under ASan+UBSan, and under TSan what has threads.
# On a fresh Debian 12 it installs what it needs first (as root, or with sudo).
#
#   tests/check.sh [--quick] [--jobs N] [--keep-going]
#
#   --quick       plain build and tests only
#   --jobs N      compile jobs and parallel tests (default: number of cores)
#   --build DIR   where to build (default: build-check in the source tree)
#
# Ends with the counts on a line of their own; exit code 0 only if nothing failed.
set -u
cd "$(dirname "$0")/.." || exit 1

quick=no
jobs=$(nproc)
build=build-check
while [ $# -gt 0 ]; do
    case "$1" in
    --quick) quick=yes ;;
    --jobs) jobs=$2; shift ;;
    --build) build=$2; shift ;;
    -h | --help) sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "check.sh: unknown option '$1' (try --help)" >&2; exit 2 ;;
    esac
    shift
done

examples/packages.sh tests || exit 1

passed=0
failed=0
skipped=0

# suite NAME LABELS CMAKE_OPTIONS...: builds in $build/NAME and runs the tests whose label matches.
suite() {
    local name=$1 labels=$2 log
    shift 2
    echo "== $name: build"
    log=$build/$name/build.log
    mkdir -p "$build/$name"
    if ! { cmake -S . -B "$build/$name" -G Ninja -DTROUPE_WERROR=ON "$@" &&
        ninja -C "$build/$name" -j "$jobs"; } >"$log" 2>&1; then
        grep -E 'error|warning|FAILED' "$log" | head -n 40
        echo "== $name: build failed, see $log"
        failed=$((failed + 1))
        return
    fi
    echo "== $name: tests ($labels)"
    log=$build/$name/tests.log
    # One line per program here; a program that fails shows all that it printed.
    ctest --test-dir "$build/$name" -L "$labels" -j "$jobs" -V --no-tests=error 2>&1 | tee "$log" |
        grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test +#'
    local number program programs cases
    for number in $(sed -nE 's/^ *[0-9]+\/[0-9]+ Test +#([0-9]+): .*(Failed|\*\*\*).*/\1/p' "$log"); do
        grep -E "^$number: Test command:" "$log" >/dev/null || continue
        grep -E '\*\*\*Skipped' "$log" | grep -qE "Test +#$number:" && continue
        echo "-- output of test #$number"
        grep -E "^$number: " "$log" | tail -n 80
    done
    programs=$(grep -E '^ *[0-9]+/[0-9]+ Test +#' "$log" || true)
    program=$(grep -c . <<<"$programs")
    cases=$(sed -nE 's/.*\[  PASSED  \] ([0-9]+) test.*/\1/p' "$log" | awk '{n += $1} END {print n + 0}')
    local skip bad
    skip=$(grep -c '\*\*\*Skipped' <<<"$programs")
    bad=$(grep -vcE ' Passed |\*\*\*Skipped' <<<"$programs")
    [ -n "$programs" ] || { bad=1; program=1; }
    echo "== $name: $program programs with $cases cases passed, $bad programs failed, $skip skipped"
    passed=$((passed + cases))
    failed=$((failed + bad))
    skipped=$((skipped + skip))
}

started=$(date +%s)
export TROUPE_LOG=${TROUPE_LOG:-warn}
suite plain '.*' -DCMAKE_BUILD_TYPE=RelWithDebInfo
if [ "$quick" = no ]; then
    export ASAN_OPTIONS=detect_stack_use_after_return=1:abort_on_error=0
    export UBSAN_OPTIONS=print_stacktrace=1
    export LSAN_OPTIONS=suppressions=$PWD/tests/lib/lsan.supp:print_suppressions=0
    export SIM_SEEDS=150 # the plain suite has simulated its thousand
    suite asan 'unit|sim|numeric|fuzz|integration' -DTROUPE_SANITIZE=address,undefined
    export TSAN_OPTIONS=suppressions=$PWD/tests/lib/tsan.supp:halt_on_error=1:second_deadlock_stack=1
    suite tsan 'threads' -DTROUPE_SANITIZE=thread
fi
echo
echo "took $(($(date +%s) - started)) s"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
