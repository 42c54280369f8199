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

# The child of fork() has one thread and the locks of all as they were: only where there is one thread, or
# the child does nothing but start another program. Tests have test_child_fork(), which looks.
#   zygote.c            forks workers before anything has made a thread: that is what it is for
#   guard.c             likewise, once; by exec it would hold all libraries of a daemon for nothing
#   child.c             test_child_fork()
#   partition_test.c    in such a child, whose own child must be the first process of its namespace
ban "$word(fork|vfork|clone) *\(" 'core/sys/(process|guard)\.c|actors/proc/zygote\.c|tests/lib/child\.c|tests/integration/partition_test\.c' \
    "copies the locks of other threads; start the program again: trpi_process_spawn(), test_child_start()"
# Without WNOHANG it waits for ever for who does not end.
#   process.c           for a child that has told that exec failed, after which it only calls _exit()
#   zygote.c            for one that only forks, and writes into a socket of the node that waits for both
#   guard.c             for one that only forks
#   node_deaths.c       for one of whose end its pidfd has told
#   bench_*.c           for one that it has just killed
#   partition_test.c    in a child that is killed with its parent, by whom it is waited for with a deadline
ban "$word(waitpid|wait4|waitid) *\([^;]*, *(0|WEXITED[^;]*)\)|${word}wait *\(" \
    'core/sys/(process|guard)\.c|actors/proc/(zygote|node_deaths)\.c|actors/bin/bench_(peer|step)\.c|tests/integration/partition_test\.c' \
    "has no deadline; test_child_wait() has"

# Words for work that is not done: in comments, so in whole lines.
while IFS= read -r line; do
    complain "$(cut -d: -f1,2 <<< "$line")" "unfinished work; do it, or say what is missing as NEEDSWORK"
done < <(c_files $product tests | xargs -r grep -HnwE 'TODO|FIXME|XXX')

finish
