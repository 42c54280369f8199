/* ranks_test.c: who is rank 0, and who sits beside whom. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "trainer/state/ranks.h"

static void T03_ranks_are_grouped_by_node_in_the_order_first_met(void **state) {
    static const uint64_t met[] = {2, 3, 1, 4, 2, 1, 3, 3, 4, 2};
    static const uint64_t expected[] = {2, 2, 2, 3, 3, 3, 1, 1, 4, 4};
    trpi_rank_slot slots[10] = {{0}};
    for (size_t i = 0; i < 10; i++) {
        slots[i].node = met[i];
        slots[i].devices = "";
    }
    trpi_ranks_assign(slots, 10);
    uint64_t by_rank[10] = {0};
    for (size_t i = 0; i < 10; i++) {
        assert_in_range(slots[i].rank, 0, 9);
        assert_int_equal(by_rank[slots[i].rank], 0);
        by_rank[slots[i].rank] = slots[i].node;
    }
    assert_memory_equal(by_rank, expected, sizeof(expected));
    assert_int_equal(slots[0].node_rank, 0);
    assert_int_equal(slots[2].node_rank, 2);
    assert_int_equal(slots[3].local_world, 2);
    assert_int_equal(slots[9].local_rank, 2);
}

static void T03_workers_without_devices_keep_their_order(void **state) {
    trpi_rank_slot slots[3] = {{.node = 7, .devices = ""}, {.node = 7}, {.node = 7, .devices = ""}};
    trpi_ranks_assign(slots, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(slots[i].rank, i);
        assert_int_equal(slots[i].local_rank, i);
        assert_int_equal(slots[i].local_world, 3);
    }
}

static void expect_order(const char *first, const char *second) {
    trpi_rank_slot slots[2] = {{.node = 1, .devices = second}, {.node = 1, .devices = first}};
    trpi_ranks_assign(slots, 2);
    assert_int_equal(slots[1].rank, 0);
    assert_int_equal(slots[0].rank, 1);
}

static void T03_local_ranks_follow_the_lowest_device(void **state) {
    expect_order("0,2", "1,3");
    expect_order("3,0", "1,2");
}

static void T03_device_numbers_are_compared_as_numbers(void **state) {
    expect_order("9", "10");
    expect_order("009", "10");
    expect_order("8,10", "9,11");
}

static void T03_other_device_names_are_compared_as_text_behind_numbers(void **state) {
    expect_order("GPU-aa", "GPU-ab");
    expect_order("GPU-a", "GPU-aa");
    expect_order("7", "GPU-0");
    expect_order("GPU-0", "");
}

static void one_worker_is_rank_zero_of_everything(void **state) {
    trpi_rank_slot slot = {.node = 99, .devices = "5"};
    trpi_ranks_assign(&slot, 1);
    assert_int_equal(slot.rank, 0);
    assert_int_equal(slot.local_rank, 0);
    assert_int_equal(slot.local_world, 1);
    assert_int_equal(slot.node_rank, 0);
    trpi_ranks_assign(NULL, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(T03_ranks_are_grouped_by_node_in_the_order_first_met),
        cmocka_unit_test(T03_workers_without_devices_keep_their_order),
        cmocka_unit_test(T03_local_ranks_follow_the_lowest_device),
        cmocka_unit_test(T03_device_numbers_are_compared_as_numbers),
        cmocka_unit_test(T03_other_device_names_are_compared_as_text_behind_numbers),
        cmocka_unit_test(one_worker_is_rank_zero_of_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
