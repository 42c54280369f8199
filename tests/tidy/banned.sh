#!/bin/bash
# banned.sh SOURCE_DIR: calls and words that do not belong into the tree. Prints file:line of each.
set -u -o pipefail
. "$(dirname "$0")/lib.bash"

scratch=$(mktemp)
trap 'rm -f "$scratch"' EXIT
code_of $product tests > "$scratch"

# ban PATTERN PATH_THAT_MAY WHY
ban() {
    local line
    while IFS= read -r line; do
        complain "$(cut -d: -f1,2 <<< "$line")" "$3"
    done < <(match "$1" "$2" < "$scratch")
}

word='(^|[^A-Za-z0-9_.>])' # a member of that name is another thing
none='/' # no path of ours starts with it

ban "$word(strcpy|strcat|sprintf|vsprintf|gets|stpcpy) *\(" $none "writes without knowing the room; trpi_format() knows it"
ban "$word(atoi|atol|atoll|atof) *\(" 'tests/' "takes anything for a number; trpi_parse_u64() and its like do not"
ban "$word(strtok|strtok_r) *\(" $none "cuts its input to pieces; strcspn() does not"
ban "$word(system|popen) *\(" 'tests/' "runs a shell; trpi_process_spawn() runs a program"
ban "$word(alloca) *\(" $none "takes the stack without a limit"
ban "${word}assert *\(|# *include *<assert\.h>" 'tests/' "goes away with NDEBUG; TRP_ASSERT stays"
# A library does not end its user's process: only programs and what runs as one do.
ban "${word}exit *\(" 'actors/bin/|actors/proc/(head|node|worker|zygote|init)|examples/|tests/' "ends the process of whoever called"
ban "${word}abort *\(" 'core/base/base\.c|tests/' "use TRP_ASSERT"

# Words for work that is not done: in comments, so in whole lines.
while IFS= read -r line; do
    complain "$(cut -d: -f1,2 <<< "$line")" "unfinished work; do it, or say what is missing as NEEDSWORK"
done < <(c_files $product tests | xargs -r grep -HnwE 'TODO|FIXME|XXX')

finish
