/* A process is ended at every step of a commit, a removal and a sweep, and at random instants by
 * SIGKILL; the disk fills up at every size. Whatever happens, what a successor finds is the old
 * state or the new one, whole, and it can go on. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/net/clock.h"
#include "core/sys/file.h"
#include "tests/lib/child.h"
#include "trainer/ckpt/safetensors.h"
#include "trainer/ckpt/store.h"

enum { RANKS = 2, FLOATS = 5000, CRASHED = 99 };

static char dir[64];

static int make_dir(void **state) {
    TRPI_SET(dir, "/tmp/troupe-crash-XXXXXX");
    return mkdtemp(dir) ? 0 : 1;
}

static int remove_dir(void **state) {
    return trpi_dir_remove(dir, NULL);
}

static void must(trp_code code, const trp_error *err) {
    if (code) {
        fail_msg("%s: %s", trp_code_name(code), err->message);
    }
}

/* ---- One checkpoint. Runs in children: no asserts, codes only ---- */

static trp_code write_shard(const char *staging, int rank, uint64_t number, trp_error *err) {
    char path[512];
    float data[FLOATS];
    trpi_tensor_writer *writer = NULL;
    trpi_format(path, sizeof path, "%s/shard-%d.safetensors", staging, rank);
    for (int i = 0; i < FLOATS; i++) {
        data[i] = (float)(number * 1000 + (uint64_t)rank) + (float)i;
    }
    trp_code code = trpi_tensor_writer_open(path, &writer, err);
    if (!code) {
        code = trpi_tensor_writer_add(writer, "w", TRPI_STORED_F32, (int64_t[]){FLOATS}, 1, err);
    }
    if (!code) {
        code = trpi_tensor_writer_append(writer, 0, data, sizeof data, err);
    }
    if (code) {
        trpi_tensor_writer_abort(writer);
        return code;
    }
    return trpi_tensor_writer_finish(&writer, err);
}

static trp_code checkpoint(trpi_ckpt_store *store, uint64_t attempt, uint64_t number,
                           trp_error *err) {
    trp_code code = TRP_OK;
    trpi_manifest manifest = {.number = number, .step = number, .attempt = attempt, .world = RANKS};
    for (int rank = 0; !code && rank < RANKS; rank++) {
        trp_buf staging = {0};
        code = trpi_ckpt_store_stage(trpi_ckpt_store_path(store), attempt, number, rank, &staging,
                                     err);
        if (!code) {
            code = write_shard((const char *)staging.data, rank, number, err);
        }
        if (!code) {
            code = trpi_ckpt_store_seal((const char *)staging.data, rank, &manifest, err);
        }
        trp_buf_release(&staging);
    }
    if (!code) {
        code = trpi_ckpt_store_commit(store, &manifest, NULL, err);
    }
    trpi_manifest_release(&manifest);
    return code;
}

static trpi_ckpt_store *open_run(const char *name) {
    trp_error err;
    trpi_ckpt_store *store = NULL;
    must(trpi_ckpt_store_open(dir, name, TRPI_CKPT_STORE_AUTO, &store, NULL, &err), &err);
    return store;
}

/* Exit status of a child that runs `body` on its own store: 0, CRASHED, or 1 with a message. */
static int in_child(const char *name, uint64_t crash_at,
                    trp_code (*body)(trpi_ckpt_store *, uint64_t, trp_error *), uint64_t arg) {
    pid_t pid = test_child_fork();
    if (pid == 0) {
        trp_error err = {0};
        trpi_ckpt_store *store = NULL;
        trp_code code = trpi_ckpt_store_open(dir, name, TRPI_CKPT_STORE_AUTO, &store, NULL, &err);
        trpi_ckpt_store_crash_at(crash_at);
        code = code ? code : body(store, arg, &err);
        if (code) {
            fprintf(stderr, "child: %s\n", err.message);
        }
        _exit(code ? 1 : 0);
    }
    return test_child_exit_code(pid, "the child that crashes");
}

/* Everything that is listed verifies, byte for byte, and so does every tensor; returns how many. */
static size_t all_whole(const trpi_ckpt_store *store) {
    trp_error err;
    trpi_checkpoint *list;
    size_t count;
    must(trpi_ckpt_store_list(store, &list, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        char path[512];
        must(list[i].damage.code, &list[i].damage);
        must(trpi_manifest_verify(&list[i].manifest, list[i].path, TRPI_VERIFY_CHECKSUMS, &err),
             &err);
        for (int rank = 0; rank < RANKS; rank++) {
            trpi_tensor_file *file;
            float first;
            trpi_format(path, sizeof path, "%s/shard-%d.safetensors", list[i].path, rank);
            must(trpi_tensor_file_open(path, &file, &err), &err);
            must(trpi_tensor_file_verify(file, NULL, &err), &err);
            must(trpi_tensor_file_read(file, trpi_tensor_file_at(file, 0), 0, &first, 4, &err),
                 &err);
            assert_true(first == (float)(list[i].number * 1000 + (uint64_t)rank));
            trpi_tensor_file_close(file);
        }
    }
    trpi_checkpoints_free(list, count);
    return count;
}

static uint64_t newest_number(const trpi_ckpt_store *store) {
    trp_error err;
    trpi_checkpoint *newest;
    must(trpi_ckpt_store_newest(store, TRPI_VERIFY_CHECKSUMS, NULL, NULL, &newest, &err), &err);
    uint64_t number = newest->number;
    trpi_checkpoints_free(newest, 1);
    return number;
}

/* The next attempt sweeps, commits once more, and leaves no trace of what was interrupted. */
static void successor_goes_on(trpi_ckpt_store *store) {
    trp_error err;
    uint64_t next;
    must(trpi_ckpt_store_sweep(store, 2, &err), &err);
    size_t before = all_whole(store);
    must(trpi_ckpt_store_next_number(store, &next, &err), &err);
    must(checkpoint(store, 2, next, &err), &err);
    assert_int_equal(newest_number(store), next);
    assert_int_equal(all_whole(store), before + 1);
    char **names;
    size_t count, others = 0;
    must(trpi_dir_list(trpi_ckpt_store_path(store), &names, &count, &err), &err);
    for (size_t i = 0; i < count; i++) {
        others += strncmp(names[i], ".staging", 8) == 0 || strncmp(names[i], ".deleted", 8) == 0;
    }
    assert_int_equal(others, 0);
    trpi_names_free(names, count);
}

/* ---- Ended at every step ---- */

static trp_code body_commit(trpi_ckpt_store *store, uint64_t number, trp_error *err) {
    return checkpoint(store, 1, number, err);
}

static void a_commit_that_ends_at_any_step_leaves_the_old_or_the_new_one(void **state) {
    int steps = 0, old = 0, new = 0;
    for (uint64_t step = 1;; step++) {
        char name[32];
        trp_error err;
        trpi_format(name, sizeof name, "commit-%d", (int)step);
        trpi_ckpt_store *store = open_run(name);
        must(checkpoint(store, 1, 0, &err), &err);
        int status = in_child(name, step, body_commit, 1);
        assert_true(status == 0 || status == CRASHED);
        uint64_t newest = newest_number(store);
        assert_true(newest <= 1);
        assert_int_equal(all_whole(store), newest + 1);
        assert_true(status == CRASHED || newest == 1); /* it had returned: it is there */
        old += status == CRASHED && newest == 0;
        new += status == CRASHED &&newest == 1;
        successor_goes_on(store);
        trpi_ckpt_store_close(store);
        if (status == 0) {
            break;
        }
        steps++;
    }
    print_message("%d steps: %d times the old one, %d times the new one\n", steps, old, new);
    assert_true(old >= 10 && new >= 1);
}

static trp_code body_remove(trpi_ckpt_store *store, uint64_t number, trp_error *err) {
    return trpi_ckpt_store_remove(store, number, err);
}

/* The removed one is the newest, the case in which its number could come back. */
static void a_removal_that_ends_at_any_step_leaves_it_whole_or_gone(void **state) {
    int steps = 0, gone = 0;
    for (uint64_t step = 1;; step++) {
        char name[32];
        trp_error err;
        uint64_t next;
        trpi_format(name, sizeof name, "remove-%d", (int)step);
        trpi_ckpt_store *store = open_run(name);
        must(checkpoint(store, 1, 0, &err), &err);
        must(checkpoint(store, 1, 1, &err), &err);
        int status = in_child(name, step, body_remove, 1);
        assert_true(status == 0 || status == CRASHED);
        uint64_t newest = newest_number(store);
        assert_int_equal(all_whole(store), newest + 1);
        must(trpi_ckpt_store_next_number(store, &next, &err), &err);
        assert_int_equal(next, 2);
        gone += newest == 0;
        successor_goes_on(store);
        trpi_ckpt_store_close(store);
        if (status == 0) {
            break;
        }
        steps++;
    }
    print_message("%d steps, gone after %d of them\n", steps, gone);
    assert_true(steps >= 4 && gone >= 2);
}

static trp_code body_sweep(trpi_ckpt_store *store, uint64_t attempt, trp_error *err) {
    return trpi_ckpt_store_sweep(store, attempt, err);
}

static void a_sweep_that_ends_at_any_step_can_be_done_again(void **state) {
    int steps = 0;
    for (uint64_t step = 1;; step++) {
        char name[32], path[256];
        trp_error err;
        trpi_format(name, sizeof name, "sweep-%d", (int)step);
        trpi_ckpt_store *store = open_run(name);
        must(checkpoint(store, 1, 0, &err), &err);
        for (int i = 1; i <= 3; i++) {
            trpi_format(path, sizeof path, "%s/%s/.staging-1-%d/.rank-0/x", dir, name, i);
            must(trpi_dir_make(path, 0755, &err), &err);
        }
        int status = in_child(name, step, body_sweep, 2);
        assert_true(status == 0 || status == CRASHED);
        assert_int_equal(newest_number(store), 0);
        successor_goes_on(store);
        trpi_ckpt_store_close(store);
        if (status == 0) {
            break;
        }
        steps++;
    }
    assert_true(steps >= 4);
}

/* ---- Killed at any instant ---- */

static void a_process_killed_at_random_leaves_whole_checkpoints_only(void **state) {
    trpi_ckpt_store *store = open_run("killed");
    trp_error err;
    uint64_t attempt = 1, committed = 0;
    for (int round = 0; round < 40; round++, attempt++) {
        uint64_t next;
        int reported[2];
        must(trpi_ckpt_store_sweep(store, attempt, &err), &err);
        must(trpi_ckpt_store_next_number(store, &next, &err), &err);
        assert_int_equal(pipe(reported), 0);
        pid_t pid = test_child_fork();
        if (pid == 0) {
            for (uint64_t n = next;; n++) {
                if (checkpoint(store, attempt, n, NULL) ||
                    write(reported[1], &n, sizeof n) != (ssize_t)sizeof n ||
                    (n > 3 && trpi_ckpt_store_remove(store, n - 3, NULL))) {
                    _exit(1);
                }
            }
        }
        usleep((useconds_t)(2000 + round * 7919 % 15000));
        kill(pid, SIGKILL);
        int status = test_child_wait(pid, "the child that was killed", TEST_CHILD_MS);
        assert_true(WIFSIGNALED(status));
        close(reported[1]);
        uint64_t number;
        bool any = committed > 0;
        while (read(reported[0], &number, sizeof number) == (ssize_t)sizeof number) {
            committed = number + 1;
            any = true;
        }
        close(reported[0]);
        all_whole(store);
        /* What commit returned for is there, and at most one more whose return was not heard of. */
        must(trpi_ckpt_store_next_number(store, &next, &err), &err);
        assert_true(next == committed || next == committed + 1);
        committed = next;
        if (any) {
            assert_int_equal(newest_number(store) + 1, committed);
        }
    }
    print_message("%llu checkpoints in 40 lives\n", (unsigned long long)committed);
    trpi_ckpt_store_close(store);
}

/* ---- The disk is full ---- */

/* In a child: checkpoint 1 under a limit. 0 = done, 3 = TRP_EIO as it should be, else a mistake. */
static int checkpoint_under(const char *storage, rlim_t file_bytes) {
    pid_t pid = test_child_fork();
    if (pid == 0) {
        trp_error err = {0};
        trpi_ckpt_store *store = NULL;
        if (trpi_ckpt_store_open(storage, "full", TRPI_CKPT_STORE_MUST, &store, NULL, &err)) {
            _exit(4);
        }
        signal(SIGXFSZ, SIG_IGN);
        struct rlimit limit = {file_bytes, file_bytes};
        setrlimit(RLIMIT_FSIZE, &limit);
        trp_code code = checkpoint(store, 1, 1, &err);
        if (code && code != TRP_EIO) {
            fprintf(stderr, "child: %s %s\n", trp_code_name(code), err.message);
        }
        _exit(code == TRP_OK ? 0 : code == TRP_EIO && strchr(err.message, '/') ? 3 : 4);
    }
    return test_child_exit_code(pid, "the child under a limit");
}

static void T13_a_file_that_may_not_grow_leaves_the_previous_checkpoint(void **state) {
    trp_error err;
    static const rlim_t limits[] = {0, 1, 100, 4096, 19999, 20000};
    trpi_ckpt_store *store = open_run("full");
    must(checkpoint(store, 1, 0, &err), &err);
    for (size_t i = 0; i < TRPI_COUNTOF(limits); i++) {
        assert_int_equal(checkpoint_under(dir, limits[i]), 3);
        assert_int_equal(newest_number(store), 0);
        assert_int_equal(all_whole(store), 1);
    }
    assert_int_equal(checkpoint_under(dir, 1 << 20), 0);
    assert_int_equal(newest_number(store), 1);
    trpi_ckpt_store_close(store);
}

/* A file system of the given size; false when this process may not mount one. */
static bool mount_small(const char *at, size_t bytes) {
    char options[64];
    trpi_format(options, sizeof options, "size=%zu,nr_inodes=200", bytes);
    return mount("troupe-test", at, "tmpfs", 0, options) == 0;
}

static void T13_a_full_disk_leaves_the_previous_checkpoint(void **state) {
    char at[128], path[256];
    int full = 0, done = 0;
    trpi_format(at, sizeof at, "%s/disk", dir);
    assert_int_equal(trpi_dir_make(at, 0755, NULL), TRP_OK);
    /* One checkpoint takes some 15 pages; with room for 16 to 40 the second one ends everywhere. */
    for (size_t pages = 16; pages <= 40; pages++) {
        trp_error err;
        trpi_ckpt_store *store;
        if (!mount_small(at, pages * 4096)) {
            print_message("needs the right to mount a tmpfs\n");
            skip();
        }
        must(trpi_ckpt_store_open(at, "full", TRPI_CKPT_STORE_AUTO, &store, NULL, &err), &err);
        must(checkpoint(store, 1, 0, &err), &err);
        int status = checkpoint_under(at, RLIM_INFINITY);
        uint64_t newest = newest_number(store);
        size_t whole = all_whole(store);
        /* The metrics' file is taken back to its last whole line, too. */
        trp_code code = TRP_OK;
        for (int i = 0; i < 3000 && !code; i++) {
            code = trpi_ckpt_store_append_metrics(
                store, trp_bytes_of("{\"a line of\": \"some bytes\"}"), false, &err);
        }
        trpi_format(path, sizeof path, "%s/full/metrics.jsonl", at);
        trp_buf text = {0};
        trp_code read = trpi_file_read(path, 0, &text, &err);
        bool torn = text.size > 0 && text.data[text.size - 1] != '\n';
        trp_buf_release(&text);
        trpi_ckpt_store_close(store);
        umount(at);
        assert_int_equal(code, TRP_EIO);
        assert_true(read == TRP_OK || read == TRP_ENOTFOUND);
        assert_false(torn);
        assert_true(status == 0 || status == 3);
        assert_int_equal(newest, status == 0 ? 1 : 0);
        assert_int_equal(whole, newest + 1);
        full += status == 3;
        done += status == 0;
    }
    print_message("full at %d sizes, enough at %d\n", full, done);
    assert_true(full > 0 && done > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_commit_that_ends_at_any_step_leaves_the_old_or_the_new_one),
        cmocka_unit_test(a_removal_that_ends_at_any_step_leaves_it_whole_or_gone),
        cmocka_unit_test(a_sweep_that_ends_at_any_step_can_be_done_again),
        cmocka_unit_test(a_process_killed_at_random_leaves_whole_checkpoints_only),
        cmocka_unit_test(T13_a_file_that_may_not_grow_leaves_the_previous_checkpoint),
        cmocka_unit_test(T13_a_full_disk_leaves_the_previous_checkpoint),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
