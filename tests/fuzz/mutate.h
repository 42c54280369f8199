/* mutate.h: damage to a text, drawn from a seed. Bytes are flipped, cut, doubled and moved, and
 * digits and words that a parser of JSON cares about are put in, so that most results still parse.
 */
#ifndef TEST_MUTATE_H
#define TEST_MUTATE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct mutator {
    uint64_t state;
} mutator;

static uint64_t mutator_next(mutator *m) {
    m->state += UINT64_C(0x9e3779b97f4a7c15);
    uint64_t x = m->state;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static size_t mutator_below(mutator *m, size_t end) {
    return end ? (size_t)(mutator_next(m) % end) : 0;
}

/* Replaces `cut` bytes at `at` by `size` others; what does not fit into `capacity` is left. */
static size_t mutate_splice(unsigned char *data, size_t length, size_t capacity, size_t at,
                            size_t cut, const void *put, size_t size) {
    if (length - cut + size > capacity) {
        return length;
    }
    memmove(data + at + size, data + at + cut, length - at - cut);
    memcpy(data + at, put, size);
    return length - cut + size;
}

/* One change; returns the new length. */
static size_t mutate_once(mutator *m, unsigned char *data, size_t length, size_t capacity) {
    static const char *const words[] = {"0",
                                        "-1",
                                        "1e3",
                                        "9223372036854775807",
                                        "18446744073709551616",
                                        "4294967296",
                                        "\"",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        ",",
                                        ":",
                                        "null",
                                        "true",
                                        "\\u0000",
                                        "\"a\":",
                                        "[0,8]",
                                        "[]",
                                        "{}",
                                        "\xff",
                                        "F32",
                                        "../",
                                        "\"rank\":7,"};
    unsigned char piece[64];
    size_t at = mutator_below(m, length), left = length - at;
    size_t some = mutator_below(m, (left < sizeof piece ? left : sizeof piece) + 1);
    const char *word = words[mutator_below(m, sizeof words / sizeof *words)];
    switch (mutator_below(m, 7)) {
    case 0:
        if (length > 0) {
            data[at] ^= (unsigned char)(1u << mutator_below(m, 8));
        }
        return length;
    case 1:
        if (length > 0) {
            data[at] = (unsigned char)mutator_next(m);
        }
        return length;
    case 2: /* cut */
        return mutate_splice(data, length, capacity, at, some, "", 0);
    case 3: /* copy somewhere else */
        memcpy(piece, data + at, some);
        return mutate_splice(data, length, capacity, mutator_below(m, length + 1), 0, piece, some);
    case 4: /* a digit for a digit */
        for (size_t i = 0; i < left; i++) {
            if (data[at + i] >= '0' && data[at + i] <= '9') {
                data[at + i] = (unsigned char)('0' + mutator_below(m, 10));
                break;
            }
        }
        return length;
    case 5: /* cut the end off */
        return mutator_below(m, 8) == 0 ? at : length;
    default:
        return mutate_splice(data, length, capacity, at, some % 4 <= left ? some % 4 : 0, word,
                             strlen(word));
    }
}

static size_t mutate(mutator *m, unsigned char *data, size_t length, size_t capacity) {
    for (size_t times = 1 + mutator_below(m, 4); times > 0; times--) {
        length = mutate_once(m, data, length, capacity);
    }
    return length;
}

/* TROUPE_FUZZ_SEED replays a run; TROUPE_FUZZ_ROUNDS makes it longer. */
static uint64_t fuzz_setting(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

#endif
