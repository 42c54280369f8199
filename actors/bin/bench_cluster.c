/* bench_cluster.c: the clusters that are measured: the user's, or our own under a root of their
 * own, so that nothing of another cluster is near. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "actors/bin/bench.h"

#define DESCRIPTORS_PER_WORKER 4 /* three, and some to spare */

static trp_code make_root(bench *b, trp_error *err) {
    if (b->dir[0] != '\0') {
        return TRP_OK;
    }
    const char *parent = getenv("TMPDIR");
    parent = parent != NULL && parent[0] == '/' ? parent : "/tmp";
    trpi_format(b->dir, sizeof(b->dir), "%s/troupe-bench-XXXXXX", parent);
    if (mkdtemp(b->dir) == NULL) {
        b->dir[0] = '\0';
        return trpi_fail(err, TRP_EIO, "directory in %s: %s", parent, strerror(errno));
    }
    if (setenv("TROUPE_SESSION_ROOT", b->dir, 1) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "environment: out of memory");
    }
    return TRP_OK;
}

/* A node daemon has three descriptors for each worker, so many actors may need several of them. */
static size_t nodes_needed(const bench *b) {
    struct rlimit limit;
    if (b->cluster != BENCH_WARM || b->actors == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) {
        return 1;
    }
    size_t workers = (size_t)TRPI_MIN(limit.rlim_max, (rlim_t)1 << 24) / DESCRIPTORS_PER_WORKER;
    return 1 + (size_t)b->actors / TRPI_MAX(workers, (size_t)1);
}

static trp_code start_node(const char *address, trp_error *err) {
    const char *argv[12] = {"troupe",     "node-process", "--address",  address,
                            "--num-cpus", "64",           "--num-gpus", "0"};
    trpi_daemon node = {0};
    trp_code code = trpi_daemon_start(argv, 8, -1, &node, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "node daemon");
    }
    trpi_daemon_adopt_log(&node, "node", node.words[1]);
    close(node.pidfd);
    return TRP_OK;
}

static trp_code start_daemons(bench *b, char *ret_address, size_t size, trp_error *err) {
    const char *argv[8] = {"troupe", "head-process", "--port", "0"};
    bool is_cold = b->cluster == BENCH_COLD;
    trpi_daemon head = {0};
    if ((is_cold ? setenv("TROUPE_WARM_WORKERS", "0", 1) : unsetenv("TROUPE_WARM_WORKERS")) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "environment: out of memory");
    }
    trp_code code = trpi_daemon_start(argv, 4, -1, &head, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "head");
    }
    trpi_daemon_adopt_log(&head, "head", head.words[1]);
    close(head.pidfd);
    trpi_format(ret_address, size, "%s", head.words[0]);
    for (b->nodes = 0; b->nodes < nodes_needed(b) && code == TRP_OK; b->nodes++) {
        code = start_node(ret_address, err);
    }
    return code;
}

static trp_code connect_to(bench *b, const char *address, trp_error *err) {
    trp_init_options options = {.address = address, .job_name = "bench", .quiet = true};
    trp_code code = trp_init(trpi_bench_types, &options, &b->rt, err);
    code = code == TRP_OK ? bench_spawn(b, NULL, &b->echo, err) : code;
    return code == TRP_OK ? bench_ask(b, b->echo, err) : code;
}

trp_code bench_cluster_need(bench *b, bench_cluster cluster, trp_error *err) {
    char own[160];
    if (cluster == BENCH_NO_CLUSTER || (b->rt != NULL && b->cluster == cluster)) {
        return TRP_OK;
    }
    bench_cluster_end(b);
    b->cluster = cluster;
    if (b->address != NULL) {
        return connect_to(b, b->address, err);
    }
    trp_code code = make_root(b, err);
    code = code == TRP_OK ? start_daemons(b, own, sizeof(own), err) : code;
    return code == TRP_OK ? connect_to(b, own, err) : code;
}

void bench_cluster_end(bench *b) {
    trp_error err;
    size_t count;
    trp_shutdown(&b->rt);
    if (b->dir[0] != '\0' && trpi_stop_clusters(NULL, NULL, &count, &err) != TRP_OK) {
        fprintf(stderr, "troupe bench: %s\n", err.message);
    }
}

trp_code bench_spawn(bench *b, const trp_spawn_options *options, trp_actor *ret_actor,
                     trp_error *err) {
    return trp_spawn(b->rt, "bench", (trp_bytes){NULL, 0}, options, ret_actor, err);
}

trp_code bench_ask(bench *b, trp_actor actor, trp_error *err) {
    return trp_ask(b->rt, actor, "ok", (trp_bytes){NULL, 0}, BENCH_WAIT_MS, NULL, err);
}
