/* The store: the life of a checkpoint in a run's directory, one step at a time. Kills are in
 * tests/fault/ckpt_crash_test.c. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "trainer/ckpt/store.h"

static char dir[64];

static int make_dir(void **state) {
    TRPI_SET(dir, "/tmp/troupe-ckpt-XXXXXX");
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

static trpi_ckpt_store *open_run(const char *name) {
    trp_error err;
    trpi_ckpt_store *store = NULL;
    must(trpi_ckpt_store_open(dir, name, TRPI_CKPT_STORE_AUTO, &store, NULL, &err), &err);
    return store;
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* One rank's shard: a file of its name and one in a directory. */
static void stage_and_seal(const trpi_ckpt_store *store, const trpi_manifest *of, int rank,
                           trpi_manifest *entries) {
    trp_error err;
    trp_buf staging = {0};
    char path[512];
    must(trpi_ckpt_store_stage(trpi_ckpt_store_path(store), of->attempt, of->number, rank, &staging,
                               &err),
         &err);
    trpi_format(path, sizeof path, "%s/shard-%d", (const char *)staging.data, rank);
    put(path, "shard");
    trpi_format(path, sizeof path, "%s/inner", (const char *)staging.data);
    must(trpi_dir_make(path, 0755, &err), &err);
    trpi_format(path, sizeof path, "%s/inner/state-%d", (const char *)staging.data, rank);
    put(path, rank ? "state" : "");
    must(trpi_ckpt_store_seal((const char *)staging.data, rank, entries, &err), &err);
    trp_buf_release(&staging);
}

static trp_code commit(trpi_ckpt_store *store, uint64_t attempt, uint64_t number, trp_error *err) {
    trpi_manifest manifest = {
        .number = number, .step = number * 10, .attempt = attempt, .world = 3};
    for (int rank = 0; rank < 3; rank++) {
        stage_and_seal(store, &manifest, rank, &manifest);
    }
    trp_code code = trpi_ckpt_store_commit(store, &manifest, NULL, err);
    trpi_manifest_release(&manifest);
    return code;
}

static size_t entries_in(const char *path) {
    char **names;
    size_t count;
    assert_int_equal(trpi_dir_list(path, &names, &count, NULL), TRP_OK);
    trpi_names_free(names, count);
    return count;
}

static void T07_a_committed_checkpoint_holds_exactly_the_shards_that_were_sealed(void **state) {
    trp_error err;
    trpi_ckpt_store *store = open_run("a");
    trpi_checkpoint *newest;
    trpi_manifest manifest = {.number = 0, .step = 7, .attempt = 1, .world = 4};
    trp_buf unused = {0};
    char *path = NULL, leftover[512];
    stage_and_seal(store, &manifest, 1, &manifest);
    stage_and_seal(store, &manifest, 3, &manifest);
    must(trpi_manifest_add_metric(&manifest, "loss", 1.5, &err), &err);
    /* A rank that staged and did not report brings nothing. */
    must(trpi_ckpt_store_stage(trpi_ckpt_store_path(store), 1, 0, 2, &unused, &err), &err);
    trpi_format(leftover, sizeof leftover, "%s/half-written", (const char *)unused.data);
    put(leftover, "x");
    must(trpi_ckpt_store_commit(store, &manifest, &path, &err), &err);
    assert_non_null(strstr(path, "/a/checkpoint_000000"));
    assert_int_equal(entries_in(path), 4); /* two shards, inner, manifest.json */
    must(trpi_ckpt_store_newest(store, TRPI_VERIFY_CHECKSUMS, NULL, NULL, &newest, &err), &err);
    assert_string_equal(newest->path, path);
    assert_int_equal(newest->manifest.file_count, 4);
    assert_int_equal(newest->manifest.step, 7);
    assert_true(newest->manifest.metrics[0].value == 1.5);
    assert_int_equal(newest->manifest.files[0].rank, 1);
    assert_int_equal(entries_in(trpi_ckpt_store_path(store)), 1); /* no staging left */
    trpi_checkpoints_free(newest, 1);
    trpi_manifest_release(&manifest);
    trp_buf_release(&unused);
    free(path);
    trpi_ckpt_store_close(store);
}

static void nothing_is_seen_before_the_commit(void **state) {
    trp_error err;
    trpi_ckpt_store *store = open_run("b");
    trpi_checkpoint *list;
    size_t count;
    trpi_manifest manifest = {.attempt = 1, .world = 1};
    stage_and_seal(store, &manifest, 0, &manifest);
    must(trpi_ckpt_store_list(store, &list, &count, &err), &err);
    assert_int_equal(count, 0);
    trpi_checkpoints_free(list, count);
    assert_int_equal(trpi_ckpt_store_newest(store, TRPI_VERIFY_SIZES, NULL, NULL, &list, &err),
                     TRP_ENOTFOUND);
    must(trpi_ckpt_store_discard(store, 1, 0, &err), &err);
    assert_int_equal(entries_in(trpi_ckpt_store_path(store)), 0);
    trpi_manifest_release(&manifest);
    trpi_ckpt_store_close(store);
}

static void numbers_are_never_used_twice(void **state) {
    trp_error err;
    uint64_t next;
    trpi_ckpt_store *store = open_run("c");
    must(trpi_ckpt_store_next_number(store, &next, &err), &err);
    assert_int_equal(next, 0);
    must(commit(store, 1, 0, &err), &err);
    must(commit(store, 1, 1, &err), &err);
    assert_int_equal(commit(store, 1, 1, &err), TRP_EEXISTS);
    must(trpi_ckpt_store_remove(store, 1, &err), &err);
    assert_int_equal(trpi_ckpt_store_remove(store, 1, &err), TRP_ENOTFOUND);
    must(trpi_ckpt_store_next_number(store, &next, &err), &err);
    assert_int_equal(next, 2);
    assert_int_equal(commit(store, 1, 1, &err), TRP_EEXISTS);
    must(trpi_ckpt_store_remove(store, 0, &err), &err);
    must(trpi_ckpt_store_next_number(store, &next, &err), &err);
    assert_int_equal(next, 2);
    must(commit(store, 1, 7, &err), &err); /* gaps are fine */
    must(trpi_ckpt_store_next_number(store, &next, &err), &err);
    assert_int_equal(next, 8);
    trpi_ckpt_store_close(store);
}

static void checkpoints_are_listed_by_number_also_above_six_digits(void **state) {
    trp_error err;
    trpi_ckpt_store *store = open_run("d");
    trpi_checkpoint *list;
    size_t count;
    static const uint64_t numbers[] = {2, 999999, 1000000, 10000000};
    for (size_t i = 0; i < 4; i++) {
        must(commit(store, 1, numbers[i], &err), &err);
    }
    must(trpi_ckpt_store_list(store, &list, &count, &err), &err);
    assert_int_equal(count, 4);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(list[i].number, numbers[i]);
        assert_int_equal(list[i].damage.code, TRP_OK);
    }
    trpi_checkpoints_free(list, count);
    trpi_ckpt_store_close(store);
}

/* ---- Attempts ---- */

static void T15_an_older_attempt_cannot_commit_and_leaves_nothing(void **state) {
    trp_error err;
    trp_buf staging = {0};
    trpi_ckpt_store *store = open_run("e");
    trpi_manifest old = {.number = 0, .attempt = 1, .world = 1};
    uint64_t attempt = 9;
    must(trpi_ckpt_store_attempt(store, &attempt, &err), &err);
    assert_int_equal(attempt, 0);
    must(trpi_ckpt_store_sweep(store, 1, &err), &err);
    stage_and_seal(store, &old, 0, &old);
    must(trpi_ckpt_store_sweep(store, 2, &err), &err);
    must(trpi_ckpt_store_attempt(store, &attempt, &err), &err);
    assert_int_equal(attempt, 2);
    assert_int_equal(trpi_ckpt_store_commit(store, &old, NULL, &err), TRP_ECANCELED);
    assert_non_null(strstr(err.message, "attempt 2 owns the run, this is attempt 1"));
    assert_int_equal(trpi_ckpt_store_stage(trpi_ckpt_store_path(store), 1, 0, 0, &staging, &err),
                     TRP_ECANCELED);
    assert_int_equal(trpi_ckpt_store_sweep(store, 1, &err), TRP_ECANCELED);
    must(commit(store, 2, 0, &err), &err);
    assert_int_equal(entries_in(trpi_ckpt_store_path(store)), 2); /* checkpoint_000000, .attempt */
    trpi_manifest_release(&old);
    trp_buf_release(&staging);
    trpi_ckpt_store_close(store);
}

static void T15_a_second_try_holds_no_file_of_the_first(void **state) {
    trp_error err;
    trpi_ckpt_store *store = open_run("f");
    trp_buf staging = {0};
    trpi_checkpoint *newest;
    char stale[512];
    must(trpi_ckpt_store_stage(trpi_ckpt_store_path(store), 1, 0, 0, &staging, &err), &err);
    trpi_format(stale, sizeof stale, "%s/stale", (const char *)staging.data);
    put(stale, "of the first try");
    must(commit(store, 1, 0, &err), &err); /* stages again in the same attempt */
    must(trpi_ckpt_store_newest(store, TRPI_VERIFY_CHECKSUMS, NULL, NULL, &newest, &err), &err);
    assert_int_equal(newest->manifest.file_count, 6);
    assert_false(trpi_file_exists(stale));
    trpi_checkpoints_free(newest, 1);
    trp_buf_release(&staging);
    trpi_ckpt_store_close(store);
}

static void sweep_spares_the_running_attempt_and_everything_else(void **state) {
    trp_error err;
    trpi_ckpt_store *store = open_run("g");
    trpi_manifest now = {.number = 1, .attempt = 5, .world = 1};
    char path[512];
    must(commit(store, 4, 0, &err), &err);
    must(trpi_ckpt_store_write_record(store, trp_bytes_of("{}"), &err), &err);
    stage_and_seal(store, &now, 0, &now);
    static const char *const names[] = {".staging-4-1", ".staging-0-9", ".deleted-3",
                                        ".mine",        ".staging-x-1", "checkpoint_abc"};
    for (size_t i = 0; i < TRPI_COUNTOF(names); i++) {
        trpi_format(path, sizeof path, "%s/%s/x", trpi_ckpt_store_path(store), names[i]);
        must(trpi_dir_make(path, 0755, &err), &err);
    }
    must(trpi_ckpt_store_sweep(store, 5, &err), &err);
    /* checkpoint_000000, run.json, .attempt, .staging-5-1, .mine, .staging-x-1, checkpoint_abc */
    assert_int_equal(entries_in(trpi_ckpt_store_path(store)), 7);
    must(trpi_ckpt_store_commit(store, &now, NULL, &err), &err);
    trpi_manifest_release(&now);
    trpi_ckpt_store_close(store);
}

/* ---- Damage ---- */

typedef struct heard {
    int count;
    uint64_t last;
    char message[768];
} heard;

static void hear(void *arg, uint64_t number, const char *path, const trp_error *damage) {
    heard *h = arg;
    h->count++;
    h->last = number;
    assert_int_equal(damage->code, TRP_ECORRUPT);
    TRPI_SET(h->message, damage->message);
}

static void T21_a_damaged_checkpoint_is_passed_over_aloud_or_not_at_all(void **state) {
    trp_error err;
    heard h = {0};
    char path[512];
    trpi_checkpoint *newest, *list;
    size_t count;
    trpi_ckpt_store *store = open_run("h");
    for (uint64_t i = 0; i < 4; i++) {
        must(commit(store, 1, i, &err), &err);
    }
    trpi_format(path, sizeof path, "%s/checkpoint_000003/shard-1", trpi_ckpt_store_path(store));
    put(path, "Shard"); /* one bit */
    trpi_format(path, sizeof path, "%s/checkpoint_000002/manifest.json",
                trpi_ckpt_store_path(store));
    unlink(path);

    assert_int_equal(
        trpi_ckpt_store_newest(store, TRPI_VERIFY_CHECKSUMS, NULL, NULL, &newest, &err),
        TRP_ECORRUPT);
    assert_non_null(strstr(err.message, "checkpoint_000003/shard-1: checksum is"));
    must(trpi_ckpt_store_newest(store, TRPI_VERIFY_CHECKSUMS, hear, &h, &newest, &err), &err);
    assert_int_equal(newest->number, 1);
    assert_int_equal(h.count, 2);
    assert_int_equal(h.last, 2);
    assert_non_null(strstr(h.message, "checkpoint_000002: has no manifest.json"));
    trpi_checkpoints_free(newest, 1);

    must(trpi_ckpt_store_list(store, &list, &count, &err), &err);
    assert_int_equal(count, 4);
    assert_int_equal(list[2].damage.code, TRP_ECORRUPT);
    assert_int_equal(list[3].damage.code, TRP_OK); /* its manifest reads */
    trpi_checkpoints_free(list, count);

    /* A checkpoint under another's number is one, too. */
    must(trpi_ckpt_store_remove(store, 3, &err), &err);
    char other[512];
    trpi_format(path, sizeof path, "%s/checkpoint_000001", trpi_ckpt_store_path(store));
    trpi_format(other, sizeof other, "%s/checkpoint_000009", trpi_ckpt_store_path(store));
    assert_int_equal(rename(path, other), 0);
    h.count = 0;
    must(trpi_ckpt_store_newest(store, TRPI_VERIFY_SIZES, hear, &h, &newest, &err), &err);
    assert_int_equal(newest->number, 0);
    assert_int_equal(h.count, 2);
    trpi_checkpoints_free(newest, 1);

    trpi_format(path, sizeof path, "%s/checkpoint_000000/shard-0", trpi_ckpt_store_path(store));
    unlink(path);
    assert_int_equal(trpi_ckpt_store_newest(store, TRPI_VERIFY_SIZES, hear, &h, &newest, &err),
                     TRP_ECORRUPT);
    assert_non_null(strstr(err.message, "all 3 checkpoints are damaged"));
    trpi_ckpt_store_close(store);
}

static void a_file_that_changed_after_sealing_is_not_committed(void **state) {
    trp_error err;
    trpi_ckpt_store *store = open_run("i");
    trpi_manifest manifest = {.number = 0, .attempt = 1, .world = 1};
    trpi_checkpoint *list;
    size_t count;
    char path[512];
    stage_and_seal(store, &manifest, 0, &manifest);
    trpi_format(path, sizeof path, "%s/.staging-1-0/.rank-0/shard-0", trpi_ckpt_store_path(store));
    put(path, "longer than it was");
    assert_int_equal(trpi_ckpt_store_commit(store, &manifest, NULL, &err), TRP_ECORRUPT);
    assert_non_null(strstr(err.message, "had 5 when it was sealed"));
    must(trpi_ckpt_store_list(store, &list, &count, &err), &err);
    assert_int_equal(count, 0);
    trpi_checkpoints_free(list, count);
    /* The commit may be tried again; what was moved already is found. */
    put(path, "shard");
    must(trpi_ckpt_store_commit(store, &manifest, NULL, &err), &err);
    must(trpi_ckpt_store_newest(store, TRPI_VERIFY_CHECKSUMS, NULL, NULL, &list, &err), &err);
    trpi_checkpoints_free(list, 1);
    trpi_manifest_release(&manifest);
    trpi_ckpt_store_close(store);
}

static void a_link_or_a_pipe_is_no_part_of_a_checkpoint(void **state) {
    trp_error err;
    trpi_ckpt_store *store = open_run("j");
    trp_buf staging = {0};
    trpi_manifest entries = {0};
    char path[512];
    must(trpi_ckpt_store_stage(trpi_ckpt_store_path(store), 1, 0, 0, &staging, &err), &err);
    trpi_format(path, sizeof path, "%s/link", (const char *)staging.data);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    assert_int_equal(trpi_ckpt_store_seal((const char *)staging.data, 0, &entries, &err),
                     TRP_EINVALID);
    assert_non_null(strstr(err.message, "/link: a checkpoint holds regular files only"));
    trpi_manifest_release(&entries);
    trp_buf_release(&staging);
    trpi_ckpt_store_close(store);
}

/* ---- Opening, records ---- */

static void T33_modes_and_paths_are_told_apart(void **state) {
    trp_error err;
    trpi_ckpt_store *store;
    bool existed = true;
    char path[128];
    assert_int_equal(trpi_ckpt_store_open(dir, "k", TRPI_CKPT_STORE_MUST, &store, NULL, &err),
                     TRP_ENOTFOUND);
    must(trpi_ckpt_store_open(dir, "k", TRPI_CKPT_STORE_NEVER, &store, &existed, &err), &err);
    assert_false(existed);
    must(trpi_ckpt_store_write_record(store, trp_bytes_of("{}"), &err), &err);
    trpi_ckpt_store_close(store);
    assert_int_equal(trpi_ckpt_store_open(dir, "k", TRPI_CKPT_STORE_NEVER, &store, NULL, &err),
                     TRP_EEXISTS);
    must(trpi_ckpt_store_open(dir, "k", TRPI_CKPT_STORE_AUTO, &store, &existed, &err), &err);
    assert_true(existed);
    trpi_ckpt_store_close(store);
    trpi_format(path, sizeof path, "%s/k///", dir);
    must(trpi_ckpt_store_open_path(path, &store, &err), &err);
    assert_string_equal(trpi_ckpt_store_path(store) + strlen(dir), "/k");
    trpi_ckpt_store_close(store);
    assert_int_equal(trpi_ckpt_store_open_path(dir, &store, &err), TRP_ENOTFOUND);
    static const char *const names[] = {"", ".", "..", ".k", "a/b", "/"};
    for (size_t i = 0; i < TRPI_COUNTOF(names); i++) {
        assert_int_equal(
            trpi_ckpt_store_open(dir, names[i], TRPI_CKPT_STORE_AUTO, &store, NULL, &err),
            TRP_EINVALID);
    }
    assert_int_equal(
        trpi_ckpt_store_open("s3://bucket", "k", TRPI_CKPT_STORE_AUTO, &store, NULL, &err),
        TRP_EUNSUPPORTED);
    trpi_ckpt_store_close(NULL);
}

static void a_run_without_its_record_is_still_a_run(void **state) {
    trp_error err;
    trp_buf text = {0};
    trpi_ckpt_store *store = open_run("l");
    must(commit(store, 1, 0, &err), &err);
    assert_int_equal(trpi_ckpt_store_read_record(store, &text, &err), TRP_ENOTFOUND);
    trpi_ckpt_store_close(store);
    assert_int_equal(trpi_ckpt_store_open(dir, "l", TRPI_CKPT_STORE_NEVER, &store, NULL, &err),
                     TRP_EEXISTS);
}

static void expect_metrics(const trpi_ckpt_store *store, const char *expected) {
    char path[512];
    trp_buf text = {0};
    trpi_format(path, sizeof path, "%s/metrics.jsonl", trpi_ckpt_store_path(store));
    assert_int_equal(trpi_file_read(path, 0, &text, NULL), TRP_OK);
    assert_int_equal(text.size, strlen(expected));
    assert_memory_equal(text.data, expected, text.size);
    trp_buf_release(&text);
}

static void a_torn_line_of_metrics_is_cut_off(void **state) {
    trp_error err;
    char path[512];
    trpi_ckpt_store *store = open_run("m");
    must(trpi_ckpt_store_append_metrics(store, trp_bytes_of("{\"a\":1}"), false, &err), &err);
    must(trpi_ckpt_store_append_metrics(store, trp_bytes_of("{\"a\":2}"), true, &err), &err);
    expect_metrics(store, "{\"a\":1}\n{\"a\":2}\n");
    trpi_format(path, sizeof path, "%s/metrics.jsonl", trpi_ckpt_store_path(store));
    assert_int_equal(truncate(path, 12), 0);
    must(trpi_ckpt_store_append_metrics(store, trp_bytes_of("{}"), false, &err), &err);
    expect_metrics(store, "{\"a\":1}\n{}\n");
    assert_int_equal(trpi_ckpt_store_append_metrics(store, trp_bytes_of("a\nb"), false, &err),
                     TRP_EINVALID);
    char *torn = calloc(1, 10001);
    memset(torn, 'x', 10000); /* longer than one look back */
    put(path, torn);
    must(trpi_ckpt_store_append_metrics(store, trp_bytes_of("{}"), false, &err), &err);
    expect_metrics(store, "{}\n");
    free(torn);
    trpi_ckpt_store_close(store);
}

typedef struct race {
    trpi_ckpt_store *store;
    trpi_manifest manifest;
    pthread_barrier_t both;
    trp_code code;
} race;

static void *commit_late(void *arg) {
    race *r = arg;
    trp_error err;
    pthread_barrier_wait(&r->both);
    r->code = trpi_ckpt_store_commit(r->store, &r->manifest, NULL, &err);
    return NULL;
}

/* An older attempt that has just passed the fence, and its successor's sweep. */
static void T15_what_an_older_attempt_still_commits_is_whole(void **state) {
    trp_error err;
    size_t count = 0, committed = 0;
    trpi_checkpoint *all = NULL;
    race r = {.store = open_run("race")};
    pthread_barrier_init(&r.both, NULL, 2);
    for (uint64_t round = 0; round < 100; round++) {
        pthread_t thread;
        uint64_t next = 0;
        must(trpi_ckpt_store_next_number(r.store, &next, &err), &err);
        r.manifest =
            (trpi_manifest){.number = next, .step = round, .attempt = 2 * round + 1, .world = 1};
        stage_and_seal(r.store, &r.manifest, 0, &r.manifest);
        assert_int_equal(pthread_create(&thread, NULL, commit_late, &r), 0);
        pthread_barrier_wait(&r.both);
        usleep((useconds_t)(round % 50) * 10);
        must(trpi_ckpt_store_sweep(r.store, 2 * round + 2, &err), &err);
        pthread_join(thread, NULL);
        committed += r.code == TRP_OK;
        trpi_manifest_release(&r.manifest);
    }
    must(trpi_ckpt_store_list(r.store, &all, &count, &err), &err);
    assert_int_equal(count, committed);
    for (size_t i = 0; i < count; i++) {
        must(all[i].damage.code, &all[i].damage);
        must(trpi_manifest_verify(&all[i].manifest, all[i].path, TRPI_VERIFY_CHECKSUMS, &err),
             &err);
    }
    trpi_checkpoints_free(all, count);
    pthread_barrier_destroy(&r.both);
    trpi_ckpt_store_close(r.store);
}

static void without_descriptors_no_checkpoint_is_called_damaged(void **state) {
    trp_error err;
    trpi_manifest manifest = {0};
    struct rlimit before;
    char path[512];
    trpi_ckpt_store *store = open_run("busy");
    must(commit(store, 1, 0, &err), &err);
    trpi_format(path, sizeof path, "%s/checkpoint_000000", trpi_ckpt_store_path(store));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    struct rlimit none = {0, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    trp_code code = trpi_manifest_read(path, &manifest, &err);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(code, TRP_EBUSY);
    trpi_ckpt_store_close(store);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T07_a_committed_checkpoint_holds_exactly_the_shards_that_were_sealed),
        cmocka_unit_test(nothing_is_seen_before_the_commit),
        cmocka_unit_test(numbers_are_never_used_twice),
        cmocka_unit_test(checkpoints_are_listed_by_number_also_above_six_digits),
        cmocka_unit_test(T15_an_older_attempt_cannot_commit_and_leaves_nothing),
        cmocka_unit_test(T15_a_second_try_holds_no_file_of_the_first),
        cmocka_unit_test(sweep_spares_the_running_attempt_and_everything_else),
        cmocka_unit_test(T21_a_damaged_checkpoint_is_passed_over_aloud_or_not_at_all),
        cmocka_unit_test(a_file_that_changed_after_sealing_is_not_committed),
        cmocka_unit_test(a_link_or_a_pipe_is_no_part_of_a_checkpoint),
        cmocka_unit_test(T33_modes_and_paths_are_told_apart),
        cmocka_unit_test(a_run_without_its_record_is_still_a_run),
        cmocka_unit_test(a_torn_line_of_metrics_is_cut_off),
        cmocka_unit_test(T15_what_an_older_attempt_still_commits_is_whole),
        cmocka_unit_test(without_descriptors_no_checkpoint_is_called_damaged),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
