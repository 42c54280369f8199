#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/base/table.h"
#include "core/state/index.h"
#include "core/state/queue.h"

static void *value_of(uint64_t key) {
    return (void *)(uintptr_t)(key + 1);
}

static void a_walk_goes_in_order_of_the_keys(void **state) {
    static const uint64_t keys[] = {7, 3, 9, 1, 8, UINT64_MAX, 2};
    static const uint64_t sorted[] = {1, 2, 3, 7, 8, 9, UINT64_MAX};
    trpi_table table = {0};
    for (size_t i = 0; i < TRPI_COUNTOF(keys); i++) {
        trpi_table_put(&table, keys[i], &table);
    }
    uint64_t key = 0;
    for (size_t i = 0; i < TRPI_COUNTOF(sorted); i++) {
        assert_non_null(trpi_table_next(&table, &key));
        assert_int_equal(key, sorted[i]);
    }
    assert_null(trpi_table_next(&table, &key));
    trpi_table_release(&table);
}

static void a_table_may_change_under_a_walk(void **state) {
    trpi_table table = {0};
    uint64_t key = 0, seen = 0;
    for (uint64_t i = 1; i <= 100; i++) {
        trpi_table_put(&table, i, value_of(i));
    }
    while (trpi_table_next(&table, &key)) {
        (void)trpi_table_remove(&table, key);
        if (key % 2 == 0) {
            (void)trpi_table_remove(&table, key + 1);
        }
        seen++;
    }
    assert_int_equal(seen, 51); /* 1, and every even one */
    assert_int_equal(table.count, 0);
    assert_null(table.entries);
}

/* Against the plainest model there is: an array by key. */
static void any_order_of_puts_and_removals_agrees_with_a_plain_array(void **state) {
    enum { KEYS = 512 };
    bool there[KEYS] = {false};
    trpi_table table = {0};
    size_t count = 0;
    srand(1);
    for (int step = 0; step < 40000; step++) {
        uint64_t key = 1 + (uint64_t)rand() % (KEYS - 1);
        /* First mostly puts, then mostly removals, again and again: holes come and go. */
        if (rand() % 100 < ((step / 3000) % 2 ? 30 : 70)) {
            count += !there[key];
            there[key] = true;
            trpi_table_put(&table, key, value_of(key));
        } else {
            assert_ptr_equal(trpi_table_remove(&table, key), there[key] ? value_of(key) : NULL);
            count -= there[key];
            there[key] = false;
        }
        assert_int_equal(table.count, count);
        uint64_t probe = 1 + (uint64_t)rand() % (KEYS - 1), next = probe;
        assert_ptr_equal(trpi_table_get(&table, probe), there[probe] ? value_of(probe) : NULL);
        uint64_t wanted = probe + 1;
        while (wanted < KEYS && !there[wanted]) {
            wanted++;
        }
        void *found = trpi_table_next(&table, &next);
        assert_ptr_equal(found, wanted < KEYS ? value_of(wanted) : NULL);
    }
    trpi_table_release(&table);
}

static void an_index_walks_in_order_of_the_bytes(void **state) {
    static const char *const keys[] = {"run/b", "run/", "a", "run/a", "z"};
    trpi_index index = {0};
    void *value;
    for (size_t i = 0; i < TRPI_COUNTOF(keys); i++) {
        (void)trpi_index_put(&index, trp_bytes_of(keys[i]), (void *)(i + 1));
    }
    size_t at = trpi_index_seek(&index, trp_bytes_of("run/"));
    assert_string_equal(trpi_index_at(&index, at, &value), "run/");
    assert_string_equal(trpi_index_at(&index, at + 1, &value), "run/a");
    assert_ptr_equal(value, (void *)4);
    assert_string_equal(trpi_index_at(&index, at + 2, &value), "run/b");
    assert_string_equal(trpi_index_at(&index, at + 3, &value), "z");
    assert_null(trpi_index_at(&index, at + 4, &value));
    assert_ptr_equal(trpi_index_remove(&index, trp_bytes_of("run/a")), (void *)4);
    assert_null(trpi_index_get(&index, trp_bytes_of("run/a")));
    assert_null(trpi_index_remove(&index, trp_bytes_of("run/a")));
    assert_ptr_equal(trpi_index_get(&index, trp_bytes_of("run/b")), (void *)1);
    trpi_index_release(&index);
}

static void keys_of_an_index_may_hold_zeros(void **state) {
    trpi_index index = {0};
    (void)trpi_index_put(&index, (trp_bytes){"a\0b", 3}, (void *)1);
    (void)trpi_index_put(&index, (trp_bytes){"a\0c", 3}, (void *)2);
    (void)trpi_index_put(&index, (trp_bytes){"a", 1}, (void *)3);
    assert_int_equal(index.count, 3);
    assert_ptr_equal(trpi_index_get(&index, (trp_bytes){"a\0c", 3}), (void *)2);
    trpi_index_release(&index);
}

static void a_queue_asks_only_the_first_of_each_shape(void **state) {
    trpi_queue queue = {0};
    trp_bytes big = trp_bytes_of("big"), small = trp_bytes_of("small");
    size_t length;
    trpi_queue_push(&queue, 11, big);
    trpi_queue_push(&queue, 12, small);
    trpi_queue_push(&queue, 13, big);
    trpi_queue_push(&queue, 14, small);
    uint64_t ticket = 0;
    assert_int_equal(trpi_queue_next(&queue, &ticket, &length), 11);
    assert_int_equal(length, 2);
    assert_int_equal(trpi_queue_next(&queue, &ticket, &length), 12);
    assert_int_equal(trpi_queue_next(&queue, &ticket, &length), 0);
    assert_null(trpi_queue_check(&queue));
    trpi_queue_release(&queue);
}

static void who_leaves_a_queue_lets_the_next_of_his_line_have_his_turn(void **state) {
    trpi_queue queue = {0};
    trp_bytes one = trp_bytes_of("1"), two = trp_bytes_of("2");
    trpi_queue_push(&queue, 21, one);
    trpi_queue_push(&queue, 22, one);
    trpi_queue_push(&queue, 23, two);
    trpi_queue_push(&queue, 24, one);
    uint64_t ticket = 0, order[4], id;
    size_t count = 0;
    while ((id = trpi_queue_next(&queue, &ticket, NULL)) != 0) {
        assert_true(trpi_queue_remove(&queue, id));
        assert_false(trpi_queue_remove(&queue, id));
        assert_null(trpi_queue_check(&queue));
        order[count++] = id;
    }
    assert_int_equal(count, 4);
    assert_memory_equal(order, ((uint64_t[]){21, 22, 23, 24}), sizeof(order));
    assert_int_equal(trpi_queue_count(&queue), 0);
    trpi_queue_release(&queue);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_walk_goes_in_order_of_the_keys),
        cmocka_unit_test(a_table_may_change_under_a_walk),
        cmocka_unit_test(any_order_of_puts_and_removals_agrees_with_a_plain_array),
        cmocka_unit_test(an_index_walks_in_order_of_the_bytes),
        cmocka_unit_test(keys_of_an_index_may_hold_zeros),
        cmocka_unit_test(a_queue_asks_only_the_first_of_each_shape),
        cmocka_unit_test(who_leaves_a_queue_lets_the_next_of_his_line_have_his_turn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
