/* bench_peer.c: the other process of the raw measurements, and the actor of ours. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/bin/bench.h"
#include "core/net/floor.h"
#include "core/sys/host.h"
#include "core/sys/process.h"

/* ---- The actor ---- */

static trp_code run_echo(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                         trp_error *err) {
    return trp_buf_append(reply, args.data, args.size);
}

static const trp_method methods[] = {{"echo", run_echo}, {NULL, NULL}};
static const trp_actor_type bench_type = {.name = "bench", .methods = methods};
const trp_actor_type *const trpi_bench_types[] = {&bench_type, NULL};

/* ---- The raw peer ---- */

trp_code bench_peer_start(bench *b, char *ret_endpoint, size_t size, pid_t *ret_pid,
                          trp_error *err) {
    char exe[1024], root[160];
    trp_code code = trpi_host_exe(exe, sizeof(exe), err);
    if (code == TRP_OK) {
        code = trpi_session_root(root, sizeof(root), err);
    }
    if (code != TRP_OK) {
        return code;
    }
    trpi_format(ret_endpoint, size, "ipc://%s/bench-%d-%d", root, (int)getpid(), b->peers++);
    const char *argv[] = {"troupe", "bench-peer", ret_endpoint, NULL};
    trpi_spawn how = {.exe = exe,
                      .argv = argv,
                      .in = -1,
                      .out = STDERR_FILENO,
                      .err = STDERR_FILENO,
                      .keep_fd = -1,
                      .die_with_parent = true};
    return trpi_process_spawn(&how, ret_pid, err);
}

void bench_peer_end(pid_t pid) {
    if (pid > 0) {
        (void)kill(pid, SIGKILL); /* ours, and not yet waited for: the number is still its own */
        (void)waitpid(pid, NULL, 0);
    }
}

int trpi_command_bench_peer(int argc, char **argv) {
    const char *words[2];
    const trpi_usage usage = {.command = "bench-peer",
                              .arguments = "ENDPOINT",
                              .summary = "Echoes messages; troupe bench runs it.",
                              .arguments_min = 1,
                              .arguments_max = 1};
    trp_error err;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    if (trpi_floor_serve(words[0], &err) != TRP_OK) {
        return trpi_failed(usage.command, &err);
    }
    return TRPI_EXIT_OK;
}
