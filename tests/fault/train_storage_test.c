/* train_storage_test.c: the run's directory is full, read-only, gone, damaged, or has been left
 * behind by another attempt. What was reported is never lost by it, what is damaged is never loaded
 * nor passed over in silence, and the run ends with one error that names the place. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "tests/lib/runs.h"

enum { FILE_BYTES = 192 << 10 };

static test_cluster cluster;
static trp_runtime *rt;

/* ---- Train functions ---- */

/* A file that takes room: FILE_BYTES of the step's number. */
static trp_code write_large(trp_session *session, uint64_t step, trp_error *err) {
    const char *dir;
    trp_code code = trp_session_staging(session, &dir, err);
    if (code != TRP_OK) {
        return code;
    }
    char name[64], *bytes = malloc(FILE_BYTES);
    memset(bytes, (int)step, FILE_BYTES);
    snprintf(name, sizeof name, "shard-%d", trp_session_rank(session));
    code = trpi_file_write_atomic(test_path(dir, name), (trp_bytes){bytes, FILE_BYTES}, err);
    free(bytes);
    return code;
}

/* Four steps, each with a checkpoint that is kept. */
static trp_code fills(trp_session *session, trp_bytes config, trp_error *err) {
    trp_code code = TRP_OK;
    for (uint64_t step = 1; code == TRP_OK && step <= 8; step++) {
        code = write_large(session, step, err);
        if (code == TRP_OK) {
            trp_report report = {.step = step, .has_checkpoint = true};
            code = trp_session_report(session, &report, err);
        }
    }
    return code;
}

static void flip_byte(const char *path) {
    char byte = 0;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || pread(fd, &byte, 1, 0) != 1) {
        fail_msg("%s: %s", path, strerror(errno));
    }
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 0), 1);
    close(fd);
}

/* Four checkpoints. In the first attempt rank 0 damages the last of them and fails; in the second
 * every rank must have been given the one before. */
static trp_code flips(trp_session *session, trp_bytes config, trp_error *err) {
    uint64_t step, attempt = trp_session_attempt(session);
    trp_code code =
        test_shard_read(trp_session_checkpoint(session), trp_session_rank(session), &step, err);
    if (code == TRP_OK && step != (attempt == 1 ? 0 : 3)) {
        return test_wrong(err, "began at another step");
    }
    while (code == TRP_OK && step < 4) {
        code = test_shard_write(session, ++step, err);
        if (code == TRP_OK) {
            trp_report report = {.step = step, .has_checkpoint = true};
            code = trp_session_report(session, &report, err);
        }
    }
    if (code == TRP_OK && attempt == 1 && trp_session_rank(session) == 0) {
        flip_byte(test_path(trp_session_checkpoint(session), "shard-1"));
        return test_wrong(err, "planned");
    }
    return code == TRP_OK ? trp_comm_barrier(trp_session_comm(session), err) : code;
}

/* In the middle of the run its directory goes. */
static trp_code removes(trp_session *session, trp_bytes config, trp_error *err) {
    char path[4096];
    trp_code code = test_shard_write(session, 1, err);
    trp_report report = {.step = 1, .has_checkpoint = true};
    if (code == TRP_OK) {
        code = trp_session_report(session, &report, err);
    }
    if (code == TRP_OK && trp_session_rank(session) == 0) {
        snprintf(path, sizeof path, "%s", trp_session_checkpoint(session));
        *strrchr(path, '/') = '\0';
        code = trpi_dir_remove(path, err);
    }
    if (code == TRP_OK) {
        code = trp_comm_barrier(trp_session_comm(session), err);
    }
    if (code == TRP_OK) {
        code = test_shard_write(session, 2, err);
    }
    report.step = 2;
    return code == TRP_OK ? trp_session_report(session, &report, err) : code;
}

static const trp_train_function functions[] = {
    {"counts", test_counts}, {"fills", fills}, {"flips", flips}, {"removes", removes}, {NULL, NULL},
};
static const trp_actor_type *const types[] = {TRP_TRAIN_TYPES, NULL};

/* ---- Full and read-only ---- */

static void T13_a_full_disk_leaves_the_checkpoints_before_and_one_clear_error(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    char where[256];
    snprintf(where, sizeof where, "%s/small", test_run_storage());
    assert_int_equal(mkdir(where, 0755), 0);
    if (mount("troupe-test", where, "tmpfs", 0, "size=2m") != 0) {
        print_message("no tmpfs can be mounted: %s\n", strerror(errno));
        skip();
    }
    trp_train_options options = test_run_options("fills", "full", 3, &seen);
    options.run.storage_path = where;
    trp_error err = {0};
    trp_code code = trp_fit(rt, &options, &result, &err);
    print_message("fit: %s: %s\n", trp_code_name(code), err.message);
    assert_int_equal(code, TRP_EIO);
    assert_non_null(strstr(err.message, "No space left on device"));
    assert_int_equal(result.state, TRP_RUN_ERRORED);
    assert_int_equal(test_run_checkpoints(result.path),
                     3); /* 3 * 3 * 192 KiB fit, 12 times do not */
    assert_int_equal(test_run_step(result.path), 3);
    assert_non_null(strstr(result.checkpoint, "checkpoint_000002"));
    trp_result_release(&result);
    assert_int_equal(umount(where), 0);
    test_expect_all_free(rt, 5000);
}

static void a_read_only_storage_is_named(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_error err = {0};
    char where[256];
    snprintf(where, sizeof where, "%s/fixed", test_run_storage());
    assert_int_equal(mkdir(where, 0755), 0);
    if (mount("troupe-test", where, "tmpfs", MS_RDONLY, NULL) != 0) {
        skip();
    }
    trp_train_options options = test_run_options("fills", "fixed", 1, &seen);
    options.run.storage_path = where;
    assert_int_equal(trp_fit(rt, &options, &result, &err), TRP_EIO);
    assert_non_null(strstr(err.message, "Read-only file system"));
    assert_non_null(strstr(err.message, where));
    trp_result_release(&result);
    assert_int_equal(umount(where), 0);
}

/* ---- Gone and damaged ---- */

static void a_directory_that_is_removed_ends_the_run_and_is_named(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    trp_train_options options = test_run_options("removes", "removed", 2, &seen);
    options.run.failure.max_failures = -1;
    trp_error err = {0};
    trp_code code = trp_fit(rt, &options, &result, &err);
    print_message("fit: %s: %s\n", trp_code_name(code), err.message);
    assert_int_not_equal(code, TRP_OK);
    assert_non_null(strstr(err.message, "/removed"));
    assert_int_equal(result.state, TRP_RUN_ERRORED);
    assert_null(result.checkpoint);
    trp_result_release(&result);
    test_expect_all_free(rt, 5000);
}

static void remember_damage(test_run_seen *seen, const trp_train_event *event) {
    if (strstr(event->text, "checkpoint_000003 is damaged and passed over") != NULL &&
        strstr(event->text, "shard-1") != NULL) {
        seen->acted++;
    }
}

static void T21_a_byte_that_flips_between_attempts_is_found_and_named(void **state) {
    test_run_seen seen = {.on_state = remember_damage};
    trp_result result;
    trp_train_options options = test_run_options("flips", "flipped", 2, &seen);
    options.run.failure.max_failures = 1;
    options.run.checkpoint.keep = 2; /* a damaged one does not count */
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(seen.acted, 1);
    assert_int_equal(result.restarts, 1);
    assert_non_null(strstr(result.checkpoint, "checkpoint_000004"));
    assert_int_equal(test_run_checkpoints(result.path), 3);
    assert_true(trpi_file_exists(test_path(result.path, "checkpoint_000002")));
    assert_true(trpi_file_exists(test_path(result.path, "checkpoint_000003")));
    trp_result_release(&result);
}

static void count_to_eight(const char *name) {
    test_run_seen seen = {0};
    trp_result result;
    test_count count = {.last = 8, .every = 2};
    trp_train_options options = test_run_options("counts", name, 2, &seen);
    options.config = (trp_bytes){&count, sizeof count};
    TEST_OK(trp_fit(rt, &options, &result, err));
    trp_result_release(&result);
}

static void T20_a_damaged_record_is_refused_and_the_checkpoints_are_not_lost_by_it(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    char record[4096];
    count_to_eight("record");
    snprintf(record, sizeof record, "%s/record/run.json", test_run_storage());
    TEST_OK(trpi_file_write_atomic(record, trp_bytes_of("{\"version\": 1, \"att"), err));
    test_count count = {.last = 12, .every = 2};
    trp_train_options options = test_run_options("counts", "record", 2, &seen);
    options.config = (trp_bytes){&count, sizeof count};
    test_run_fails(rt, &options, TRP_ECORRUPT, "run.json", &result);
    assert_int_equal(test_run_checkpoints(result.path), 4);
    trp_result_release(&result);
    assert_int_equal(unlink(record), 0);
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(result.steps, 12);
    assert_int_equal(seen.reports, 4);
    trp_result_release(&result);
}

static void every_checkpoint_damaged_is_an_error_and_no_new_beginning(void **state) {
    test_run_seen seen = {0};
    trp_result result;
    char path[4096];
    count_to_eight("all");
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/all/checkpoint_%06d/shard-0", test_run_storage(), i);
        flip_byte(path);
    }
    test_count count = {.last = 12, .every = 2};
    trp_train_options options = test_run_options("counts", "all", 2, &seen);
    options.config = (trp_bytes){&count, sizeof count};
    test_run_fails(rt, &options, TRP_ECORRUPT, "/all: all 4 checkpoints are damaged", &result);
    assert_int_equal(seen.reports, 0);
    assert_int_equal(test_run_checkpoints(result.path), 4);
    trp_result_release(&result);
}

static void T15_what_an_older_attempt_left_is_swept_and_its_numbers_are_not_used_again(void **s) {
    test_run_seen seen = {0};
    trp_result result;
    char path[4096];
    count_to_eight("left");
    snprintf(path, sizeof path, "%s/left/.staging-1-4/.rank-0", test_run_storage());
    TEST_OK(trpi_dir_make(path, 0755, err));
    TEST_OK(trpi_file_write_atomic(test_path(path, "stale"), trp_bytes_of("stale"), err));
    snprintf(path, sizeof path, "%s/left/.attempt", test_run_storage());
    TEST_OK(trpi_file_write_atomic(path, trp_bytes_of("41"), err)); /* run.json says less */
    test_count count = {.last = 10, .every = 2};
    trp_train_options options = test_run_options("counts", "left", 2, &seen);
    options.config = (trp_bytes){&count, sizeof count};
    TEST_OK(trp_fit(rt, &options, &result, err));
    assert_int_equal(result.steps, 10);
    assert_false(trpi_file_exists(test_path(result.path, ".staging-1-4")));
    assert_false(trpi_file_exists(test_path(result.checkpoint, "stale")));
    trp_buf text = {0};
    TEST_OK(trpi_file_read(path, 0, &text, err));
    assert_string_equal((const char *)text.data, "42");
    trp_buf_release(&text);
    trp_result_release(&result);
}

static int start(void **state) {
    return test_runs_begin(&cluster, 1, types, &rt);
}

static int stop(void **state) {
    return test_runs_end(&cluster, &rt);
}

int main(void) {
    trp_train_register(functions);
    test_serve_if_worker(types);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T13_a_full_disk_leaves_the_checkpoints_before_and_one_clear_error),
        cmocka_unit_test(a_read_only_storage_is_named),
        cmocka_unit_test(a_directory_that_is_removed_ends_the_run_and_is_named),
        cmocka_unit_test(T21_a_byte_that_flips_between_attempts_is_found_and_named),
        cmocka_unit_test(T20_a_damaged_record_is_refused_and_the_checkpoints_are_not_lost_by_it),
        cmocka_unit_test(every_checkpoint_damaged_is_an_error_and_no_new_beginning),
        cmocka_unit_test(
            T15_what_an_older_attempt_left_is_swept_and_its_numbers_are_not_used_again),
    };
    return cmocka_run_group_tests_name("train_storage", tests, start, stop);
}
