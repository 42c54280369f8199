/* shuffle.c: a permutation of [0, count) that is computed, not stored.
 *
 * A Feistel network permutes [0, 2^b), whatever its round function is, since each round can be
 * undone. With 2^b the smallest even power of two that holds count, indices that land outside are
 * sent through it again until they are inside (cycle walking): that is again a permutation, and
 * takes fewer than four passes on average. Black, Rogaway: Ciphers with Arbitrary Finite Domains,
 * CT-RSA 2002. */
#include <troupe/data.h>

#include "core/base/base.h"

enum { ROUNDS = 8 };

/* The finalizer of splitmix64: every input bit reaches every output bit. */
static uint64_t mix(uint64_t x) {
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    x ^= x >> 31;
    return x;
}

static uint64_t feistel(uint64_t key, unsigned half_bits, uint64_t value) {
    uint64_t mask = (UINT64_C(1) << half_bits) - 1;
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        uint64_t next = left ^ (mix(right + mix(key + round)) & mask);
        left = right;
        right = next;
    }
    return left << half_bits | right;
}

uint64_t trp_shuffle(uint64_t seed, uint64_t epoch, uint64_t count, uint64_t index) {
    TRP_ASSERT(index < count);
    unsigned half_bits = 1;
    while (half_bits < 32 && (count - 1) >> (2 * half_bits) != 0) {
        half_bits++;
    }
    uint64_t key = mix(mix(seed + UINT64_C(0x9e3779b97f4a7c15)) + epoch);
    do {
        index = feistel(key, half_bits, index);
    } while (index >= count);
    return index;
}
