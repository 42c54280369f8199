/* client_options_test.c: what a user may ask for, row by row. */
#include "actors/proc/client_options.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/base.h"

#define WORDS(...)                                                                                 \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }

static const trp_actor_type plain = {.name = "plain"};

/* says: what the refusal names, and a part of what it says is allowed; NULL = fine. */
typedef struct spawn_row {
    trp_spawn_options options;
    const char *name, *says;
} spawn_row;

static void check_spawn(const spawn_row *row) {
    trp_error err = {0};
    trp_code code = trpi_spawn_check(&row->options, &plain, &err);
    if (row->name == NULL) {
        if (code != TRP_OK) {
            fail_msg("refused: %s", err.message);
        }
        return;
    }
    if (code != TRP_EINVALID || strstr(err.message, row->name) == NULL ||
        strstr(err.message, row->says) == NULL) {
        fail_msg("%s: %s, \"%s\"", row->name, trp_code_name(code), err.message);
    }
}

static void numbers_out_of_range_are_refused_naming_the_option(void **state) {
    const spawn_row rows[] = {
        {{0}, NULL, NULL},
        {{.restarts_max = -1, .call_retries_max = -1}, NULL, NULL},
        {{.restarts_max = -2}, "restarts_max: -2", "-1 for ever"},
        {{.call_retries_max = -3}, "call_retries_max: -3", "-1 for ever"},
        {{.max_concurrency = 1024}, NULL, NULL},
        {{.max_concurrency = 1025}, "max_concurrency: 1025", "1 to 1024"},
        {{.max_concurrency = -1}, "max_concurrency: -1", "1 to 1024"},
        {{.max_pending_calls = 1}, NULL, NULL},
        {{.max_pending_calls = -1}, "max_pending_calls: -1", "0 for no limit"},
        {{.restart_backoff_ms = 86400000}, NULL, NULL},
        {{.restart_backoff_ms = 86400001}, "restart_backoff_ms: 86400001", "a day"},
        {{.restart_window_ms = UINT64_MAX, .restarts_max = 1}, "restart_window_ms", "a year"},
        {{.start_timeout_ms = UINT64_MAX}, "start_timeout_ms", "a day"},
        {{.liveness_ms = 50}, NULL, NULL},
        {{.liveness_ms = 49}, "liveness_ms: 49", "50 ms to a day"},
        {{.liveness_ms = UINT64_MAX}, "liveness_ms", "50 ms to a day"},
        {{.restart = (trp_restart)3}, "restart: 3", "trp_restart"},
        {{.restart = (trp_restart)-1}, "restart: -1", "trp_restart"},
        {{.schedule = (trp_schedule)2}, "schedule: 2", "trp_schedule"},
        {{.group = {1}, .bundle = -1}, NULL, NULL},
        {{.group = {1}, .bundle = -2}, "bundle: -2", "-1 for any"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        check_spawn(&rows[i]);
    }
}

static void options_that_would_have_no_effect_are_refused(void **state) {
    const spawn_row rows[] = {
        {{.get_if_exists = true}, "get_if_exists", "name"},
        {{.get_if_exists = true, .name = ""}, "get_if_exists", "name"},
        {{.get_if_exists = true, .name = "a"}, NULL, NULL},
        {{.bundle = 1}, "bundle", "group"},
        {{.group = {1}, .node = 2}, "node", "group"},
        {{.node_soft = true}, "node_soft", "node"},
        {{.node_soft = true, .node = 2}, NULL, NULL},
        {{.restart_window_ms = 1000}, "restart_window_ms", "restarts_max"},
        {{.restart_window_ms = 1000, .restarts_max = -1}, "restart_window_ms", "restarts_max"},
        {{.restart_window_ms = 1000, .restarts_max = 3}, NULL, NULL},
        {{.save_each_call = true}, "save_each_call", "save()"},
        {{.resource_count = 1}, "resources", "NULL"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        check_spawn(&rows[i]);
    }
    trp_spawn_options saves = {.save_each_call = true};
    assert_int_equal(trpi_spawn_check(&saves, NULL, NULL), TRP_OK); /* a type that is not known */
}

static void texts_must_be_what_they_are_for(void **state) {
    static char longest[257];
    static const char long_type[] = "12345678901234567890123456789012345678901234567";
    memset(longest, 'n', 256);
    const spawn_row rows[] = {
        {{.name = longest + 1}, NULL, NULL},
        {{.name = longest}, "name: 256", "255"},
        {{.cwd = "/tmp"}, NULL, NULL},
        {{.cwd = "tmp"}, "cwd", "absolute"},
        {{.cwd = ""}, "cwd", "absolute"},
        {{.env = WORDS("A=1", "B=", "C==")}, NULL, NULL},
        {{.env = WORDS("A=1", "B")}, "env[1]: \"B\"", "KEY=value"},
        {{.env = WORDS("=1")}, "env[0]: \"=1\"", "KEY=value"},
        {{.retry_on = WORDS("KeyError", "*")}, NULL, NULL},
        {{.retry_on = WORDS("")}, "retry_on[0]", "47 bytes"},
        {{.retry_on = WORDS(long_type)}, NULL, NULL},
        {{.retry_on = WORDS("1234567890"
                            "12345678901234567890123456789012345678")},
         "retry_on[0]",
         "47 bytes"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(rows); i++) {
        check_spawn(&rows[i]);
    }
}

static void labels_are_selectors(void **state) {
    static const char *const good[] = {"zone=a", "zone=a|b|c-1", "zone!=a",    "zone!=a|b", "ssd",
                                       "!ssd",   "a.b/c=d",      "host=n1:80", "z_1=A@b",   NULL};
    static const char *const bad[] = {"",    "=",       "zone=", "=a",      "!=a",
                                      "!",   "zone=a|", "a b",   "zone=|a", "zone==a",
                                      "a!b", "!a=b",    "a=b!",  "zone,a",  "zone=a||b"};
    trp_error err = {0};
    trp_spawn_options options = {.labels = good};
    if (trpi_spawn_check(&options, NULL, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    for (size_t i = 0; i < TRPI_COUNTOF(bad); i++) {
        options.labels = WORDS("ssd", bad[i]);
        if (trpi_spawn_check(&options, NULL, &err) != TRP_EINVALID ||
            strstr(err.message, "labels[1]") == NULL || strstr(err.message, "selector") == NULL) {
            fail_msg("\"%s\" passes, or \"%s\"", bad[i], err.message);
        }
    }
}

static void a_list_without_an_end_is_refused(void **state) {
    static const char *endless[4100];
    trp_error err = {0};
    for (size_t i = 0; i < TRPI_COUNTOF(endless); i++) {
        endless[i] = "A=1";
    }
    assert_int_equal(trpi_env_check(endless, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "no NULL at the end"));
    assert_int_equal(trpi_env_check(NULL, &err), TRP_OK);
}

static void calls_and_gangs_have_ranges_too(void **state) {
    trp_error err = {0};
    const struct {
        trp_call_options options;
        const char *says;
    } calls[] = {
        {{0}, NULL},
        {{.retries_max = -1}, NULL},
        {{.retries_max = TRP_RETRIES_NONE}, NULL},
        {{.retries_max = -3}, "retries_max: -3"},
        {{.object_count = 1}, "objects is NULL"},
        {{.retry_on = WORDS("")}, "retry_on[0]"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(calls); i++) {
        trp_code code = trpi_call_check(&calls[i].options, &err);
        assert_int_equal(code, calls[i].says ? TRP_EINVALID : TRP_OK);
        assert_true(calls[i].says == NULL || strstr(err.message, calls[i].says) != NULL);
    }
    const struct {
        trp_gang_options options;
        const char *says;
    } gangs[] = {
        {{0}, NULL},
        {{.policy = TRP_GANG_RESTART, .restarts_max = -1}, NULL},
        {{.policy = TRP_GANG_RESTART, .restarts_max = 2, .restart_window_ms = 1}, NULL},
        {{.policy = TRP_GANG_RESTART, .restarts_max = -2}, "restarts_max: -2"},
        {{.policy = (trp_gang_policy)2}, "policy: 2"},
        {{.restarts_max = 1}, "TRP_GANG_END restarts nothing"},
        {{.policy = TRP_GANG_RESTART, .restart_window_ms = 1}, "restart_window_ms"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(gangs); i++) {
        trp_code code = trpi_gang_check(&gangs[i].options, &err);
        assert_int_equal(code, gangs[i].says ? TRP_EINVALID : TRP_OK);
        assert_true(gangs[i].says == NULL || strstr(err.message, gangs[i].says) != NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_out_of_range_are_refused_naming_the_option),
        cmocka_unit_test(options_that_would_have_no_effect_are_refused),
        cmocka_unit_test(texts_must_be_what_they_are_for),
        cmocka_unit_test(labels_are_selectors),
        cmocka_unit_test(a_list_without_an_end_is_refused),
        cmocka_unit_test(calls_and_gangs_have_ranges_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
