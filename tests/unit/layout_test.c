/* The layout: every element of every tensor belongs to exactly one rank, and padding to none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/engine/layout.h"

static const trp_unit_type plain_type = {.name = "plain"};

static void add(trp_model *model, const trp_param *params, int count) {
    trp_error err = {0};
    if (trp_model_add(model, &plain_type, NULL, params, count, &err)) {
        fail_msg("%s", err.message);
    }
}

/* Three units with odd sizes; the last one is tied to the first. */
static trp_model *odd_model(void) {
    trp_model *model = NULL;
    trp_model_limits limits = {0};
    assert_int_equal(trp_model_new("odd", &limits, &model, NULL), TRP_OK);
    add(model,
        (trp_param[]){{.name = "table", .shape = {7, 13}, .dims = 2},
                      {.name = "places", .shape = {5, 13}, .dims = 2}},
        2);
    add(model,
        (trp_param[]){{.name = "one", .shape = {1}, .dims = 1},
                      {.name = "matrix", .shape = {13, 41}, .dims = 2},
                      {.name = "bias", .shape = {3}, .dims = 1}},
        3);
    add(model,
        (trp_param[]){{.name = "norm", .shape = {13}, .dims = 1},
                      {.name = "head", .shape = {7, 13}, .dims = 2, .tied_to = "table"}},
        2);
    return model;
}

static trpi_layout layout_of(const trp_model *model, int world, int64_t bucket) {
    trpi_layout layout;
    trp_error err = {0};
    if (trpi_layout_init(model, world, bucket, &layout, &err)) {
        fail_msg("%s", err.message);
    }
    return layout;
}

static void check_tensors_do_not_overlap(const trpi_layout *layout) {
    for (int b = 0; b < layout->bucket_count; b++) {
        const trpi_bucket *bucket = &layout->buckets[b];
        int64_t end = 0;
        for (int t = bucket->tensor; t < bucket->tensor + bucket->tensor_count; t++) {
            const trpi_tensor_place *place = &layout->tensors[t];
            assert_int_equal(place->bucket, b);
            assert_true(place->offset >= end);
            assert_int_equal(place->offset % TRPI_LAYOUT_ALIGN, 0);
            end = place->offset + place->count;
        }
        assert_int_equal(bucket->count, end);
        assert_int_equal(bucket->padded, bucket->slice * layout->world);
        assert_int_equal(bucket->slice % TRPI_LAYOUT_ALIGN, 0);
        assert_true(bucket->padded >= bucket->count);
        assert_true(bucket->padded < bucket->count + layout->world * TRPI_LAYOUT_ALIGN);
    }
}

static void check_every_element_has_one_owner(const trpi_layout *layout) {
    int64_t owned = 0;
    for (int t = 0; t < layout->tensor_count; t++) {
        int64_t next = 0;
        for (int r = 0; r < layout->world; r++) {
            trpi_piece piece = trpi_layout_owned(layout, t, r);
            if (piece.count == 0) {
                continue;
            }
            assert_int_equal(piece.tensor_offset, next);
            assert_int_equal(piece.bucket_offset, layout->tensors[t].offset + next);
            next += piece.count;
        }
        assert_int_equal(next, layout->tensors[t].count);
        owned += next;
    }
    assert_int_equal(owned, layout->parameters);
}

static void every_element_has_one_owner_at_any_world_and_bucket_size(void **state) {
    trp_model *model = odd_model();
    static const int64_t buckets[] = {1, 50, 200, 600, 500000000};
    for (int world = 1; world <= 9; world++) {
        for (size_t i = 0; i < TRPI_COUNTOF(buckets); i++) {
            trpi_layout layout = layout_of(model, world, buckets[i]);
            check_tensors_do_not_overlap(&layout);
            check_every_element_has_one_owner(&layout);
            assert_int_equal(layout.parameters, 7 * 13 + 5 * 13 + 1 + 13 * 41 + 3 + 13);
            trpi_layout_release(&layout);
        }
    }
    trp_model_free(model);
}

static void a_bucket_never_straddles_units(void **state) {
    trp_model *model = odd_model();
    trpi_layout layout = layout_of(model, 2, 500000000);
    assert_int_equal(layout.bucket_count, 4); /* table | places | one matrix bias | norm */
    assert_int_equal(layout.buckets[2].tensor_count, 3);
    for (int b = 0; b < layout.bucket_count; b++) {
        const trpi_bucket *bucket = &layout.buckets[b];
        for (int t = bucket->tensor; t < bucket->tensor + bucket->tensor_count; t++) {
            assert_int_equal(layout.tensors[t].unit, bucket->unit);
        }
    }
    trpi_layout_release(&layout);
    trp_model_free(model);
}

static void a_tied_tensor_is_one_tensor_with_a_bucket_of_its_own(void **state) {
    trp_model *model = odd_model();
    trpi_layout layout = layout_of(model, 2, 500000000);
    int table = trpi_layout_find(&layout, model, "table");
    assert_int_equal(trpi_layout_find(&layout, model, "head"), table);
    assert_int_equal(trpi_layout_find(&layout, model, "tail"), -1);
    const trpi_bucket *bucket = &layout.buckets[layout.tensors[table].bucket];
    assert_int_equal(bucket->tensor_count, 1);
    assert_int_equal(bucket->unit, 0);
    assert_int_equal(bucket->last_unit, 2);
    assert_true(layout.tensors[table].shared);
    trpi_layout_release(&layout);
    trp_model_free(model);
}

static void a_tensor_larger_than_a_bucket_has_its_own(void **state) {
    trp_model *model = odd_model();
    trpi_layout layout = layout_of(model, 2, 200);
    int matrix = trpi_layout_find(&layout, model, "matrix");
    const trpi_bucket *bucket = &layout.buckets[layout.tensors[matrix].bucket];
    assert_int_equal(bucket->tensor_count, 1);
    assert_int_equal(layout.bucket_count, 6);
    trpi_layout_release(&layout);
    trp_model_free(model);
}

static void gpt2_124m_needs_no_padding_on_two_ranks(void **state) {
    trp_model *model = NULL;
    trp_gpt2_config config = {0};
    assert_int_equal(trp_gpt2_new(&config, &model, NULL), TRP_OK);
    trpi_layout layout = layout_of(model, 2, 500000000);
    assert_int_equal(layout.parameters, 124439808);
    assert_int_equal(layout.padded, 124439808);
    assert_int_equal(layout.tensor_count, 148);
    trpi_layout_release(&layout);
    trp_model_free(model);
}

static void expect_refused(trp_model *model, trp_param param, const char *what) {
    trp_error err = {0};
    assert_int_equal(trp_model_add(model, &plain_type, NULL, &param, 1, &err), TRP_EINVALID);
    if (!strstr(err.message, what)) {
        fail_msg("\"%s\" is not in: %s", what, err.message);
    }
}

static void a_model_refuses_units_that_make_no_sense(void **state) {
    trp_model *model = odd_model();
    expect_refused(model, (trp_param){.name = "bias", .shape = {3}, .dims = 1}, "named bias");
    expect_refused(model, (trp_param){.name = "x", .shape = {0}, .dims = 1}, "dimension 0 is 0");
    expect_refused(model, (trp_param){.name = "x", .shape = {INT64_MAX, 3}, .dims = 2},
                   "dimension 0");
    expect_refused(model, (trp_param){.name = "x", .dims = 5}, "5 dimensions");
    expect_refused(model, (trp_param){.name = "", .dims = 1}, "no name");
    expect_refused(model, (trp_param){.name = "x", .shape = {3}, .dims = 1, .tied_to = "nothing"},
                   "tied to nothing, which no earlier unit has");
    expect_refused(model, (trp_param){.name = "x", .shape = {4}, .dims = 1, .tied_to = "bias"},
                   "shapes differ");
    expect_refused(model, (trp_param){.name = "x", .shape = {7, 13}, .dims = 2, .tied_to = "head"},
                   "itself tied");
    trp_model_free(model);
}

static void a_model_without_parameters_is_refused(void **state) {
    trp_model *model = NULL;
    trpi_layout layout;
    trp_model_limits limits = {0};
    assert_int_equal(trp_model_new("empty", &limits, &model, NULL), TRP_OK);
    assert_int_equal(trpi_layout_init(model, 1, 1, &layout, NULL), TRP_EINVALID);
    trp_model_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_has_one_owner_at_any_world_and_bucket_size),
        cmocka_unit_test(a_bucket_never_straddles_units),
        cmocka_unit_test(a_tied_tensor_is_one_tensor_with_a_bucket_of_its_own),
        cmocka_unit_test(a_tensor_larger_than_a_bucket_has_its_own),
        cmocka_unit_test(gpt2_124m_needs_no_padding_on_two_ranks),
        cmocka_unit_test(a_model_refuses_units_that_make_no_sense),
        cmocka_unit_test(a_model_without_parameters_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
