/* record_test.c: a run's directory as its trainer sees it: who owns it, and which checkpoints
 * count. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/sys/file.h"
#include "trainer/run/record.h"

static char storage[64];
static trpi_run_plan plan = {.storage = storage, .name = "run", .score_by = "", .function = "f"};

static void must(trp_code code, const trp_error *err) {
    if (code != TRP_OK) {
        fail_msg("%s", err->message);
    }
}

static int make_storage(void **state) {
    snprintf(storage, sizeof storage, "/tmp/trp-record-XXXXXX");
    return mkdtemp(storage) != NULL ? 0 : -1;
}

static int remove_storage(void **state) {
    return trpi_dir_remove(storage, NULL) == TRP_OK ? 0 : -1;
}

static trpi_record opened(void) {
    trpi_record record;
    trp_error err = {0};
    must(trpi_record_open(&record, &plan, &err), &err);
    return record;
}

static int notices;

static void count_notice(void *arg, const char *text) {
    notices++;
}

/* The step of the checkpoint to go on from; 0 = none. */
static uint64_t begin(trpi_record *record, uint64_t attempt) {
    const trpi_record_entry *newest = NULL;
    trp_error err = {0};
    notices = 0;
    must(trpi_record_begin(record, attempt, count_notice, NULL, &newest, &err), &err);
    return newest != NULL ? newest->manifest.step : 0;
}

static void commit(trpi_record *record, uint64_t step) {
    trp_buf dir = {0}, path = {0};
    trp_error err = {0};
    uint64_t number;
    trpi_manifest manifest = {0};
    must(trpi_ckpt_store_next_number(record->store, &number, &err), &err);
    must(trpi_ckpt_store_stage(trpi_ckpt_store_path(record->store), record->attempt, number, 0,
                               &dir, &err),
         &err);
    must(trp_buf_printf(&path, "%s/shard", (const char *)dir.data), &err);
    must(trpi_file_write_atomic((const char *)path.data, trp_bytes_of("weights"), &err), &err);
    must(trpi_ckpt_store_seal((const char *)dir.data, 0, &manifest, &err), &err);
    manifest.number = number;
    manifest.step = step;
    manifest.attempt = record->attempt;
    manifest.world = 1;
    must(trpi_ckpt_store_commit(record->store, &manifest, NULL, &err), &err);
    must(trpi_record_add(record, &manifest, &err), &err);
    must(trpi_record_write(record, TRP_RUN_RUNNING, 0, step, &err), &err);
    trp_buf_release(&dir);
    trp_buf_release(&path);
}

static void damage(const trpi_record *record, uint64_t number) {
    trp_buf path = {0};
    trp_error err = {0};
    must(trpi_record_path(record, number, &path), &err);
    must(trp_buf_printf(&path, "/shard"), &err);
    must(trpi_file_write_atomic((const char *)path.data, trp_bytes_of("weighty"), &err), &err);
    trp_buf_release(&path);
}

static void attempts_go_on_above_whatever_has_been_used(void **state) {
    trp_error err = {0};
    trpi_record record = opened();
    assert_int_equal(record.attempt, 0);
    assert_int_equal(begin(&record, 1), 0);
    must(trpi_record_write(&record, TRP_RUN_RUNNING, 0, 0, &err), &err);
    assert_int_equal(begin(&record, 5), 0); /* and no run.json of it */
    trpi_record_release(&record);
    record = opened();
    assert_int_equal(record.attempt, 5);
    trpi_record_release(&record);
}

static void who_is_superseded_may_not_write_nor_begin(void **state) {
    trp_error err = {0};
    const trpi_record_entry *newest;
    trpi_record older = opened(), younger = opened();
    begin(&older, 1);
    must(trpi_record_check_owner(&older, &err), &err);
    begin(&younger, 2);
    assert_int_equal(trpi_record_check_owner(&older, &err), TRP_ECANCELED);
    assert_non_null(strstr(err.message, "attempt 2"));
    assert_int_equal(trpi_record_write(&older, TRP_RUN_ERRORED, 0, 0, &err), TRP_ECANCELED);
    /* Also under the number that the other one has. */
    assert_int_equal(trpi_record_begin(&older, 2, count_notice, NULL, &newest, &err),
                     TRP_ECANCELED);
    must(trpi_record_write(&younger, TRP_RUN_RUNNING, 0, 0, &err), &err);
    trpi_record_release(&older);
    trpi_record_release(&younger);
}

static void a_damaged_checkpoint_is_neither_the_latest_nor_among_the_kept(void **state) {
    trp_error err = {0};
    trpi_record record = opened();
    begin(&record, 1);
    plan.keep = 1;
    commit(&record, 10);
    commit(&record, 20);
    damage(&record, 1);
    assert_int_equal(begin(&record, 2), 10);
    assert_int_equal(notices, 1);
    assert_int_equal(trpi_record_latest(&record)->number, 0);
    must(trpi_record_prune(&record, &err), &err);
    assert_int_equal(record.count, 1);
    commit(&record, 20);
    must(trpi_record_prune(&record, &err), &err);
    assert_int_equal(trpi_record_latest(&record)->number, 2);
    assert_int_equal(begin(&record, 3), 20);
    assert_int_equal(notices, 0);
    trpi_record_release(&record);
    plan.keep = 0;
}

enum { CLAIMANTS = 8, ROUNDS = 50 };
static atomic_int won, lost;

static void *claim(void *arg) {
    trp_error err = {0};
    trpi_record record = opened();
    trp_code code = trpi_ckpt_store_claim(record.store, *(uint64_t *)arg, &err);
    atomic_fetch_add(&won, code == TRP_OK);
    atomic_fetch_add(&lost, code == TRP_ECANCELED);
    trpi_record_release(&record);
    return NULL;
}

/* The first to come always gets it: whoever meets it at the lock gives way. */
static void an_attempt_is_claimed_by_one_of_many(void **state) {
    for (uint64_t attempt = 1; attempt <= ROUNDS; attempt++) {
        pthread_t threads[CLAIMANTS];
        atomic_store(&won, 0);
        atomic_store(&lost, 0);
        for (int i = 0; i < CLAIMANTS; i++) {
            assert_int_equal(pthread_create(&threads[i], NULL, claim, &attempt), 0);
        }
        for (int i = 0; i < CLAIMANTS; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
        }
        assert_int_equal(atomic_load(&won), 1);
        assert_int_equal(atomic_load(&lost), CLAIMANTS - 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(attempts_go_on_above_whatever_has_been_used, make_storage,
                                        remove_storage),
        cmocka_unit_test_setup_teardown(who_is_superseded_may_not_write_nor_begin, make_storage,
                                        remove_storage),
        cmocka_unit_test_setup_teardown(
            a_damaged_checkpoint_is_neither_the_latest_nor_among_the_kept, make_storage,
            remove_storage),
        cmocka_unit_test_setup_teardown(an_attempt_is_claimed_by_one_of_many, make_storage,
                                        remove_storage),
    };
    return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
