/* Data: the shuffle is a permutation, and every sample is used exactly once per epoch, whatever the
 * number of ranks and wherever it was interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <troupe/data.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/base.h"

static char path[64];

static int make_text(void **state) {
    TRPI_SET(path, "/tmp/troupe-data-XXXXXX");
    int fd = mkstemp(path);
    if (fd >= 0) {
        close(fd);
    }
    return fd < 0;
}

static int remove_text(void **state) {
    return unlink(path);
}

/* Byte i of the text is i mod 251: a sample's first byte and its number are bound to each other. */
static trp_dataset *open_text(size_t bytes, int64_t columns) {
    FILE *file = fopen(path, "w");
    for (size_t i = 0; i < bytes; i++) {
        fputc((int)(i % 251), file);
    }
    fclose(file);
    trp_dataset *dataset = NULL;
    trp_error err = {0};
    if (trp_dataset_open_bytes(path, columns, &dataset, &err)) {
        fail_msg("%s", err.message);
    }
    return dataset;
}

static void expect_permutation(uint64_t seed, uint64_t epoch, uint64_t count) {
    bool *seen = calloc(count, 1);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = trp_shuffle(seed, epoch, count, i);
        if (at >= count || seen[at]) {
            fail_msg("seed %llu epoch %llu count %llu index %llu -> %llu", (unsigned long long)seed,
                     (unsigned long long)epoch, (unsigned long long)count, (unsigned long long)i,
                     (unsigned long long)at);
        }
        seen[at] = true;
    }
    free(seen);
}

static void the_shuffle_is_a_permutation_of_every_count(void **state) {
    for (uint64_t count = 1; count <= 300; count++) {
        expect_permutation(42, 0, count);
        expect_permutation(0, count, count);
    }
    static const uint64_t counts[] = {1023, 1024, 1025, 4095, 4097, 65535, 65536, 65537, 200003};
    for (size_t i = 0; i < TRPI_COUNTOF(counts); i++) {
        expect_permutation(7, i, counts[i]);
    }
}

static void the_shuffle_of_the_largest_counts_stays_inside(void **state) {
    static const uint64_t counts[] = {UINT64_MAX, UINT64_C(1) << 63, (UINT64_C(1) << 62) + 1,
                                      UINT64_C(1) << 33};
    for (size_t i = 0; i < TRPI_COUNTOF(counts); i++) {
        for (uint64_t k = 0; k < 100; k++) {
            assert_true(trp_shuffle(k, k, counts[i], counts[i] - 1 - k) < counts[i]);
        }
    }
}

/* How many of 1000 places hold the same element. A fair shuffle expects one. */
static int fixed_places(uint64_t seed_a, uint64_t epoch_a, uint64_t seed_b, uint64_t epoch_b) {
    int same = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        same += trp_shuffle(seed_a, epoch_a, 1000, i) == trp_shuffle(seed_b, epoch_b, 1000, i);
    }
    return same;
}

static void T36_orders_differ_by_epoch_and_seed_and_are_equal_for_equal_ones(void **state) {
    assert_int_equal(fixed_places(1, 0, 1, 0), 1000);
    for (uint64_t epoch = 1; epoch < 20; epoch++) {
        assert_true(fixed_places(1, 0, 1, epoch) < 12);
        assert_true(fixed_places(epoch, 3, epoch + 1, 3) < 12);
        assert_true(fixed_places(epoch, 0, 0, epoch) < 12);
    }
}

/* Each element should come to each place about equally often: chi-squared over many epochs. Of a
 * fair shuffle it has 49 degrees of freedom and is above 110 once in a million times. */
static void every_place_is_reached_equally_often(void **state) {
    enum { COUNT = 8, EPOCHS = 16000 };
    int hits[COUNT][COUNT] = {{0}};
    double expected = (double)EPOCHS / COUNT, chi = 0;
    for (uint64_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (uint64_t i = 0; i < COUNT; i++) {
            hits[i][trp_shuffle(5, epoch, COUNT, i)]++;
        }
    }
    for (int i = 0; i < COUNT * COUNT; i++) {
        double off = hits[i / COUNT][i % COUNT] - expected;
        chi += off * off / expected;
    }
    print_message("chi-squared %.1f of 49 degrees of freedom\n", chi);
    assert_true(chi < 110);
}

static void targets_are_the_tokens_that_follow(void **state) {
    trp_dataset *dataset = open_text(1000, 10);
    assert_int_equal(trp_dataset_samples(dataset), 99); /* (1000 - 1) / 10 */
    trp_data_position position = {.seed = 3};
    int32_t tokens[5 * 10], targets[5 * 10];
    trp_dataset_batch(dataset, &position, 0, 1, 5, tokens, targets);
    for (int row = 0; row < 5; row++) {
        uint64_t sample = trp_shuffle(3, 0, 99, (uint64_t)row);
        for (uint64_t i = 0; i < 10; i++) {
            assert_int_equal(tokens[(size_t)row * 10 + i], (sample * 10 + i) % 251);
            assert_int_equal(targets[(size_t)row * 10 + i], (sample * 10 + i + 1) % 251);
        }
    }
    assert_int_equal(position.sample, 5);
    assert_int_equal(position.epoch, 0);
    trp_dataset_close(dataset);
}

static void the_last_token_is_only_a_target(void **state) {
    trp_dataset *dataset = open_text(21, 10);
    assert_int_equal(trp_dataset_samples(dataset), 2);
    trp_dataset_close(dataset);
    dataset = open_text(20, 10);
    assert_int_equal(trp_dataset_samples(dataset), 1);
    trp_dataset_close(dataset);
}

/* Counts uses of each sample over `epochs` epochs, with batches whose world and rows change at
 * random and a position that goes through a copy, as through a checkpoint. columns 1: tokens name
 * samples. */
static void every_sample_is_used_once_per_epoch_across_resumes_and_resizes(void **state) {
    enum { SAMPLES = 101, EPOCHS = 7 };
    trp_dataset *dataset = open_text(SAMPLES + 1, 1);
    int used[SAMPLES] = {0};
    int32_t tokens[64], targets[64];
    trp_data_position position = {.seed = 11};
    uint64_t draw = 1, done = 0;
    while (position.epoch < EPOCHS) {
        trp_data_position saved = position, after = position;
        draw = draw * 6364136223846793005u + 1442695040888963407u;
        int world = (int)(draw >> 33) % 5 + 1;
        int64_t rows = (int64_t)(draw >> 40) % 9 + 1;
        for (int rank = 0; rank < world; rank++) {
            position = saved;
            trp_dataset_batch(dataset, &position, rank, world, rows, tokens, targets);
            for (int64_t row = 0; row < rows; row++) {
                used[tokens[row]]++;
            }
            assert_true(rank == 0 || memcmp(&after, &position, sizeof after) == 0);
            after = position;
        }
        done += (uint64_t)world * (uint64_t)rows;
        assert_int_equal(position.epoch * SAMPLES + position.sample, done);
        if (position.epoch !=
            saved.epoch) { /* an epoch is over: every sample has been used in it */
            for (int i = 0; i < SAMPLES; i++) {
                assert_true(used[i] >= (int)position.epoch && used[i] <= (int)position.epoch + 1);
            }
        }
    }
    /* Whole epochs were used up except for what the last batch took of the next one. */
    int total = 0;
    for (int i = 0; i < SAMPLES; i++) {
        total += used[i];
    }
    assert_int_equal((uint64_t)total, done);
    trp_dataset_close(dataset);
}

static void one_global_batch_is_the_same_at_every_world_size(void **state) {
    trp_dataset *dataset = open_text(500, 4);
    int32_t whole[24 * 4], part[24 * 4], targets[24 * 4];
    trp_data_position start = {.seed = 9, .epoch = 2, .sample = 110}; /* 124 samples: straddles */
    trp_data_position position = start;
    trp_dataset_batch(dataset, &position, 0, 1, 24, whole, targets);
    assert_int_equal(position.epoch, 3);
    assert_int_equal(position.sample, 10);
    for (int world = 2; world <= 4; world++) {
        int64_t rows = 24 / world;
        for (int rank = 0; rank < world; rank++) {
            position = start;
            trp_dataset_batch(dataset, &position, rank, world, rows, part, targets);
            assert_memory_equal(part, whole + rank * rows * 4, (size_t)rows * 4 * sizeof *part);
            assert_int_equal(position.sample, 10);
        }
    }
    trp_dataset_close(dataset);
}

static void T36_two_ranks_see_disjoint_halves(void **state) {
    trp_dataset *dataset = open_text(201, 1);
    int seen[200] = {0}, of_rank[2] = {0, 0};
    int32_t tokens[100], targets[100];
    for (int rank = 0; rank < 2; rank++) {
        trp_data_position position = {.seed = 1};
        for (int step = 0; step < 10; step++) {
            trp_dataset_batch(dataset, &position, rank, 2, 10, tokens, targets);
            for (int row = 0; row < 10; row++) {
                seen[tokens[row]]++;
                of_rank[rank]++;
            }
        }
    }
    for (int i = 0; i < 200; i++) {
        assert_int_equal(seen[i], 1);
    }
    assert_int_equal(of_rank[0], 100);
    trp_dataset_close(dataset);
}

static void a_batch_may_be_larger_than_the_data(void **state) {
    trp_dataset *dataset = open_text(4, 1);
    int32_t tokens[10], targets[10];
    int used[3] = {0};
    trp_data_position position = {.seed = 1};
    trp_dataset_batch(dataset, &position, 0, 1, 10, tokens, targets);
    for (int i = 0; i < 9; i++) {
        used[tokens[i]]++;
    }
    assert_true(used[0] == 3 && used[1] == 3 && used[2] == 3);
    assert_int_equal(position.epoch, 3);
    assert_int_equal(position.sample, 1);
    trp_dataset_close(dataset);
}

static void a_file_that_is_too_short_or_missing_is_refused_with_the_numbers(void **state) {
    trp_dataset *dataset = NULL;
    trp_error err = {0};
    trp_dataset_close(open_text(9, 8));
    assert_int_equal(trp_dataset_open_bytes(path, 9, &dataset, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "has 9 bytes"));
    assert_non_null(strstr(err.message, "needs 10"));
    assert_int_equal(trp_dataset_open_bytes(path, 0, &dataset, &err), TRP_EINVALID);
    assert_int_equal(trp_dataset_open_bytes("/tmp/no such file", 8, &dataset, &err), TRP_ENOTFOUND);
    assert_non_null(strstr(err.message, "no such file"));
    assert_null(dataset);
    trp_dataset_close(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_shuffle_is_a_permutation_of_every_count),
        cmocka_unit_test(the_shuffle_of_the_largest_counts_stays_inside),
        cmocka_unit_test(T36_orders_differ_by_epoch_and_seed_and_are_equal_for_equal_ones),
        cmocka_unit_test(every_place_is_reached_equally_often),
        cmocka_unit_test(targets_are_the_tokens_that_follow),
        cmocka_unit_test(the_last_token_is_only_a_target),
        cmocka_unit_test(every_sample_is_used_once_per_epoch_across_resumes_and_resizes),
        cmocka_unit_test(one_global_batch_is_the_same_at_every_world_size),
        cmocka_unit_test(T36_two_ranks_see_disjoint_halves),
        cmocka_unit_test(a_batch_may_be_larger_than_the_data),
        cmocka_unit_test(a_file_that_is_too_short_or_missing_is_refused_with_the_numbers),
    };
    return cmocka_run_group_tests(tests, make_text, remove_text);
}
