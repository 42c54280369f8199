#!/usr/bin/env bash
# From a fresh Debian 12 to a training run that survives kill -9: installs what is missing, builds,
# starts a cluster of two nodes, trains a small GPT-2 with ZeRO-3 on the King James Bible, once
# undisturbed and once with workers killed at random steps, and compares the weights bit for bit.
#
# usage: examples/quickstart.sh [options] [-- options for train_gpt2]
#   --steps N        of each training (200)
#   --kills N        workers killed in the second training (2)
#   --chaos-seed N   repeats the kills of an earlier run, which has printed it (random)
#   --data FILE      text to train on (the Bible)
#   --build DIR      takes the programs that are built there: no packages, no build
#
# Ends with three lines; exit code 0 if the weights are identical. Leaves nothing behind but build/.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() { printf 'quickstart.sh: %s (try --help)\n' "$*" >&2; exit 2; }

steps=200
kills=2
chaos_seed=
data=
build=build
is_built=no
while [ $# -gt 0 ]; do
    case "$1" in
    --) shift; break ;;
    -h | --help) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 0 ;;
    --steps | --kills | --chaos-seed | --data | --build) ;;
    *) usage "unknown option '$1'" ;;
    esac
    [ $# -ge 2 ] || usage "$1 needs a value"
    case "$1" in
    --data | --build) ;;
    *) [[ "$2" =~ ^[0-9]+$ ]] || usage "$1 is '$2'; it must be a number" ;;
    esac
    case "$1" in
    --steps) steps=$2 ;;
    --kills) kills=$2 ;;
    --chaos-seed) chaos_seed=$2 ;;
    --data) data=$(realpath -e -- "$2") || exit 2 ;;
    --build) build=$(realpath -e -- "$2") || exit 2; is_built=yes ;;
    esac
    shift 2
done

more=("$@")

say() { printf '== %s\n' "$*"; }
die() { printf 'quickstart.sh: %s\n' "$*" >&2; exit 1; }

# ---- Whatever happens from here, the end is the same: no process, no file.
work=$(mktemp -d) || exit 1
export TROUPE_SESSION_ROOT=$work/session # a cluster of our own, beside any other
unset TROUPE_ADDRESS
job=         # what runs in the background, a process group of its own
job_signal=  # what ends it in order; none: it is short and must not be cut off
showing=     # the tail that shows a training's output
is_started=no
finish() {
    local code=$?
    trap - EXIT
    trap '' INT TERM HUP # it takes a moment, and impatience must not leave anything behind
    if [ -n "$job" ]; then
        [ -z "$job_signal" ] || kill "-$job_signal" -- "-$job" 2>/dev/null
        wait "$job" 2>/dev/null
    fi
    [ -z "$showing" ] || wait "$showing" # shows the last lines, then ends by itself
    [ "$is_started" = no ] || "$troupe" stop >"$work/stop.txt" 2>&1 || cat "$work/stop.txt" >&2
    rm -rf "$work"
    exit "$code"
}

# An interrupt ends the script at once, but for the instant in which something has been started and
# nobody knows its number yet: it waits for that.
is_starting=no
interrupted=
interrupt() { [ "$is_starting" = yes ] && interrupted=$1 || exit "$1"; }
started() {
    is_starting=no
    [ -z "$interrupted" ] || exit "$interrupted"
}
trap finish EXIT
trap 'interrupt 129' HUP
trap 'interrupt 130' INT
trap 'interrupt 143' TERM

# begin SIGNAL COMMAND...: runs it in the background, in a process group of its own (set -m), so that an
# interrupt reaches this shell at once, and the command only through finish(). await: for its end.
begin() {
    is_starting=yes
    job_signal=$1
    shift
    set -m
    "$@" &
    job=$!
    set +m
    started
}
await() {
    wait "$job"
    local code=$?
    job=
    return "$code"
}
run() { begin "$@"; await; }

troupe=$build/troupe
if [ "$is_built" = no ]; then
    say "packages"
    examples/packages.sh || exit 1

    say "build (at first a minute or two)"
    if ! run TERM cmake -S . -B "$build" -G Ninja -DTROUPE_TESTS=OFF >"$work/build.txt" 2>&1 ||
        ! run TERM ninja -C "$build" >"$work/build.txt" 2>&1; then
        tail -n 30 "$work/build.txt" >&2
        die "the build failed"
    fi
fi

if [ -z "$data" ]; then
    say "text: the King James Bible"
    data=$work/bible.txt
    run TERM bible -f 'gen1:1-rev22:21' >"$data" 2>/dev/null
    [ "$(wc -c <"$data")" -gt 1000000 ] || die "the program 'bible' gave no text; use --data FILE"
fi

say "cluster: a head with one node, and a second node"
is_started=yes
run "" "$troupe" start --head --port 0 --num-cpus 1 >"$work/head.txt" 2>&1 ||
    { cat "$work/head.txt" >&2; exit 1; }
address=$(grep -oE '127\.0\.0\.1:[0-9]+' "$work/head.txt" | head -n 1)
[ -n "$address" ] || die "no address in: $(cat "$work/head.txt")"
run "" "$troupe" start --address "$address" --num-cpus 1 || exit 1
"$troupe" status --address "$address" || exit 1

# train NAME OPTIONS...: its output goes to a file, which is shown as it grows.
train() {
    local name=$1 code
    shift
    begin INT "$build/examples/train_gpt2" --address "$address" --data "$data" \
        --storage "$work/runs" --name "$name" --steps "$steps" --num-workers 2 --layers 4 \
        --width 256 --batch 8 --lr 0.001 --checkpoint-every 5 "${more[@]}" "$@" >"$work/$name.txt" 2>&1
    is_starting=yes
    set -m
    tail -n +1 -s 0.2 -f --pid="$job" "$work/$name.txt" &
    showing=$!
    set +m
    started
    await
    code=$?
    wait "$showing"
    showing=
    [ "$code" -eq 0 ] || die "training ended with exit code $code"
}

say "training, undisturbed"
train undisturbed

say "training, with kills ($kills)"
train killed --chaos "$kills" ${chaos_seed:+--chaos-seed "$chaos_seed"}

weights() { sed -n 's/^weights \([0-9a-f]\{32\}\) .*/\1/p' "$work/$1.txt"; }
result() { grep '^steps [0-9]' "$work/$1.txt" | tail -n 1; }
identical=no
[ -n "$(weights undisturbed)" ] && [ "$(weights undisturbed)" = "$(weights killed)" ] && identical=yes

echo
echo "undisturbed: $(result undisturbed)"
echo "killed:      $(result killed)"
echo "identical: $identical"
[ "$identical" = yes ]
