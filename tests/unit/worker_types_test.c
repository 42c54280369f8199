/* Unit tests of actors/proc/worker_types.c: tables that users get wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "actors/proc/worker_types.h"

static trp_code run(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err) {
    return TRP_OK;
}

static trp_code save(trp_context *ctx, void *state, trp_buf *saved, trp_error *err) {
    return TRP_OK;
}

static trp_code load(trp_context *ctx, void *state, trp_bytes saved, trp_error *err) {
    return TRP_OK;
}

static const trp_method one[] = {{"one", run}, {NULL, NULL}};
static const trp_method grouped[] = {{"one", run}, {"read", run, "io"}, {NULL, NULL}};
static const trp_concurrency io[] = {{"io", 4}, {"cpu", 1024}, {NULL, 0}};

#define METHODS(...)                                                                               \
    (const trp_method[]) {                                                                         \
        __VA_ARGS__, {                                                                             \
            NULL, NULL                                                                             \
        }                                                                                          \
    }
#define GROUPS(...)                                                                                \
    (const trp_concurrency[]) {                                                                    \
        __VA_ARGS__, {                                                                             \
            NULL, 0                                                                                \
        }                                                                                          \
    }

static const struct {
    trp_actor_type type;
    const char *message; /* a part of it; NULL = the type is good */
} rows[] = {
    {{.name = "a", .methods = one}, NULL},
    {{.name = "a", .methods = (const trp_method[]){{NULL, NULL}}}, NULL},
    {{.name = "a", .methods = grouped, .concurrency = io}, NULL},
    {{.name = "a", .methods = one, .save = save, .load = load}, NULL},
    {{.name = NULL, .methods = one}, "actor type 0 has no name"},
    {{.name = "", .methods = one}, "actor type 0 has no name"},
    {{.name = "a"}, "actor type a: methods is NULL"},
    {{.name = "a", .methods = METHODS({"", run})}, "method 0 has an empty name"},
    {{.name = "a", .methods = METHODS({"x", NULL})}, "actor type a: method x: run is NULL"},
    {{.name = "a", .methods = METHODS({"x", run}, {"x", run})}, "two methods are named x"},
    {{.name = "a", .methods = grouped}, "method read runs in the concurrency group \"io\""},
    {{.name = "a", .methods = METHODS({"x", run, "iO"}), .concurrency = io},
     "did you mean \"io\"?"},
    {{.name = "a", .methods = one, .concurrency = GROUPS({"io", 0})}, "io has 0 threads"},
    {{.name = "a", .methods = one, .concurrency = GROUPS({"io", 1025})},
     "io has 1025 threads; from 1 to 1024 are possible"},
    {{.name = "a", .methods = one, .concurrency = GROUPS({"io", -1})}, "io has -1 threads"},
    {{.name = "a", .methods = one, .concurrency = GROUPS({"", 1})}, "group 0 has no name"},
    {{.name = "a", .methods = one, .concurrency = GROUPS({"io", 1}, {"io", 2})},
     "two concurrency groups named io"},
    {{.name = "a", .methods = one, .save = save}, "actor type a has save() and no load()"},
    {{.name = "a", .methods = one, .load = load}, "actor type a has load() and no save()"},
};

static void a_table_that_is_wrong_is_refused_with_what_to_change(void **state) {
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        const trp_actor_type *const types[] = {&rows[i].type, NULL};
        trp_error err = {0};
        trp_code code = trpi_types_check(types, &err);
        if (rows[i].message == NULL) {
            assert_int_equal(code, TRP_OK);
        } else if (code != TRP_EINVALID || strstr(err.message, rows[i].message) == NULL) {
            fail_msg("row %zu: \"%s\" instead of \"%s\"", i, err.message, rows[i].message);
        }
    }
}

static void types_of_one_name_are_refused(void **state) {
    const trp_actor_type a = {.name = "a", .methods = one}, b = {.name = "b", .methods = one};
    const trp_actor_type *const good[] = {&a, &b, NULL}, *const bad[] = {&a, &b, &a, NULL};
    trp_error err = {0};
    assert_int_equal(trpi_types_check(good, &err), TRP_OK);
    assert_int_equal(trpi_types_check(bad, &err), TRP_EINVALID);
    assert_string_equal(err.message, "two actor types are named a");
}

static void a_method_runs_in_the_group_that_it_names(void **state) {
    const trp_actor_type type = {
        .name = "a",
        .methods = METHODS({"x", run}, {"y", run, "cpu"}, {"z", run, "io"}),
        .concurrency = io,
    };
    assert_int_equal(trpi_type_group_count(&type), 3);
    assert_int_equal(trpi_type_group(&type, trpi_type_method(&type, "x")), 0);
    assert_int_equal(trpi_type_group(&type, trpi_type_method(&type, "y")), 2);
    assert_int_equal(trpi_type_group(&type, trpi_type_method(&type, "z")), 1);
    assert_null(trpi_type_method(&type, "w"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_that_is_wrong_is_refused_with_what_to_change),
        cmocka_unit_test(types_of_one_name_are_refused),
        cmocka_unit_test(a_method_runs_in_the_group_that_it_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
