#!/usr/bin/env bash
# From a fresh Debian 12 to a training run that survives kill -9: installs what is missing, builds,
# starts a cluster of two nodes, trains a small GPT-2 with ZeRO-3 on the King James Bible, once
# undisturbed and once with two workers killed at random steps, and compares the weights bit for bit.
#
#   examples/quickstart.sh [--steps N] [--kills N] [--chaos-seed N] [--data FILE]
#
# Ends with three lines; exit code 0 if the weights are identical. Leaves nothing behind but build/.
set -u
cd "$(dirname "$0")/.." || exit 1

steps=200
kills=2
chaos_seed=
data=
while [ $# -gt 0 ]; do
    case "$1" in
    --steps | --kills | --chaos-seed | --data)
        [ $# -ge 2 ] || { echo "quickstart.sh: $1 needs a value" >&2; exit 2; }
        case "$1" in
        --steps) steps=$2 ;;
        --kills) kills=$2 ;;
        --chaos-seed) chaos_seed="--chaos-seed $2" ;;
        --data) data=$2 ;;
        esac
        shift ;;
    -h | --help) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "quickstart.sh: unknown option '$1' (try --help)" >&2; exit 2 ;;
    esac
    shift
done

say() { printf '== %s\n' "$*"; }
die() { printf 'quickstart.sh: %s\n' "$*" >&2; exit 1; }

# ---- Whatever happens from here, the end is the same: no process, no file.
work=$(mktemp -d) || exit 1
export TROUPE_SESSION_ROOT=$work/session
address=
training=
showing=
finish() {
    local code=$?
    trap - EXIT INT TERM
    if [ -n "$training" ]; then
        kill -INT "$training" 2>/dev/null # an orderly end: its workers go, too
        wait "$training" 2>/dev/null
    fi
    [ -z "$showing" ] || kill "$showing" 2>/dev/null
    # The session directory is our own, so this stops our cluster and no other.
    [ -z "$address" ] || "$troupe" stop >"$work/stop.txt" 2>&1 || cat "$work/stop.txt" >&2
    rm -rf "$work"
    exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

say "packages"
examples/packages.sh || exit 1

say "build"
build=build
troupe=$PWD/$build/troupe
{ cmake -S . -B "$build" -G Ninja -DTROUPE_TESTS=OFF && ninja -C "$build"; } >"$work/build.log" 2>&1 ||
    { tail -n 30 "$work/build.log" >&2; die "the build failed"; }

if [ -z "$data" ]; then
    say "text: the King James Bible"
    data=$work/bible.txt
    PATH=$PATH:/usr/games bible -f 'gen1:1-rev22:21' >"$data" 2>/dev/null
    [ "$(wc -c <"$data")" -gt 1000000 ] || die "the program 'bible' gave no text; use --data FILE"
fi

say "cluster: a head with one node, and a second node"
"$troupe" start --head --port 0 --num-cpus 1 >"$work/head.txt" 2>&1 || { cat "$work/head.txt" >&2; exit 1; }
address=$(grep -oE '127\.0\.0\.1:[0-9]+' "$work/head.txt" | head -n 1)
[ -n "$address" ] || { address=unknown; die "no address in: $(cat "$work/head.txt")"; }
"$troupe" start --address "$address" --num-cpus 1 || exit 1
"$troupe" status --address "$address"

# train NAME OPTIONS...: in the background, so that an interrupt reaches this shell at once; its output
# goes to a file, which is shown as it grows.
train() {
    local name=$1
    shift
    : >"$work/$name.txt"
    "$build/examples/train_gpt2" --address "$address" --data "$data" --storage "$work/runs" \
        --name "$name" --steps "$steps" --num-workers 2 --checkpoint-every 5 "$@" \
        >"$work/$name.txt" 2>&1 &
    training=$!
    tail -n +1 -f --pid="$training" "$work/$name.txt" &
    showing=$!
    wait "$training"
    local code=$?
    training=
    wait "$showing"
    showing=
    [ "$code" -eq 0 ] || die "training ended with exit code $code"
}

say "training, undisturbed"
train undisturbed

say "training, $kills workers killed on the way"
# shellcheck disable=SC2086  # an option and its value
train killed --chaos "$kills" $chaos_seed

weights() { sed -n 's/^weights \([0-9a-f]\{32\}\) .*/\1/p' "$work/$1.txt"; }
identical=no
[ -n "$(weights undisturbed)" ] && [ "$(weights undisturbed)" = "$(weights killed)" ] && identical=yes

echo
echo "undisturbed: $(tail -n 1 "$work/undisturbed.txt")"
echo "killed:      $(tail -n 1 "$work/killed.txt")"
echo "identical: $identical"
[ "$identical" = yes ]
