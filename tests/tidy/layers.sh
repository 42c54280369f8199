#!/bin/bash
# layers.sh SOURCE_DIR: which folder may include which. Reads the #include lines of all code and the link
# lines of CMakeLists.txt, and prints file:line of each arrow that points up. Then it looks at what is
# supposed to be pure: folders named state/.
set -u -o pipefail
. "$(dirname "$0")/lib.bash"

# ---- The table. Folder: what it may include from, besides itself and <troupe/...>. A path that ends in .h
# is just that header. The longest folder that a file is in counts.
layers='
include             -
core/base           -
core/wire           core/base
core/state          core/base core/wire/msg.h
core/net            core/base core/wire core/state
core/sys            core/base
actors/state        core/base core/wire/msg.h core/state
actors/proc         core actors/state
actors/bin          core actors/state actors/proc trainer/ckpt
trainer/state       core/base
trainer/device      core/base
trainer/device/cpu  core/base trainer/device
trainer/device/cuda core/base trainer/device
trainer/comm        core/base core/net core/sys trainer/device
trainer/model       core/base trainer/device
trainer/ckpt        core/base core/sys
trainer/text        core/base core/sys
trainer/data        core/base core/sys trainer/text
trainer/engine      core/base core/sys trainer/device trainer/comm trainer/model trainer/ckpt
trainer/run         core/base core/sys trainer/state trainer/ckpt trainer/comm
examples            -
'
# Links without includes: trainer/run calls the runtime, by its public headers only.
links_only='trainer/run>actors/proc'

# The half that knows maths knows no actors.
maths='trainer/(engine|model|device|comm|ckpt|data|text)/'
runtime_headers='troupe/(actor|runtime|train)\.h'

# ---- Each outside library has one home, so that replacing it is a change of one file or folder.
homes='
zmq.*\.h                        core/net/
msgpack.*                       core/wire/
uuid/.*                         core/base/
xxhash\.h                       core/base/
jansson\.h                      core/base/json\.
sqlite3\.h                      core/sys/
(oneapi/)?(dnnl/)?dnnl.*\.h     trainer/device/cpu/gemm
omp\.h                          trainer/device/cpu/
(cuda|cublas|curand|nvml).*     trainer/device/cuda/
nccl.*\.h                       trainer/comm/nccl
curl/.*                         trainer/ckpt/
microhttpd\.h                   actors/proc/
(pcre2|utf8proc).*\.h           trainer/text/
(sys/prctl|spawn)\.h            (core/sys|actors/proc)/
sys/wait\.h                     (core/sys|actors)/
'

# ---- And so do the calls that only one place may make.
calls='
clock_gettime|gettimeofday|time|clock   core/net/clock\.|core/base/log\.c|trainer/run/(clock\.h|config\.c)|examples/
fork                                    core/sys/|actors/proc/zygote\.c
vfork|posix_spawnp?|execvp?e?|execlp?   core/sys/
waitpid|waitid|wait4                    core/sys/|actors/
'

# ---- The include lines ----

check_includes() {
    c_files $product | xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include' |
        awk -v layers="$layers" -v homes="$homes" -v maths="^$maths" -v runtime="^$runtime_headers$" '
        BEGIN {
            rows = split(layers, row, "\n")
            for (i = 1; i <= rows; i++) {
                n = split(row[i], part, " ")
                if (n > 0) {
                    allowed[part[1]] = row[i]
                }
            }
            count = split(homes, home, "\n")
        }
        function folder_of(path,   best, folder) {
            best = ""
            for (folder in allowed) {
                if (index(path, folder "/") == 1 && length(folder) > length(best)) {
                    best = folder
                }
            }
            return best
        }
        function may(folder, target,   part, n, i) {
            if (index(target, folder "/") == 1) {
                return 1
            }
            n = split(allowed[folder], part, " ")
            for (i = 2; i <= n; i++) {
                if (target == part[i] || index(target, part[i] "/") == 1) {
                    return 1
                }
            }
            return 0
        }
        function complain(text) {
            print place ": " text
        }
        {
            split($0, field, ":")
            file = field[1]
            place = field[1] ":" field[2]
            folder = folder_of(file)
            if (folder == "") {
                complain("its folder has no row in the table of tests/tidy/layers.sh")
                next
            }
            if (match($0, /"[^"]*"/)) {
                target = substr($0, RSTART + 1, RLENGTH - 2)
                if (!may(folder, target)) {
                    complain(folder " may not include " target)
                }
                next
            }
            if (!match($0, /<[^>]*>/)) {
                complain("an include of neither form")
                next
            }
            target = substr($0, RSTART + 1, RLENGTH - 2)
            if (file ~ maths && target ~ runtime) {
                complain("this half of the trainer knows no actors: " target)
            }
            if (folder == "include" && target !~ /^(troupe\/.*|std[a-z]*\.h)$/) {
                complain("public headers need only the C library: " target)
            }
            for (i = 1; i <= count; i++) {
                if (split(home[i], part, " ") == 2 && target ~ "^" part[1] "$" && file !~ "^" part[2]) {
                    complain(target " has its home in " part[2])
                }
            }
        }'
}

# ---- The link lines: the same table, read from CMakeLists.txt ----

check_links() {
    awk -v layers="$layers" -v links_only="$links_only" '
        BEGIN {
            rows = split(layers, row, "\n")
            for (i = 1; i <= rows; i++) {
                if (split(row[i], part, " ") > 0) {
                    allowed[part[1]] = row[i] " "
                }
            }
        }
        /^troupe_library\(/ {
            open_line = FNR
            text = ""
        }
        open_line {
            text = text " " $0
            if (index($0, ")")) {
                gsub(/troupe_library\(|\)/, " ", text)
                n = split(text, part, " ")
                folder[part[1]] = part[2]
                links[part[1]] = text
                line[part[1]] = open_line
                open_line = 0
            }
        }
        END {
            for (library in links) {
                n = split(links[library], part, " ")
                for (i = 3; i <= n; i++) {
                    from = folder[library]
                    to = folder[part[i]]
                    above = to
                    sub(/\/.*/, "", above)
                    if (to == "" || index(from, to "/") == 1 || from ">" to == links_only ||
                        index(allowed[from], " " to " ") || index(allowed[from], " " above " ")) {
                        continue
                    }
                    print "CMakeLists.txt:" line[library] ": " from " may not link " to
                }
            }
        }' CMakeLists.txt
}

# ---- Calls with one home ----

check_calls() {
    local names may
    while read -r names may; do
        [ -n "$names" ] || continue
        match "(^|[^A-Za-z0-9_.>])($names) *\(" "$may" < "$scratch/code" |
            sed -E "s#^([^:]*:[0-9]+):.*#\1: $names: only in $may#"
    done <<< "$calls"
}

# ---- Purity of state/: headers, words, and what the compiled code calls ----

pure_headers='std(arg|bool|def|int|io|lib)|string|inttypes|limits'
# Of base, what a pure file may call: not config (hidden input), log, id or json.
pure_base='core/base/base.c core/base/error.c core/base/buf.c core/base/arena.c core/base/table.c
core/base/hash.c core/wire/msg.c'
pure_symbols='mem(cpy|move|set|cmp|chr)|str(len|nlen|cmp|ncmp|chr|rchr|str|spn|cspn|pbrk)|v?snprintf|qsort|bsearch|sigabbrev_np|malloc|calloc|realloc|free|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__u?(div|mod|mul)[a-z]+[0-9]*|__(popcount|clz|ctz)[a-z]+2'

check_pure_text() {
    c_files core/state actors/state trainer/state | xargs -r grep -HnE '^[[:space:]]*#[[:space:]]*include *<' |
        grep -vE "<(($pure_headers)\.h|troupe/[a-z]+\.h)>" |
        sed -E 's/^([^:]*:[0-9]+):.*(<.*>).*/\1: a pure file may not include \2/'
    match '(^|[^A-Za-z0-9_])(float|double|volatile|_Atomic|_Thread_local|__thread)([^A-Za-z0-9_]|$)' \
        < <(grep -E '^[^:]*/state/' "$scratch/code") |
        sed -E 's/^([^:]*:[0-9]+):.*/\1: a pure file knows neither floats nor threads/'
}

# compile FILE...: into objects named after them; prints what does not compile.
compile() {
    local file
    for file in "$@"; do
        [ -e "$file" ] || continue
        ${CC:-cc} -std=gnu11 -O1 -w -D_GNU_SOURCE -DTROUPE_VERSION='"0"' -I. -Iinclude -c "$file" \
            -o "$scratch/$(tr / - <<< "$file").o" 2> "$scratch/errors" ||
            echo "$file:1: does not compile: $(head -n 1 "$scratch/errors")"
    done
}

check_pure_symbols() {
    local file object symbol states
    states=$(c_files core/state actors/state trainer/state | grep '\.c$')
    [ -n "$states" ] || return 0
    compile $states $pure_base > "$scratch/uncompiled"
    if [ -s "$scratch/uncompiled" ]; then
        cat "$scratch/uncompiled" # what the others call can't be judged without it
        return 0
    fi
    nm --defined-only -g "$scratch"/*.o 2> /dev/null | awk 'NF == 3 { print $3 }' | sort -u > "$scratch/defined"
    for file in $states; do
        object="$scratch/$(tr / - <<< "$file").o"
        [ -e "$object" ] || continue
        nm -u "$object" | awk '{ print $2 }' | grep -vxE "$pure_symbols" | grep -vxFf "$scratch/defined" |
            while read -r symbol; do
                echo "$file:$(grep -nwm 1 "$symbol" "$file" | cut -d: -f1): a pure file may not call $symbol"
            done
    done
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
code_of $product > "$scratch/code"

while IFS= read -r line; do
    complain "${line%%: *}" "${line#*: }"
done < <(check_includes; check_links; check_calls; check_pure_text; check_pure_symbols)

finish
