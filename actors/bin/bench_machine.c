/* bench_machine.c: on what the figures were measured, and whether others were at work there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "actors/bin/bench.h"
#include "core/sys/file.h"
#include "core/sys/host.h"

#define BUSY_PER_CPU 0.3 /* load average of a machine that is not quiet */

static void find_model(char *out, size_t size) {
    trp_buf text = {0};
    TRP_ASSERT(size > 0);
    trpi_format(out, size, "unknown CPU");
    if (trpi_file_read("/proc/cpuinfo", 0, &text, NULL) == TRP_OK &&
        trp_buf_append(&text, "", 1) == TRP_OK) {
        const char *line = strstr((const char *)text.data, "model name");
        const char *value = line != NULL ? strstr(line, ": ") : NULL;
        if (value != NULL) {
            trpi_format(out, size, "%.*s", (int)strcspn(value + 2, "\n"), value + 2);
        }
    }
    trp_buf_release(&text);
}

void bench_machine_find(bench_machine *machine) {
    find_model(machine->model, sizeof(machine->model));
    machine->cpus = trpi_host_cpus();
    if (getloadavg(&machine->load, 1) != 1) {
        machine->load = -1;
    }
}

void bench_machine_print(const bench_machine *machine) {
    printf("%s, %d %s", machine->model, machine->cpus, machine->cpus == 1 ? "CPU" : "CPUs");
    if (machine->load >= 0) {
        printf(", load average %.2f", machine->load);
    }
    printf("\n");
    if (machine->load > BUSY_PER_CPU * machine->cpus) {
        printf("Others are at work here: times of single calls and starts come out too long.\n");
    }
    printf("\n");
}

json_t *bench_machine_json(const bench_machine *machine) {
    return json_pack("{s:s, s:i, s:f}", "model", machine->model, "cpus", machine->cpus, "load",
                     machine->load);
}
