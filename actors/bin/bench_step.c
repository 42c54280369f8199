/* bench_step.c: a training step of the quickstart's model, beside its matrix products alone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/bin/bench.h"
#include "core/net/clock.h"
#include "core/net/sock.h"
#include "core/sys/host.h"
#include "core/sys/process.h"

#define PROGRAM "troupe-step-bench"
#define STEPS 11
#define WAIT_MS 60000

/* It lies beside this program. */
static trp_code start(size_t steps, int out, pid_t *ret_pid, trp_error *err) {
    char exe[1024 + sizeof(PROGRAM)], count[24];
    const char *argv[] = {PROGRAM, "--quickstart", count, NULL};
    trpi_format(count, sizeof(count), "%zu", steps);
    trp_code code = trpi_host_exe(exe, sizeof(exe) - sizeof(PROGRAM), err);
    if (code != TRP_OK) {
        return code;
    }
    char *name = strrchr(exe, '/') + 1; /* it is absolute */
    trpi_format(name, sizeof(exe) - (size_t)(name - exe), "%s", PROGRAM);
    trpi_spawn how = {.exe = exe,
                      .argv = argv,
                      .in = -1,
                      .out = out,
                      .err = STDERR_FILENO,
                      .keep_fd = -1,
                      .die_with_parent = true};
    return trpi_process_spawn(&how, ret_pid, err);
}

/* What it prints until it ends: one short line. */
static trp_code read_answer(int fd, char *text, size_t size, trp_error *err) {
    uint64_t deadline_ns = trpi_deadline_ns(WAIT_MS);
    size_t used = 0;
    trp_code code = bench_go_on(err);
    while (code == TRP_OK && used + 1 < size) {
        trpi_poll_item item = {.fd = fd};
        if (trpi_poll(&item, 1, trpi_left_ms(deadline_ns)) == TRP_OK) {
            ssize_t got = read(fd, text + used, size - 1 - used);
            if (got <= 0) {
                break;
            }
            used += (size_t)got;
        } else if (trpi_now_ns() >= deadline_ns) {
            return trpi_fail(err, TRP_ETIMEOUT, "it has not ended within %d s", WAIT_MS / 1000);
        }
        code = bench_go_on(err);
    }
    text[used] = '\0';
    return code;
}

static trp_code measure(size_t steps, double *ret_step, double *ret_products, trp_error *err) {
    int pipes[2];
    pid_t pid = 0;
    char text[64];
    if (pipe2(pipes, O_CLOEXEC) != 0) {
        return trpi_fail(err, TRP_EBUSY, "pipe: %s", strerror(errno));
    }
    trp_code code = start(steps, pipes[1], &pid, err);
    close(pipes[1]);
    if (code == TRP_OK) {
        code = read_answer(pipes[0], text, sizeof(text), err);
        (void)kill(pid, SIGKILL); /* ours, and not yet waited for */
        (void)waitpid(pid, NULL, 0);
        if (code == TRP_OK && sscanf(text, "%lf %lf", ret_step, ret_products) != 2) {
            code = trpi_fail(err, TRP_EIO, "it failed; it printed why");
        }
    }
    close(pipes[0]);
    return code == TRP_OK ? code : trpi_context(err, code, PROGRAM);
}

trp_code bench_step(bench *b, bench_figure *figure, trp_error *err) {
    figure->raw_what = "its matrix products";
    return measure(bench_trials(b, 3, STEPS), &figure->troupe, &figure->raw, err);
}
