#!/bin/bash
# finds.sh SOURCE_DIR: the scripts beside it find what they are for. A small bad tree is made, and each line
# in it that is marked BAD must be reported, and no other one.
set -u -o pipefail
. "$(dirname "$0")/lib.bash"

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cp .clang-format "$tree/"

# put FILE: its content comes from stdin.
put() {
    mkdir -p "$tree/$(dirname "$1")"
    cat > "$tree/$1"
}

put CMakeLists.txt << 'END'
troupe_library(core_base core/base m)
troupe_library(core_net core/net core_base)
troupe_library(core_sys core/sys core_net) # BAD
troupe_library(actors_proc actors/proc core_net)
troupe_library(trainer_run trainer/run
               actors_proc core_base)
END
put include/troupe/x.h << 'END'
#include <stdint.h>
#include <troupe/y.h>
#include <pthread.h> /* BAD */
END
put core/base/json.c << 'END'
#include "core/base/json.h"
#include "core/net/sock.h" /* BAD */
#include <troupe/x.h>
#include <zmq.h> /* BAD */
/* fork() strcpy() in a comment, and "core/net" are fine */
const char *text = "fork( strcpy( assert(";
int f(void) { return fork(); } /* BAD */
END
put core/net/sock.c << 'END'
#include <zmq.h>
#include "core/wire/msg.h"
#include "actors/proc/head.h" /* BAD */
END
put core/state/pool.c << 'END'
#include <string.h>
#include <time.h> /* BAD */
static double share; /* BAD */
int trpi_pool(const char *text) {
    extern long random(void); /* BAD */
    return (int)random() + (int)strlen(text);
}
END
put trainer/engine/zero.c << 'END'
#include <troupe/zero.h>
#include <troupe/actor.h> /* BAD */
#include "trainer/run/fit.h" /* BAD */
END
put trainer/run/fit.c << 'END'
#include <troupe/actor.h>
#include "actors/proc/client.h" /* BAD */
#include "trainer/state/ranks.h"
#include <jansson.h> /* BAD */
END
put trainer/strange/x.c << 'END'
#include <stdio.h> /* BAD */
END
put examples/hello.c << 'END'
#include "core/base/base.h" /* BAD */
END
put actors/proc/output.c << 'END'
int a(void) { return exit(1), 0; } /* BAD */
int b(void) { return atoi("1"); } /* BAD */
int c(void) { assert(1); } /* BAD */
int d(void) { TRP_ASSERT(1); trpi_strcpy(x); }
int e(void) { _exit(1); }
/* TODO: everything */ /* BAD */
char name[] = "/tmp/x_XXXXXX";
END
put tests/unit/x_test.c << 'END'
int c(void) { assert(1); }
int b(void) { return system("ls"); }
void d(void) { strcpy(x, y); } /* BAD */
int e(void) { return fork(); } /* BAD */
int f(void) { return test_child_fork(); }
int g(pid_t pid) { return waitpid(pid, NULL, 0); } /* BAD */
int h(pid_t pid) { return waitpid(pid, NULL, WNOHANG); }
int i(void) { return wait(NULL); } /* BAD */
void j(void) { trpi_wait(NULL); }
END

grep -rn 'BAD' "$tree" | sed -E "s#^$tree/([^:]*:[0-9]+):.*#\1#" | sort -u > "$tree/expected"
for script in layers banned; do
    "$tidy_dir/$script.sh" "$tree" && complain "$script.sh:1" "says that the bad tree is good"
done | tee "$tree/said" | grep -oE '^[^: ]+:[0-9]+: ' | sed 's/: $//' | sort -u > "$tree/found"
while IFS= read -r line; do
    complain "$line" "differs from what was to be found ('<' was not found, '>' is not bad)"
done < <(diff "$tree/expected" "$tree/found" | grep '^[<>]')

if command -v clang-format-14 > /dev/null; then
    "$tidy_dir/format.sh" "$tree" > /dev/null && complain "format.sh:1" "finds nothing to format"
fi

finish
