/* wire_samples.h: a valid message of every type with contents drawn from a seed, made from
 * wire.def. Included by the tests of the codec; everything is static. */
#ifndef TESTS_WIRE_SAMPLES_H
#define TESTS_WIRE_SAMPLES_H

#include <string.h>

#include "core/base/arena.h"
#include "core/wire/msg.h"

/* splitmix64: every seed is a good one. */
static uint64_t sample_next(uint64_t *random) {
    uint64_t z = (*random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool sample_named(const char *field, const char *name) {
    return strcmp(field, name) == 0;
}

/* All widths that a number can have on the wire; small where trpi_msg_invalid() wants it. */
static uint64_t sample_u64(uint64_t *random, const char *field) {
    static const uint64_t edges[] = {0,         1,          127,       128,        255,
                                     256,       65535,      65536,     UINT32_MAX, 1ull << 32,
                                     INT64_MAX, 1ull << 63, UINT64_MAX};
    uint64_t draw = sample_next(random);
    if (sample_named(field, "code") || sample_named(field, "cause") ||
        sample_named(field, "phase") || sample_named(field, "strategy")) {
        return draw % 4;
    }
    if (sample_named(field, "restart") || sample_named(field, "schedule") ||
        sample_named(field, "policy")) {
        return draw % 2;
    }
    return draw % 2 == 0 ? sample_next(random) >> (draw >> 8) % 64
                         : edges[(draw >> 8) % TRPI_COUNTOF(edges)];
}

static int64_t sample_i64(uint64_t *random, const char *field) {
    static const int64_t edges[] = {0,      -1,  -32, -33,       -128,      -129,     -32768,
                                    -32769, 127, 128, INT32_MIN, INT64_MIN, INT64_MAX};
    uint64_t draw = sample_next(random);
    int64_t value = edges[draw % TRPI_COUNTOF(edges)];
    return sample_named(field, "amount") && value < 0 ? 10000 : value;
}

static const char *sample_str(uint64_t *random, const char *field, trpi_arena *arena) {
    static const size_t sizes[] = {0, 1, 5, 31, 32, 33, 255, 256, 300};
    char text[301];
    size_t size = sizes[sample_next(random) % TRPI_COUNTOF(sizes)];
    if (size == 0 && sample_named(field, "name")) {
        size = 3;
    }
    for (size_t i = 0; i < size; i++) {
        text[i] = (char)(1 + sample_next(random) % 255);
    }
    return trpi_arena_text(arena, text, size);
}

static trp_bytes sample_bin(uint64_t *random, trpi_arena *arena) {
    static const size_t sizes[] = {0, 1, 16, 255, 256, 1000};
    size_t size = sizes[sample_next(random) % TRPI_COUNTOF(sizes)];
    unsigned char *data = trpi_arena_alloc(arena, size + 1);
    for (size_t i = 0; i < size; i++) {
        data[i] = (unsigned char)sample_next(random);
    }
    return (trp_bytes){data, size};
}

static size_t sample_count(uint64_t *random, const char *field) {
    return sample_named(field, "death") ? 1 : sample_next(random) % 4;
}

#define U64(n) out->n = sample_u64(random, #n);
#define I64(n) out->n = sample_i64(random, #n);
#define BOOL(n) out->n = sample_next(random) % 2 == 0;
#define STR(n) out->n = sample_str(random, #n, arena);
#define BIN(n) out->n = sample_bin(random, arena);
#define LIST(type, n)                                                                              \
    out->n##_count = sample_count(random, #n);                                                     \
    out->n = trpi_arena_alloc(arena, out->n##_count * sizeof(*out->n));                            \
    for (size_t i = 0; i < out->n##_count; i++) {                                                  \
        sample_##type(random, arena, &out->n[i]);                                                  \
    }
#define STRUCT(name)                                                                               \
    static void sample_##name(uint64_t *random, trpi_arena *arena, trpi_##name *out) {
#define END_STRUCT(name) }
#define MESSAGE(NAME, name, number)                                                                \
    static void sample_msg_##name(uint64_t *random, trpi_arena *arena, trpi_msg_##name *out) {
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

static const trpi_msg_type sample_types[] = {
#define MESSAGE(NAME, name, number) TRPI_MSG_##NAME,
#include "core/wire/wire.def"
#undef MESSAGE
};
#define SAMPLE_TYPES TRPI_COUNTOF(sample_types)

/* The message lives as long as the arena. */
static void sample_message(trpi_msg_type type, uint64_t seed, trpi_arena *arena, trpi_msg *out) {
    uint64_t random = seed;
    memset(out, 0, sizeof(*out));
    out->type = type;
    switch (type) {
#define MESSAGE(NAME, name, number)                                                                \
    case TRPI_MSG_##NAME:                                                                          \
        sample_msg_##name(&random, arena, &out->name);                                             \
        break;
#include "core/wire/wire.def"
#undef MESSAGE
    }
}

#include "core/wire/wire_end.def"

#endif
