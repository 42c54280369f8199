/* cluster_fuzz_test.c: the head's machine hears anything that the decoder lets through: from whom
 * has said hello and from strangers, with numbers near those in use, with amounts and times of any
 * size, in any order. Its invariants hold after each word. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/wire/codec.h"
#include "tests/fuzz/wire_samples.h"
#include "tests/lib/machine.h"

enum { LIVES = 300, WORDS = 400, PEERS = 8, IDS = 9 };

static uint64_t dice;

static uint64_t below(uint64_t end) {
    return sample_next(&dice) % end;
}

/* ---- Contents: as drawn by wire_samples.h, or such as a cluster has ---- */

static const char *some_text(const char *field, const char *otherwise) {
    static const char *const words[] = {"",       "counter", "driver", "worker",
                                        "here",   "name",    "zone",   "zone=a",
                                        "uuid-1", "uuid-2",  "nodes",  "127.0.0.1"};
    static const char *const names[] = {"cpu", "cpu", "gpu", "memory", "disk", "one", "two"};
    if (strcmp(field, "version") == 0) {
        return TROUPE_VERSION;
    }
    if (below(4) == 0) {
        return otherwise;
    }
    return strcmp(field, "name") == 0 ? names[below(TRPI_COUNTOF(names))]
                                      : words[below(TRPI_COUNTOF(words))];
}

static uint64_t some_number(uint64_t otherwise) {
    return below(4) == 0 ? otherwise : below(IDS);
}

static int64_t some_amount(const char *field, int64_t otherwise) {
    if (below(8) == 0) {
        return otherwise;
    }
    return strcmp(field, "amount") == 0 ? (int64_t)below(5) * 5000 : (int64_t)below(4) - 1;
}

#define U64(n) out->n = some_number(out->n);
#define I64(n) out->n = some_amount(#n, out->n);
#define BOOL(n)
#define STR(n) out->n = some_text(#n, out->n);
#define BIN(n)
#define LIST(type, n)                                                                              \
    for (size_t i = 0; i < out->n##_count; i++) {                                                  \
        tame_##type(&out->n[i]);                                                                   \
    }
#define STRUCT(name) static void tame_##name(trpi_##name *out) {
#define END_STRUCT(name) }
#define MESSAGE(NAME, name, number) static void tame_msg_##name(trpi_msg_##name *out) {
#define END_MESSAGE(NAME, name) }
#include "core/wire/wire.def"
#include "core/wire/wire_end.def"

#define U64(n)
#define I64(n)
#define BOOL(n)
#define STR(n)
#define BIN(n)
#define LIST(type, n)
#define STRUCT(name)
#define END_STRUCT(name)
#define END_MESSAGE(NAME, name)

static void tame(trpi_msg *msg) {
    switch (msg->type) {
#define MESSAGE(NAME, name, number)                                                                \
    case TRPI_MSG_##NAME:                                                                          \
        tame_msg_##name(&msg->name);                                                               \
        break;
#include "core/wire/wire.def"
#undef MESSAGE
    }
}

/* ---- The machine ---- */

static void say_anything(trpi_arena *arena) {
    trpi_msg msg;
    sample_message(sample_types[below(SAMPLE_TYPES)], sample_next(&dice), arena, &msg);
    tame(&msg);
    if (trpi_msg_invalid(&msg) == NULL) {
        machine_tell(1 + below(PEERS), &msg);
    }
    trpi_arena_reset(arena);
}

/* One life of a head, with two nodes and two clients that say what they should, and then
 * whatever. */
static void live(trpi_arena *arena) {
    (void)machine_node(NODE_A, 4, 2);
    (void)machine_node(NODE_B, 2, 0);
    (void)machine_client(5, "driver", 0, 0);
    (void)machine_client(6, "driver", 0, 0);
    for (int i = 0; i < 4; i++) {
        trpi_msg msg = machine_spawn(1, i % 2, -1);
        (void)machine_spawned(5, &msg);
    }
    for (int i = 0; i < WORDS; i++) {
        say_anything(arena);
        if (below(16) == 0) {
            machine.now_ns += below(below(8) == 0 ? 20000 : 300) * MS;
            machine_event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
        }
    }
}

/* As for the other fuzzers: mutate.h. */
static uint64_t setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void a_head_survives_what_anybody_says(void **state) {
    trpi_arena arena = {0};
    uint64_t lives = setting("TROUPE_FUZZ_ROUNDS", LIVES);
    dice = setting("TROUPE_FUZZ_SEED", 1);
    for (uint64_t i = 0; i < lives; i++) {
        (void)machine_set_up(NULL);
        live(&arena);
        (void)machine_tear_down(NULL);
        memset(&machine, 0, sizeof(machine));
    }
    trpi_arena_release(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_head_survives_what_anybody_says)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
