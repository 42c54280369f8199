#include "actors/proc/worker_name.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

#define NAME_BYTES 16 /* the kernel's limit, with the NUL */

static void begin_of(uint64_t actor, char out[NAME_BYTES]) {
    trpi_format(out, NAME_BYTES, "a%llu ", (unsigned long long)actor);
}

void trpi_worker_name_take(uint64_t actor, const char *type) {
    char name[NAME_BYTES];
    begin_of(actor, name);
    size_t used = strlen(name);
    trpi_format(name + used, sizeof name - used, "%s", type);
    (void)prctl(PR_SET_NAME, name, 0, 0, 0);
}

bool trpi_worker_name_is_taken(pid_t pid, uint64_t actor) {
    char path[64], begin[NAME_BYTES], name[NAME_BYTES + 2] = "";
    trpi_format(path, sizeof path, "/proc/%d/comm", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) {
        return true; /* in doubt it has lived */
    }
    if (!fgets(name, sizeof name, file)) {
        name[0] = '\0';
    }
    fclose(file);
    begin_of(actor, begin);
    return strncmp(name, begin, strlen(begin)) == 0;
}
