#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/state/resources.h"

static trpi_resource_names names;

static int set_up(void **state) {
    trpi_resource_names_init(&names);
    return 0;
}

static int tear_down(void **state) {
    trpi_resource_names_release(&names);
    return 0;
}

static trpi_request ask(int64_t cpu, int64_t gpu) {
    trpi_resource list[] = {{"gpu", gpu}, {"cpu", cpu}};
    trpi_request request = {0};
    assert_int_equal(trpi_request_parse(&names, list, 2, &request, NULL), TRP_OK);
    return request;
}

static trpi_pool node(int64_t cpu, int64_t gpu) {
    trpi_request has = ask(cpu, gpu);
    trpi_pool pool;
    trpi_pool_init(&pool, &has);
    trpi_request_release(&has);
    return pool;
}

static void refused(trpi_resource resource, const char *words) {
    trpi_request request = {0};
    trp_error err = {0};
    assert_int_equal(trpi_request_parse(&names, &resource, 1, &request, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, words));
    assert_null(request.amounts);
}

static void a_request_that_makes_no_sense_is_refused_with_its_reason(void **state) {
    refused((trpi_resource){"cpu", -1}, "out of range");
    refused((trpi_resource){"cpu", INT64_MAX}, "out of range");
    refused((trpi_resource){"gpu", 15000}, "1.5 gpu: above 1 it must be a whole number");
    refused((trpi_resource){"", 1}, "a name has 1 to 64 bytes");
    trpi_resource twice[] = {{"cpu", 1}, {"cpu", 2}};
    trpi_request request = {0};
    trp_error err = {0};
    assert_int_equal(trpi_request_parse(&names, twice, 2, &request, &err), TRP_EINVALID);
    assert_non_null(strstr(err.message, "cpu is named twice"));
}

static void amounts_are_written_without_trailing_zeros(void **state) {
    static const struct {
        int64_t amount;
        const char *text;
    } cases[] = {{0, "0"}, {1, "0.0001"}, {5000, "0.5"}, {20000, "2"}, {12500, "1.25"}};
    for (size_t i = 0; i < TRPI_COUNTOF(cases); i++) {
        char text[32];
        trpi_amount_text(cases[i].amount, text, sizeof(text));
        assert_string_equal(text, cases[i].text);
    }
    trpi_request request = ask(20000, 5000);
    char text[64];
    trpi_request_text(&request, &names, text, sizeof(text));
    assert_string_equal(text, "2 cpu, 0.5 gpu");
    trpi_request_release(&request);
}

static void A25_fractions_fill_one_device_before_the_next(void **state) {
    trpi_pool pool = node(0, 30000);
    trpi_request half = ask(0, 5000);
    trpi_grant grants[3] = {0};
    static const uint32_t devices[] = {0, 0, 1};
    for (size_t i = 0; i < 3; i++) {
        assert_true(trpi_pool_take(&pool, &half, &grants[i]));
        assert_int_equal(grants[i].part_count, 1);
        assert_int_equal(grants[i].parts[0].device, devices[i]);
        assert_null(trpi_pool_check(&pool));
    }
    /* 1.5 are free, but only one device is whole. */
    assert_int_equal(trpi_pool_free(&pool, TRPI_GPU), 15000);
    trpi_request two = ask(0, 20000);
    assert_false(trpi_pool_fits(&pool, &two));
    for (size_t i = 0; i < 3; i++) {
        trpi_pool_give(&pool, &half, &grants[i]);
    }
    assert_true(trpi_pool_unused(&pool));
    assert_true(trpi_pool_fits(&pool, &two));
    trpi_request_release(&half);
    trpi_request_release(&two);
    trpi_pool_release(&pool);
}

static void A25_ten_thousand_takes_and_gives_of_a_tenth_leave_exactly_what_was(void **state) {
    trpi_pool pool = node(40000, 10000);
    trpi_request tenth = ask(1000, 1000);
    trpi_grant grants[10] = {0};
    for (int round = 0; round < 1000; round++) {
        for (size_t i = 0; i < 10; i++) {
            assert_true(trpi_pool_take(&pool, &tenth, &grants[i]));
        }
        trpi_grant none = {0};
        assert_false(trpi_pool_take(&pool, &tenth, &none));
        for (size_t i = 0; i < 10; i++) {
            trpi_pool_give(&pool, &tenth, &grants[(i * 7 + (size_t)round) % 10]);
        }
    }
    assert_int_equal(trpi_pool_free(&pool, TRPI_CPU), 40000);
    assert_int_equal(trpi_pool_free(&pool, TRPI_GPU), 10000);
    assert_null(trpi_pool_check(&pool));
    trpi_request_release(&tenth);
    trpi_pool_release(&pool);
}

static void a_whole_gpu_is_a_device_that_nobody_else_holds(void **state) {
    trpi_pool pool = node(0, 20000);
    trpi_request tiny = ask(0, 1), one = ask(0, 10000);
    trpi_grant a = {0}, b = {0}, c = {0};
    assert_true(trpi_pool_take(&pool, &tiny, &a));
    assert_true(trpi_pool_take(&pool, &one, &b));
    assert_int_equal(b.parts[0].device, 1);
    assert_false(trpi_pool_take(&pool, &one, &c));
    trpi_pool_give(&pool, &tiny, &a);
    assert_true(trpi_pool_take(&pool, &one, &c));
    assert_int_equal(c.parts[0].device, 0);
    trpi_grant_drop(&b);
    trpi_grant_drop(&c);
    trpi_request_release(&tiny);
    trpi_request_release(&one);
    trpi_pool_release(&pool);
}

static void a_bundle_is_a_pool_of_the_very_devices_it_was_granted(void **state) {
    trpi_pool pool = node(80000, 40000);
    trpi_request first = ask(10000, 10000), bundle = ask(20000, 20000), one = ask(10000, 10000);
    trpi_grant before = {0}, grant = {0}, a = {0}, b = {0}, c = {0};
    trpi_pool inner;
    assert_true(trpi_pool_take(&pool, &first, &before));
    assert_true(trpi_pool_take(&pool, &bundle, &grant));
    trpi_pool_init_from_grant(&inner, &bundle, &grant);
    assert_true(trpi_pool_take(&inner, &one, &a));
    assert_true(trpi_pool_take(&inner, &one, &b));
    assert_false(trpi_pool_take(&inner, &one, &c));
    assert_int_equal(a.parts[0].device, 1);
    assert_int_equal(b.parts[0].device, 2);
    assert_null(trpi_pool_check(&inner));
    trpi_pool_give(&inner, &one, &a);
    trpi_pool_give(&inner, &one, &b);
    assert_true(trpi_pool_unused(&inner));
    trpi_pool_give(&pool, &bundle, &grant);
    trpi_pool_give(&pool, &first, &before);
    assert_true(trpi_pool_unused(&pool));
    trpi_request_release(&first);
    trpi_request_release(&bundle);
    trpi_request_release(&one);
    trpi_pool_release(&inner);
    trpi_pool_release(&pool);
}

static void what_asks_for_nothing_fits_everywhere_and_still_counts(void **state) {
    trpi_pool pool = node(0, 0);
    trpi_request nothing = ask(0, 0);
    trpi_grant grant = {0};
    assert_int_equal(nothing.count, 0);
    assert_true(trpi_pool_take(&pool, &nothing, &grant));
    assert_true(grant.held);
    trpi_pool_give(&pool, &nothing, &grant);
    assert_false(grant.held);
    trpi_request_release(&nothing);
    trpi_pool_release(&pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_request_that_makes_no_sense_is_refused_with_its_reason),
        cmocka_unit_test(amounts_are_written_without_trailing_zeros),
        cmocka_unit_test(A25_fractions_fill_one_device_before_the_next),
        cmocka_unit_test(A25_ten_thousand_takes_and_gives_of_a_tenth_leave_exactly_what_was),
        cmocka_unit_test(a_whole_gpu_is_a_device_that_nobody_else_holds),
        cmocka_unit_test(a_bundle_is_a_pool_of_the_very_devices_it_was_granted),
        cmocka_unit_test(what_asks_for_nothing_fits_everywhere_and_still_counts),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
