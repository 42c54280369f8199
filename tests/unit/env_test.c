#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "actors/state/env.h"

static trpi_texts env(const char *a, const char *b, const char *c) {
    trpi_text list[] = {{a}, {b}, {c}};
    trpi_texts of = {0};
    assert_int_equal(trpi_env_parse(list, 3, &of, NULL), TRP_OK);
    return of;
}

static void of_two_entries_with_one_key_the_later_one_holds(void **state) {
    trpi_texts of = env("B=1", "A=2", "B=3");
    assert_int_equal(of.count, 2);
    assert_string_equal(of.items[0], "A=2");
    assert_string_equal(of.items[1], "B=3");
    assert_int_equal(trpi_texts_bytes(&of), 8);
    trpi_texts_release(&of);
}

static void an_actors_entries_stand_over_its_jobs(void **state) {
    trpi_texts job = env("PATH=/bin", "HOME=/root", "LANG=C");
    trpi_texts actor = env("HOME=/tmp", "A=1", "HOMES=x");
    trpi_text out[6];
    static const char *const merged[] = {"A=1", "HOME=/tmp", "HOMES=x", "LANG=C", "PATH=/bin"};
    assert_int_equal(trpi_env_merge(&job, &actor, out), 5);
    for (size_t i = 0; i < 5; i++) {
        assert_string_equal(out[i].value, merged[i]);
    }
    trpi_texts none = {0};
    assert_int_equal(trpi_env_merge(&none, &none, out), 0);
    assert_int_equal(trpi_env_merge(&job, &none, out), 3);
    trpi_texts_release(&job);
    trpi_texts_release(&actor);
}

static void what_is_no_entry_is_refused(void **state) {
    static const char *const bad[] = {"", "A", "=1"};
    for (size_t i = 0; i < TRPI_COUNTOF(bad); i++) {
        trpi_text list[] = {{bad[i]}};
        trpi_texts of;
        assert_int_equal(trpi_env_parse(list, 1, &of, NULL), TRP_EINVALID);
    }
    trpi_text *many = trpi_alloc((TRPI_ENV_MAX + 1) * sizeof(*many));
    for (size_t i = 0; i <= TRPI_ENV_MAX; i++) {
        many[i].value = "A=1";
    }
    trpi_texts of;
    assert_int_equal(trpi_env_parse(many, TRPI_ENV_MAX + 1, &of, NULL), TRP_EINVALID);
    free(many);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_two_entries_with_one_key_the_later_one_holds),
        cmocka_unit_test(an_actors_entries_stand_over_its_jobs),
        cmocka_unit_test(what_is_no_entry_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
