/* base_config_test.c: settings and the log. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/base/config.h"
#include "core/base/log.h"

/* ---- Settings: the tests run in order, since a process reads its environment once ---- */

static void every_default_is_within_its_bounds(void **state) {
#define SETTING(name, value, min, max, text)                                                       \
    assert_true((uint64_t)(value) >= (uint64_t)(min) && (uint64_t)(value) <= (uint64_t)(max));     \
    assert_string_equal(trpi_config_name(TRPI_CONFIG_##name), #name);                              \
    assert_true(strlen(trpi_config_text(TRPI_CONFIG_##name)) > 0);                                 \
    assert_true(trpi_config(TRPI_CONFIG_##name) == (value));
#include "core/base/config.def"
#undef SETTING
}

static void the_environment_overrides_a_default(void **state) {
    trp_error err;
    setenv("TROUPE_HEARTBEAT_MS", "123", 1);
    assert_int_equal(trpi_config_load(&err), TRP_OK);
    unsetenv("TROUPE_HEARTBEAT_MS");
    assert_int_equal(trpi_config(TRPI_CONFIG_HEARTBEAT_MS), 123);
    assert_string_equal(trpi_config_origin(TRPI_CONFIG_HEARTBEAT_MS), "environment");
    assert_string_equal(trpi_config_origin(TRPI_CONFIG_PORT), "default");
}

static void a_flag_overrides_the_environment_in_any_order(void **state) {
    trp_error err;
    trpi_config_set(TRPI_CONFIG_PORT, 7000);
    setenv("TROUPE_PORT", "8000", 1);
    assert_int_equal(trpi_config_load(&err), TRP_OK);
    unsetenv("TROUPE_PORT");
    assert_int_equal(trpi_config(TRPI_CONFIG_PORT), 7000);
    assert_string_equal(trpi_config_origin(TRPI_CONFIG_PORT), "flag");
}

static void a_value_out_of_range_names_variable_and_range(void **state) {
    static const char *const bad[] = {"9", "60001", "", "ten", "-5", "1.5"};
    for (size_t i = 0; i < TRPI_COUNTOF(bad); i++) {
        trp_error err;
        setenv("TROUPE_HEARTBEAT_MS", bad[i], 1);
        assert_int_equal(trpi_config_load(&err), TRP_EINVALID);
        unsetenv("TROUPE_HEARTBEAT_MS");
        assert_non_null(strstr(err.message, "TROUPE_HEARTBEAT_MS="));
        assert_non_null(strstr(err.message, "from 10 to 60000"));
    }
    assert_int_equal(trpi_config(TRPI_CONFIG_HEARTBEAT_MS), 123);
}

/* ---- The log: stderr is pointed at a file meanwhile ---- */

static char captured[8192];

static int begin_capture(FILE *file) {
    fflush(stderr);
    int saved = dup(STDERR_FILENO);
    dup2(fileno(file), STDERR_FILENO);
    return saved;
}

static void end_capture(FILE *file, int saved) {
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    rewind(file);
    captured[fread(captured, 1, sizeof(captured) - 1, file)] = '\0';
    fclose(file);
}

static void a_line_says_when_how_bad_who_and_what(void **state) {
    FILE *file = tmpfile();
    int saved = begin_capture(file);
    trpi_log_set_level(TRPI_INFO);
    trpi_log_set_who("node n1");
    trpi_log(TRPI_INFO, "worker_died", "actor=%d signal=%d", 7, 9);
    trpi_log(TRPI_DEBUG, "not_shown", "at=all");
    end_capture(file, saved);
    assert_int_equal(captured[4], '-');
    assert_int_equal(captured[10], 'T');
    assert_int_equal(captured[23], 'Z');
    assert_string_equal(captured + 24, " info  node n1 worker_died actor=7 signal=9\n");
}

static void a_value_with_line_breaks_stays_on_its_line(void **state) {
    FILE *file = tmpfile();
    int saved = begin_capture(file);
    trpi_log(TRPI_ERROR, "bad_peer", "name=%s", "a\nforged line\x1b[31m");
    end_capture(file, saved);
    assert_non_null(strstr(captured, "name=a forged line [31m\n"));
    assert_ptr_equal(strchr(captured, '\n'), captured + strlen(captured) - 1);
}

static void a_long_line_is_cut_and_ended(void **state) {
    static char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    FILE *file = tmpfile();
    int saved = begin_capture(file);
    trpi_log(TRPI_ERROR, "long", "%s", text);
    end_capture(file, saved);
    assert_true(strlen(captured) < 3000);
    assert_int_equal(captured[strlen(captured) - 1], '\n');
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_default_is_within_its_bounds),
        cmocka_unit_test(the_environment_overrides_a_default),
        cmocka_unit_test(a_flag_overrides_the_environment_in_any_order),
        cmocka_unit_test(a_value_out_of_range_names_variable_and_range),
        cmocka_unit_test(a_line_says_when_how_bad_who_and_what),
        cmocka_unit_test(a_value_with_line_breaks_stays_on_its_line),
        cmocka_unit_test(a_long_line_is_cut_and_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
