/* The key-value store. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/machine.h"

static trp_code put(const char *key, trp_bytes value, bool erase) {
    trpi_msg msg = {.type = TRPI_MSG_KV_PUT, .kv_put = {++machine.last_request, key, erase, value}};
    machine_tell(DRIVER, &msg);
    return (trp_code)machine_must_hear(DRIVER, TRPI_MSG_DONE)->done.code;
}

static void values_are_kept_erased_and_bounded(void **state) {
    machine_client(DRIVER, "driver", 0, 0);
    static char large[(1 << 20) + 1];
    trp_bytes value = {"hello", 5}, found;
    assert_int_equal(put("run/a", value, false), TRP_OK);
    assert_int_equal(put("", value, false), TRP_EINVALID);
    assert_int_equal(put("k", (trp_bytes){large, sizeof(large)}, false), TRP_EINVALID);
    trpi_msg get = {.type = TRPI_MSG_KV_GET, .kv_get = {++machine.last_request, "run/a"}};
    machine_tell(DRIVER, &get);
    const trpi_msg_kv_value *got = &machine_must_hear(DRIVER, TRPI_MSG_KV_VALUE)->kv_value;
    assert_int_equal(got->code, TRP_OK);
    assert_memory_equal(got->value.data, "hello", 5);
    assert_string_equal(trpi_cluster_kv_next(machine.cluster, "run/", false, &found), "run/a");
    assert_null(trpi_cluster_kv_next(machine.cluster, "run/a", true, &found));
    assert_int_equal(put("run/a", (trp_bytes){0}, true), TRP_OK);
    machine_tell(DRIVER, &get);
    assert_int_equal(machine_must_hear(DRIVER, TRPI_MSG_KV_VALUE)->kv_value.code, TRP_ENOTFOUND);
    assert_int_equal(trpi_cluster_get_counts(machine.cluster).kv_bytes, 0);
    for (size_t i = 0; i < 64; i++) {
        char key[16];
        trpi_format(key, sizeof(key), "k%zu", i);
        trp_code code = put(key, (trp_bytes){large, 1 << 20}, false);
        assert_int_equal(code, i < 63 ? TRP_OK : TRP_EBUSY);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        MACHINE_TEST(values_are_kept_erased_and_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
