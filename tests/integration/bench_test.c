/* bench_test.c: troupe bench measures every row that it lists. How fast is no matter here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/lib/child.h"
#include "tests/lib/listing.h"

enum { TIMEOUT_MS = 100000, WORDS_MAX = 12 };

static trp_buf output;

/* Runs `troupe bench` with these words (end with NULL). */
static int bench(const char *const *words) {
    const char *argv[WORDS_MAX] = {getenv("TROUPE_BIN"), "bench"};
    for (size_t i = 0; words[i] != NULL && i + 3 < WORDS_MAX; i++) {
        argv[i + 2] = words[i];
    }
    trp_buf_clear(&output);
    int code = test_run(argv, &output, TIMEOUT_MS);
    assert_int_equal(trp_buf_append(&output, "", 1), TRP_OK);
    return code;
}

static const char *said(void) {
    return (const char *)output.data;
}

static json_t *json_of(const char *const *words) {
    int code = bench(words);
    json_t *json = code == 0 ? test_json_in(said()) : NULL;
    if (json == NULL) {
        fail_msg("exit code %d: %s", code, said());
    }
    return json;
}

#define BENCH(...) bench((const char *const[]){__VA_ARGS__, NULL})
#define JSON_OF(...) json_of((const char *const[]){__VA_ARGS__, NULL})

static json_t *figure_of(json_t *figures, const char *name) {
    for (size_t i = 0; i < json_array_size(figures); i++) {
        json_t *figure = json_array_get(figures, i);
        if (strcmp(json_string_value(json_object_get(figure, "name")), name) == 0) {
            return figure;
        }
    }
    return NULL;
}

/* Sanitizers bring an allocator that does not count. */
static bool is_countable(const char *name) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return strncmp(name, "simulated_memory", strlen("simulated_memory")) != 0;
#else
    (void)name;
    return true;
#endif
}

static void must_be_positive(json_t *figure, const char *name) {
    json_t *raw = json_object_get(figure, "raw");
    if (figure == NULL || json_real_value(json_object_get(figure, "troupe")) <= 0) {
        fail_msg("%s was not measured: %s", name, said());
    }
    if (raw != NULL && json_real_value(raw) <= 0) {
        fail_msg("the limit of %s was not measured: %s", name, said());
    }
}

static void each_row_is_measured_but_those_that_must_be_asked_for(void **state) {
    json_t *list = JSON_OF("--list", "--format", "json");
    json_t *all = JSON_OF("--seconds", "0.05", "--format", "json");
    json_t *figures = json_object_get(all, "figures");
    assert_true(json_array_size(list) > 20);
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *row = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(row, "name"));
        if (json_is_true(json_object_get(row, "asked_for"))) {
            assert_null(figure_of(figures, name));
        } else {
            must_be_positive(figure_of(figures, name), name);
        }
    }
    json_decref(list);
    json_decref(all);
}

static void chosen_rows_are_the_only_ones(void **state) {
    json_t *all =
        JSON_OF("--only", "memory_head,many_actors", "--actors", "20", "--format", "json");
    json_t *figures = json_object_get(all, "figures");
    static const char *const names[] = {"memory_head", "many_actors", "many_actors_worker_private",
                                        "many_actors_call_all", "many_actors_end"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        must_be_positive(figure_of(figures, names[i]), names[i]);
    }
    assert_null(figure_of(figures, "call_round_trip"));
    json_decref(all);
}

static void the_heads_machine_is_measured_alone(void **state) {
    json_t *all = JSON_OF("--nodes-simulated", "100", "--actors", "2000", "--format", "json");
    json_t *figures = json_object_get(all, "figures");
    assert_int_equal(json_array_size(figures) % 3, 0); /* three sizes */
    for (size_t i = 0; i < json_array_size(figures); i++) {
        json_t *figure = json_array_get(figures, i);
        const char *name = json_string_value(json_object_get(figure, "name"));
        if (is_countable(name)) {
            must_be_positive(figure, name);
        }
    }
    assert_non_null(figure_of(figures, "simulated_actors_placed"));
    assert_non_null(figure_of(figures, "simulated_storm"));
    json_decref(all);
}

static void wrong_words_are_refused_with_the_nearest_row(void **state) {
    assert_int_equal(BENCH("--only", "memory_haed"), 2);
    assert_non_null(strstr(said(), "did you mean memory_head?"));
    assert_int_equal(BENCH("--seconds", "0"), 2);
    assert_int_equal(BENCH("--nodes-simulated", "3"), 2);
    assert_int_equal(BENCH("--actors", "many"), 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_words_are_refused_with_the_nearest_row),
        cmocka_unit_test(each_row_is_measured_but_those_that_must_be_asked_for),
        cmocka_unit_test(chosen_rows_are_the_only_ones),
        cmocka_unit_test(the_heads_machine_is_measured_alone),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    trp_buf_release(&output);
    return failed;
}
