#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "actors/proc/node_resources.h"

static trp_code try_customs(const trp_resource *customs, size_t count, trp_error *err) {
    trpi_node_resources resources;
    trpi_node_options options = {
        .cpus = 1, .memory_bytes = 1 << 30, .resources = customs, .resource_count = count};
    return trpi_node_resources_init(&options, &resources, err);
}

static void amounts_are_fixed_point(void **state) {
    const trp_resource customs[] = {{"slots", 0.3}};
    trpi_node_resources r;
    trpi_node_options options = {.cpus = 2.5,
                                 .gpus = 3,
                                 .memory_bytes = UINT64_C(3) << 30,
                                 .resources = customs,
                                 .resource_count = 1};
    trp_error err = {0};
    assert_int_equal(trpi_node_resources_init(&options, &r, &err), TRP_OK);
    assert_int_equal(r.count, 4);
    assert_string_equal(r.list[0].name, "cpu");
    assert_int_equal(r.list[0].amount, 25000);
    assert_string_equal(r.list[1].name, "gpu");
    assert_int_equal(r.list[1].amount, 30000);
    assert_int_equal(r.device_count, 3);
    assert_string_equal(r.devices[2].value, "2");
    assert_string_equal(r.list[2].name, "memory");
    assert_int_equal(r.list[2].amount, INT64_C(3072) * 10000);
    assert_int_equal(r.list[3].amount, 3000);
}

static void what_is_not_given_is_what_the_machine_has(void **state) {
    trpi_node_resources r;
    trpi_node_options options = {.cpus = -1, .gpus = -1};
    assert_int_equal(trpi_node_resources_init(&options, &r, NULL), TRP_OK);
    assert_true(r.list[0].amount >= 10000);
    assert_string_equal(r.list[r.count - 1].name, "memory");
    assert_true(r.list[r.count - 1].amount > 0);
}

static void nonsense_is_refused_by_name(void **state) {
    const trp_resource bad[] = {{"fine", 0.00001}, {"less", -1},         {"cpu", 1},
                                {"", 1},           {"nan", (double)NAN}, {"huge", 1e18}};
    for (size_t i = 0; i < TRPI_COUNTOF(bad); i++) {
        trp_error err = {0};
        assert_int_equal(try_customs(&bad[i], 1, &err), TRP_EINVALID);
        assert_non_null(strstr(err.message, bad[i].name));
    }
    const trp_resource twice[] = {{"a", 1}, {"b", 1}, {"a", 1}};
    assert_int_equal(try_customs(twice, 3, NULL), TRP_EINVALID);
}

static void a_node_has_whole_gpus(void **state) {
    trpi_node_resources r;
    trpi_node_options options = {.cpus = 1, .gpus = 1.5};
    trp_error err = {0};
    assert_int_equal(trpi_node_resources_init(&options, &r, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "gpu"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(amounts_are_fixed_point),
        cmocka_unit_test(what_is_not_given_is_what_the_machine_has),
        cmocka_unit_test(nonsense_is_refused_by_name),
        cmocka_unit_test(a_node_has_whole_gpus),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
