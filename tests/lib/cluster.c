#include "tests/lib/cluster.h"

#include <dirent.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "actors/proc/client.h"
#include "core/sys/file.h"
#include "core/sys/session.h"
#include "tests/lib/child.h"

enum { START_TIMEOUT_MS = 60000, STOP_TIMEOUT_MS = 60000, SETTLE_MS = 10000 };

uint64_t test_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

bool test_until(bool (*holds)(void *arg), void *arg, uint64_t timeout_ms) {
    uint64_t end = test_now_ms() + timeout_ms;
    while (!holds(arg)) {
        if (test_now_ms() >= end) {
            return false;
        }
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
    return true;
}

void test_check_ok(trp_code code, const trp_error *err, const char *call, const char *file,
                   int line) {
    if (code != TRP_OK) {
        print_error("%s:%d: %s: %s: %s\n", file, line, call, trp_code_name(code), err->message);
        fail();
    }
}

void test_serve_if_worker(const trp_actor_type *const *types) {
    if (getenv("TROUPE_ZYGOTE_FD") == NULL) {
        return;
    }
    trp_runtime *rt = NULL;
    trp_error err = {0};
    (void)!trp_init(types, NULL, &rt, &err); /* does not return */
    _exit(70);
}

static const char *troupe_bin(void) {
    const char *bin = getenv("TROUPE_BIN");
    if (bin == NULL) {
        print_error("TROUPE_BIN is not set: run this through ctest\n");
        fail();
    }
    return bin;
}

/* ---- What is there ---- */

static int count_entries(const char *path) {
    DIR *dir = opendir(path);
    int count = 0;
    while (dir != NULL && readdir(dir) != NULL) {
        count++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

/* Shared memory by a name: troupe makes none. Others' may come and go beside the test. */
static int count_segments(void) {
    DIR *dir = opendir("/dev/shm");
    struct dirent *entry;
    int count = 0;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        count += entry->d_type == DT_REG && strncmp(entry->d_name, "tr", 2) == 0;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static bool environ_has(pid_t pid, const char *entry) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    trp_buf text = {0};
    bool found = false;
    if (trpi_file_read(path, 0, &text, NULL) == TRP_OK) {
        found = text.size > 0 && memmem(text.data, text.size, entry, strlen(entry) + 1) != NULL;
    }
    trp_buf_release(&text);
    return found;
}

size_t test_processes_with(const char *entry, pid_t *pids, size_t max) {
    DIR *proc = opendir("/proc");
    assert_non_null(proc);
    size_t count = 0;
    for (struct dirent *e; (e = readdir(proc)) != NULL;) {
        pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && environ_has(pid, entry) && count < max) {
            pids[count++] = pid;
        }
    }
    closedir(proc);
    return count;
}

size_t test_cluster_processes(const test_cluster *cluster, pid_t *pids, size_t max) {
    char entry[128];
    snprintf(entry, sizeof entry, "TROUPE_SESSION_ROOT=%s", cluster->root);
    return test_processes_with(entry, pids, max);
}

/* By their start: process ids begin again at some point. It is told in hundredths of a second, in
 * which two may start. */
static int by_start(const void *a, const void *b) {
    const trpi_pidfile *left = a, *right = b;
    if (left->start_time != right->start_time) {
        return left->start_time < right->start_time ? -1 : 1;
    }
    return left->pid < right->pid ? -1 : left->pid > right->pid;
}

size_t test_cluster_pids(const test_cluster *cluster, const char *role, pid_t *pids, size_t max) {
    trpi_pidfile *files = NULL;
    bool *alive = NULL;
    size_t file_count = 0, living = 0, count = 0;
    setenv("TROUPE_SESSION_ROOT", cluster->root, 1);
    assert_int_equal(trpi_pidfile_list(&files, &alive, &file_count, NULL), TRP_OK);
    for (size_t i = 0; i < file_count; i++) {
        if (alive[i] && strcmp(files[i].role, role) == 0) {
            files[living++] = files[i];
        }
    }
    if (living > 0) {
        qsort(files, living, sizeof *files, by_start);
    }
    for (; count < living && count < max; count++) {
        pids[count] = files[count].pid;
    }
    free(files);
    free(alive);
    return count;
}

/* ---- Start and stop ---- */

static void start_daemons(test_cluster *cluster, const test_node *node, bool head) {
    char cpus[32], gpus[32];
    snprintf(cpus, sizeof cpus, "%g", node->cpus);
    snprintf(gpus, sizeof gpus, "%g", node->gpus);
    const char *argv[16] = {troupe_bin(), "start"};
    size_t n = 2;
    if (head) {
        argv[n++] = "--head";
        argv[n++] = "--port";
        argv[n++] = "0";
    } else {
        argv[n++] = "--address";
        argv[n++] = cluster->address;
    }
    argv[n++] = "--num-cpus";
    argv[n++] = cpus;
    argv[n++] = "--num-gpus";
    argv[n++] = gpus;
    if (node->resources != NULL) {
        argv[n++] = "--resources";
        argv[n++] = node->resources;
    }
    trp_buf output = {0};
    int code = test_run(argv, &output, START_TIMEOUT_MS);
    if (code != 0) {
        print_error("troupe start exited with %d: %.*s\n", code, (int)output.size,
                    (const char *)output.data);
    }
    trp_buf_release(&output);
    assert_int_equal(code, 0);
}

void test_cluster_start(test_cluster *cluster, const test_node *nodes, size_t count) {
    memset(cluster, 0, sizeof *cluster);
    cluster->shm_before = count_segments();
    cluster->fds_before = count_entries("/proc/self/fd");
    snprintf(cluster->root, sizeof cluster->root, "/tmp/trp-test-XXXXXX");
    assert_non_null(mkdtemp(cluster->root));
    setenv("TROUPE_SESSION_ROOT", cluster->root, 1);
    unsetenv("TROUPE_ADDRESS");
    start_daemons(cluster, &nodes[0], true);

    trpi_pidfile *files = NULL;
    bool *alive = NULL;
    size_t file_count = 0;
    assert_int_equal(trpi_pidfile_list(&files, &alive, &file_count, NULL), TRP_OK);
    for (size_t i = 0; i < file_count; i++) {
        if (strcmp(files[i].role, "head") == 0) {
            snprintf(cluster->address, sizeof cluster->address, "%.63s", files[i].address);
        }
    }
    free(files);
    free(alive);
    assert_true(cluster->address[0] != '\0');
    setenv("TROUPE_ADDRESS", cluster->address, 1);
    for (size_t i = 1; i < count; i++) {
        test_cluster_add(cluster, &nodes[i]);
    }
}

void test_cluster_add(test_cluster *cluster, const test_node *node) {
    start_daemons(cluster, node, false);
}

trp_runtime *test_connect(const test_cluster *cluster, const trp_actor_type *const *types) {
    trp_runtime *rt = NULL;
    trp_init_options options = {.address = cluster->address};
    TEST_OK(trp_init(types, &options, &rt, err));
    return rt;
}

static bool nothing_runs(void *arg) {
    pid_t pids[8];
    return test_cluster_processes(arg, pids, 8) == 0;
}

static void print_leftovers(const test_cluster *cluster) {
    pid_t pids[64];
    size_t count = test_cluster_processes(cluster, pids, 64);
    for (size_t i = 0; i < count; i++) {
        char path[64], link[64];
        trp_buf text = {0};
        snprintf(path, sizeof path, "/proc/%d/cmdline", (int)pids[i]);
        snprintf(link, sizeof link, "/proc/%d/stat", (int)pids[i]);
        (void)!trpi_file_read(path, 0, &text, NULL);
        for (size_t at = 0; at < text.size; at++) {
            text.data[at] = text.data[at] == 0 ? ' ' : text.data[at];
        }
        print_error("left running: pid %d: %.*s\n", (int)pids[i], (int)text.size,
                    text.size > 0 ? (const char *)text.data : "");
        trp_buf_release(&text);
    }
}

void test_cluster_stop(test_cluster *cluster) {
    setenv("TROUPE_SESSION_ROOT", cluster->root, 1);
    const char *argv[] = {troupe_bin(), "stop", NULL};
    trp_buf output = {0};
    int code = test_run(argv, &output, STOP_TIMEOUT_MS);
    if (code != 0) {
        print_error("troupe stop exited with %d: %.*s\n", code, (int)output.size,
                    (const char *)output.data);
    }
    trp_buf_release(&output);
    bool clean = test_until(nothing_runs, cluster, SETTLE_MS);
    if (!clean) {
        print_leftovers(cluster);
    }
    char **names = NULL;
    size_t left = 0;
    (void)!trpi_dir_list(cluster->root, &names, &left, NULL);
    for (size_t i = 0; i < left; i++) {
        print_error("left in the session root: %s\n", names[i]);
    }
    trpi_names_free(names, left);
    (void)!trpi_dir_remove(cluster->root, NULL);
    assert_int_equal(code, 0);
    assert_true(clean);
    assert_int_equal(left, 0);
    assert_true(count_segments() <= cluster->shm_before);
    assert_int_equal(count_entries("/proc/self/fd"), cluster->fds_before);
}

/* ---- Resources, as the head counts them ---- */

static bool all_free(void *arg) {
    trpi_client_reply *storage = NULL;
    const trpi_msg *reply = NULL;
    trpi_msg msg = {.type = TRPI_MSG_LIST_QUERY, .list_query = {.what = "nodes"}};
    trp_error err = {0};
    if (trpi_client_request(arg, &msg, 5000, &storage, &reply, &err) != TRP_OK ||
        reply->type != TRPI_MSG_LISTED) {
        print_error("cannot list nodes: %s\n", err.message);
        return false;
    }
    json_t *rows = json_loadb(reply->listed.json.data, reply->listed.json.size, 0, NULL);
    bool free_now = json_is_array(rows) && json_array_size(rows) > 0;
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        json_t *state = json_object_get(row, "state");
        if (json_is_string(state) && strcmp(json_string_value(state), "alive") != 0) {
            continue;
        }
        json_t *total = json_object_get(row, "total"), *used = json_object_get(row, "used"),
               *amount;
        const char *name;
        free_now = free_now && json_is_object(total) && json_is_object(used);
        json_object_foreach(used, name, amount) {
            free_now = free_now && json_number_value(amount) == 0.0;
        }
    }
    json_decref(rows);
    trpi_client_reply_release(storage);
    return free_now;
}

void test_expect_all_free(trp_runtime *rt, uint64_t timeout_ms) {
    assert_true(test_until(all_free, rt, timeout_ms));
}
