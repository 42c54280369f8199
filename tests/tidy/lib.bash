# lib.bash: what the scripts beside it share; sourced by them with their arguments.
tidy_dir=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cd "${1:?usage: $0 SOURCE_DIR}" || exit 2
failures=0
product="core actors trainer include examples"

# complain FILE:LINE TEXT
complain() {
    echo "$1: $2"
    failures=$((failures + 1))
}

# C files below those of the given folders that exist.
c_files() {
    local folder
    for folder in "$@"; do
        [ ! -d "$folder" ] || find "$folder" -type f -name '*.[ch]'
    done | sort
}

# "file:line:code" of all lines of the given folders, without comments and literals.
code_of() {
    c_files "$@" | xargs -r awk -f "$tidy_dir/strip.awk"
}

# match PATTERN [PATH_THAT_MAY]: "file:line:code" lines on stdin with the extended regular expression,
# but for the files whose path matches the second one.
match() {
    grep -E "^[^:]*:[0-9]+:.*($1)" | grep -vE "^(${2:-/})[^:]*:"
}

finish() {
    if [ "$failures" -gt 0 ]; then
        echo "$(basename "$0"): $failures failures"
        exit 1
    fi
    echo "$(basename "$0"): good"
}
