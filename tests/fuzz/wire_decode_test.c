/* wire_decode_test.c: the decoder survives any bytes, and what it accepts means one thing.
 *
 * As a test it mutates valid frames of every message (deterministic; the same seeds each time):
 *     wire_decode_test [ROUNDS [SEED]]
 * As a libFuzzer target, with seeds that the test writes:
 *     wire_decode_test --corpus DIR
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -DTROUPE_LIBFUZZER -D_GNU_SOURCE -I. \
 *         -Iinclude tests/fuzz/wire_decode_test.c $(find core/wire core/base -name '*.c') \
 *         $(pkg-config --libs msgpack libxxhash jansson uuid) -lm -o wire_fuzz
 *     ./wire_fuzz DIR */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire/codec.h"
#include "tests/fuzz/wire_samples.h"

/* What a frame may take of the arena: see trpi_decode(). */
#define ARENA_BYTES_MAX(frame_bytes) (16 * (frame_bytes) + 64)

static trp_code decode(trp_bytes frame, trpi_arena *arena, trpi_msg *msg, trp_error *err) {
    trp_code code = trpi_decode(frame, arena, msg, err);
    TRP_ASSERT(code == TRP_OK || code == TRP_EPROTOCOL);
    TRP_ASSERT(code == TRP_OK || (err->code == code && strlen(err->message) > 0));
    TRP_ASSERT(arena->total <= ARENA_BYTES_MAX(frame.size));
    return code;
}

/* Decodes; what is accepted must encode to a frame that decodes and encodes to the same bytes.
 * Returns whether it was accepted. */
static bool check(const void *data, size_t size) {
    static trpi_arena arena;
    static trp_buf first, second;
    trpi_msg msg;
    trp_error err;
    char line[512];
    trpi_msg_type type;
    uint64_t number;
    bool accepted = decode((trp_bytes){data, size}, &arena, &msg, &err) == TRP_OK;
    if (trpi_peek((trp_bytes){data, size}, &type, &number)) {
        TRP_ASSERT(strcmp(trpi_msg_name(type), "?") != 0);
    }
    if (accepted) {
        TRP_ASSERT(trpi_msg_invalid(&msg) == NULL);
        trpi_msg_print(&msg, line, sizeof(line));
        TRP_ASSERT(trpi_encode(&msg, &first, &err) == TRP_OK);
        TRP_ASSERT(first.size <= size); /* ours is the shortest encoding */
        TRP_ASSERT(decode(trp_buf_bytes(&first), &arena, &msg, &err) == TRP_OK);
        TRP_ASSERT(trpi_encode(&msg, &second, &err) == TRP_OK);
        TRP_ASSERT(first.size == second.size);
        TRP_ASSERT(memcmp(first.data, second.data, first.size) == 0);
    }
    trpi_arena_reset(&arena);
    return accepted;
}

#ifdef TROUPE_LIBFUZZER

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    (void)check(data, size);
    return 0;
}

#else

#define ROUNDS 1000000
#define SEEDS_EACH 8 /* valid frames of each message to start from */
#define MUTATIONS_MAX 6
#define FRAME_MAX_BYTES 8192

typedef struct frame {
    unsigned char data[FRAME_MAX_BYTES];
    size_t size;
} frame;

/* Tags of msgpack, and the borders of its lengths. */
static const unsigned char interesting[] = {
    0x00, 0x01, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xc3,
    0xc4, 0xc5, 0xc6, 0xc7, 0xca, 0xcb, 0xcc, 0xcd, 0xce, 0xcf, 0xd0, 0xd1, 0xd2,
    0xd3, 0xd4, 0xd9, 0xda, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xe0, 0xff,
};

static void insert_bytes(frame *f, size_t at, const unsigned char *data, size_t size) {
    if (f->size + size <= sizeof(f->data)) {
        memmove(f->data + at + size, f->data + at, f->size - at);
        memcpy(f->data + at, data, size);
        f->size += size;
    }
}

static void delete_bytes(frame *f, size_t at, size_t size) {
    size = TRPI_MIN(size, f->size - at);
    memmove(f->data + at, f->data + at + size, f->size - at - size);
    f->size -= size;
}

/* A length that the frame does not have, in front of what is there. */
static void lie_about_length(frame *f, size_t at, uint64_t draw) {
    static const unsigned char tags[] = {0xc4, 0xc5, 0xc6, 0xd9, 0xda, 0xdb, 0xdc, 0xdd};
    unsigned char header[5];
    uint32_t length = (uint32_t)draw >> (draw >> 32) % 32;
    header[0] = tags[(draw >> 40) % sizeof(tags)];
    for (int i = 0; i < 4; i++) {
        header[1 + i] = (unsigned char)(length >> (24 - 8 * i));
    }
    memcpy(f->data + at, header, TRPI_MIN(sizeof(header), f->size - at));
}

static void mutate(frame *f, const frame *other, uint64_t *random) {
    uint64_t draw = sample_next(random);
    if (f->size == 0) {
        *f = *other;
    }
    size_t at = sample_next(random) % f->size, from = sample_next(random) % other->size;
    size_t size = 1 + sample_next(random) % 16;
    unsigned char byte = interesting[draw % sizeof(interesting)];
    switch ((draw >> 32) % 9) {
    case 0:
        f->data[at] ^= (unsigned char)(1 << draw % 8);
        break;
    case 1:
        f->data[at] = byte;
        break;
    case 2:
        f->data[at] = (unsigned char)draw;
        break;
    case 3:
        insert_bytes(f, at, &byte, 1);
        break;
    case 4:
        delete_bytes(f, at, size);
        break;
    case 5:
        f->size = at;
        break;
    case 6:
        insert_bytes(f, at, other->data + from, TRPI_MIN(size, other->size - from));
        break;
    case 7:
        lie_about_length(f, at, draw);
        break;
    case 8: /* the front of one message and the rest of another */
        f->size = at;
        insert_bytes(f, at, other->data + from, other->size - from);
        break;
    }
}

static void valid_frame(size_t index, uint64_t seed, frame *out) {
    trpi_arena arena = {0};
    trp_buf encoded = {0};
    trpi_msg msg;
    do {
        sample_message(sample_types[index], seed, &arena, &msg);
        TRP_ASSERT(trpi_encode(&msg, &encoded, NULL) == TRP_OK);
        seed += 1000;
        trpi_arena_reset(&arena);
    } while (encoded.size > sizeof(out->data) / 2);
    memcpy(out->data, encoded.data, encoded.size);
    out->size = encoded.size;
    trp_buf_release(&encoded);
    trpi_arena_release(&arena);
}

static int write_corpus(const char *dir) {
    for (size_t i = 0; i < SAMPLE_TYPES; i++) {
        char path[4096];
        frame f;
        valid_frame(i, 0, &f);
        trpi_format(path, sizeof(path), "%s/%s", dir, trpi_msg_name(sample_types[i]));
        FILE *file = fopen(path, "wb");
        if (file == NULL || fwrite(f.data, 1, f.size, file) != f.size || fclose(file) != 0) {
            perror(path);
            return 1;
        }
    }
    return 0;
}

/* In memory of just its size, so that a sanitizer sees each byte read beyond the end. */
static bool check_exact(const frame *f) {
    unsigned char *copy = malloc(f->size > 0 ? f->size : 1);
    TRP_ASSERT(copy != NULL);
    memcpy(copy, f->data, f->size);
    bool accepted = check(copy, f->size);
    free(copy);
    return accepted;
}

static void fuzz(uint64_t rounds, uint64_t seed) {
    static frame seeds[SAMPLE_TYPES][SEEDS_EACH], mutated;
    uint64_t accepted = 0, random = seed;
    for (size_t i = 0; i < SAMPLE_TYPES; i++) {
        for (size_t k = 0; k < SEEDS_EACH; k++) {
            valid_frame(i, k, &seeds[i][k]);
            TRP_ASSERT(check_exact(&seeds[i][k]));
        }
    }
    for (uint64_t round = 0; round < rounds; round++) {
        size_t type = round % SAMPLE_TYPES;
        const frame *source = &seeds[type][sample_next(&random) % SEEDS_EACH];
        memcpy(mutated.data, source->data, source->size);
        mutated.size = source->size;
        for (uint64_t left = 1 + sample_next(&random) % MUTATIONS_MAX; left > 0; left--) {
            mutate(&mutated, &seeds[sample_next(&random) % SAMPLE_TYPES][left % SEEDS_EACH],
                   &random);
        }
        accepted += check_exact(&mutated);
    }
    printf("seed=%" PRIu64 " rounds=%" PRIu64 " accepted=%" PRIu64 "\n", seed, rounds, accepted);
    /* Both outcomes must be met, or the mutations test only one half. */
    TRP_ASSERT(rounds < 1000 || (accepted > rounds / 100 && accepted < rounds / 100 * 99));
}

int main(int argc, char **argv) {
    uint64_t rounds = ROUNDS, seed = 1;
    if (argc == 3 && strcmp(argv[1], "--corpus") == 0) {
        return write_corpus(argv[2]);
    }
    if ((argc > 1 && !trpi_parse_u64(argv[1], UINT64_MAX, &rounds)) ||
        (argc > 2 && !trpi_parse_u64(argv[2], UINT64_MAX, &seed))) {
        fprintf(stderr, "usage: %s [ROUNDS [SEED]] | --corpus DIR\n", argv[0]);
        return 2;
    }
    fuzz(rounds, seed);
    return 0;
}

#endif
