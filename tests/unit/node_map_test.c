#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "actors/proc/node_map.h"

#define KEYS 3000

static uint64_t next_random(uint64_t *seed) {
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return *seed >> 33;
}

static void a_map_agrees_with_an_array_after_any_changes(void **state) {
    static char things[KEYS + 1];
    static void *model[KEYS + 1];
    trpi_map map = {0};
    uint64_t seed = 42;
    size_t count = 0;
    for (int round = 0; round < 60000; round++) {
        uint64_t key = 1 + next_random(&seed) % KEYS;
        if (next_random(&seed) % 2) {
            count += model[key] == NULL;
            model[key] = &things[next_random(&seed) % KEYS];
            trpi_map_set(&map, key, model[key]);
        } else {
            count -= model[key] != NULL;
            model[key] = NULL;
            trpi_map_remove(&map, key);
        }
        uint64_t probe = 1 + next_random(&seed) % KEYS;
        assert_ptr_equal(trpi_map_get(&map, probe), model[probe]);
        assert_int_equal(map.count, count);
    }
    for (uint64_t key = 1; key <= KEYS; key++) {
        assert_ptr_equal(trpi_map_get(&map, key), model[key]);
    }
    trpi_map_release(&map);
}

static void a_walk_sees_each_value_once(void **state) {
    static char things[500];
    trpi_map map = {0};
    int seen[500] = {0};
    for (uint64_t key = 1; key <= 500; key++) {
        trpi_map_set(&map, key * 4096, &things[key - 1]);
    }
    size_t cursor = 0;
    char *thing;
    while ((thing = trpi_map_next(&map, &cursor)) != NULL) {
        seen[thing - things]++;
    }
    for (int i = 0; i < 500; i++) {
        assert_int_equal(seen[i], 1);
    }
    trpi_map_release(&map);
}

static void an_empty_map_has_nothing(void **state) {
    trpi_map map = {0};
    size_t cursor = 0;
    assert_null(trpi_map_get(&map, 1));
    assert_null(trpi_map_next(&map, &cursor));
    trpi_map_remove(&map, 1);
    trpi_map_release(&map);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_map_agrees_with_an_array_after_any_changes),
        cmocka_unit_test(a_walk_sees_each_value_once),
        cmocka_unit_test(an_empty_map_has_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
