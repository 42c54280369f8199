#!/usr/bin/env bash
# Installs the Debian packages that troupe needs, those that are missing only.
#
#   examples/packages.sh          to build and run (and the text that the quickstart trains on)
#   examples/packages.sh tests    to build and run the tests, too
set -u
needed="build-essential cmake ninja-build pkg-config libzmq3-dev libmsgpack-dev uuid-dev
        libxxhash-dev libjansson-dev libdnnl-dev bible-kjv bible-kjv-text"
[ "${1:-}" = tests ] && needed="$needed libcmocka-dev clang-format clang binutils git"

missing=
for package in $needed; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -z "$missing" ] && exit 0

command -v apt-get >/dev/null || {
    echo "packages.sh: this is no Debian system; install the equivalents of:$missing" >&2
    exit 1
}
sudo=
if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || {
        echo "packages.sh: run as root, or install sudo, to get:$missing" >&2
        exit 1
    }
    sudo=sudo
fi
echo "installing:$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # a list of words on purpose
if ! { $sudo apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing; } \
    >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    echo "packages.sh: apt-get could not install:$missing" >&2
    exit 1
fi
