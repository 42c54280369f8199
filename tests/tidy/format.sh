#!/bin/bash
# format.sh SOURCE_DIR: every C file is as clang-format 14 (Debian 12's) writes it by .clang-format. Other
# versions break lines differently, so they are no judges.
set -u -o pipefail
. "$(dirname "$0")/lib.bash"

formatter=
for name in clang-format-14 clang-format; do
    if command -v $name > /dev/null && $name --version | grep -q 'version 14\.'; then
        formatter=$name
        break
    fi
done
if [ -z "$formatter" ]; then
    echo "format.sh: skipped: clang-format 14 is not installed"
    exit 0
fi

# Of each file only the first place: the formatter mends them all at once.
while IFS= read -r place; do
    complain "$place" "not formatted: run $formatter -i on it"
done < <(c_files $product tests | xargs -r "$formatter" --style=file --dry-run 2>&1 |
    grep -E '^[^ :]+:[0-9]+:[0-9]+: (warning|error)' | awk -F: '!seen[$1]++ { print $1 ":" $2 }')

finish
