/* bench_peer.c: the other processes of the raw measurements. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "actors/bin/bench.h"
#include "core/sys/host.h"
#include "core/sys/process.h"

#define TRIPS 20

trp_code bench_peer_start(bench *b, const char *const *targets, size_t target_count,
                          char *ret_endpoint, size_t size, pid_t *ret_pid, trp_error *err) {
    char exe[1024], root[160];
    const char *argv[BENCH_ACTORS_MAX + 4] = {"troupe", "bench-peer", ret_endpoint};
    trp_code code = trpi_host_exe(exe, sizeof(exe), err);
    if (code == TRP_OK) {
        code = trpi_session_root(root, sizeof(root), err);
    }
    if (code != TRP_OK) {
        return code;
    }
    TRP_ASSERT(target_count <= BENCH_ACTORS_MAX);
    for (size_t i = 0; i < target_count; i++) {
        argv[3 + i] = targets[i];
    }
    trpi_format(ret_endpoint, size, "ipc://%s/bench-%d-%d", root, (int)getpid(), b->peers++);
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

trp_code bench_floor(bench *b, trp_error *err) {
    char endpoint[256];
    const char *only[] = {endpoint};
    if (b->floor != NULL) {
        return TRP_OK;
    }
    trp_code code = bench_peer_start(b, NULL, 0, endpoint, sizeof(endpoint), &b->floor_pid, err);
    return code == TRP_OK ? trpi_floor_open(only, 1, BENCH_WAIT_MS, &b->floor, err) : code;
}

void bench_floor_close(bench *b) {
    trpi_floor_close(b->floor);
    bench_peer_end(b->floor_pid);
    b->floor = NULL;
    b->floor_pid = 0;
}

trp_code bench_raw_trips(bench *b, void *arg, double *units, trp_error *err) {
    trp_code code = TRP_OK;
    for (int i = 0; i < TRIPS && code == TRP_OK; i++) {
        code = trpi_floor_round_trip(b->floor, 16, err);
    }
    *units += TRIPS;
    return code;
}

int trpi_command_bench_peer(int argc, char **argv) {
    const char *words[BENCH_ACTORS_MAX + 2];
    const trpi_usage usage = {.command = "bench-peer",
                              .arguments = "ENDPOINT [TARGET...]",
                              .summary = "Echoes messages, or drives others; troupe bench runs it.",
                              .arguments_min = 1,
                              .arguments_max = BENCH_ACTORS_MAX + 1};
    trp_error err;
    size_t count = 1;
    int exit_code = TRPI_EXIT_OK;
    if (!trpi_options_parse(&usage, argc, argv, words, &exit_code)) {
        return exit_code;
    }
    while (words[count] != NULL) {
        count++;
    }
    trp_code code =
        count > 1 ? trpi_floor_serve_drive(words[0], words + 1, count - 1, BENCH_WAIT_MS, &err)
                  : trpi_floor_serve(words[0], &err);
    return code == TRP_OK ? TRPI_EXIT_OK : trpi_failed(usage.command, &err);
}
