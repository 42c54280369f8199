/* hash.c: xxHash's XXH3 in 64 and 128 bits. */
#include "core/base/hash.h"

#include <stdlib.h>
#include <xxhash.h>

struct trpi_hasher {
    XXH3_state_t *state; /* wants 64-byte alignment, which its own allocator gives */
};

uint64_t trpi_hash64(const void *data, size_t size) {
    return XXH3_64bits(size > 0 ? data : "", size);
}

trpi_hasher *trpi_hasher_new(void) {
    trpi_hasher *hasher = malloc(sizeof(*hasher));
    if (hasher == NULL) {
        return NULL;
    }
    hasher->state = XXH3_createState();
    if (hasher->state == NULL) {
        free(hasher);
        return NULL;
    }
    (void)XXH3_128bits_reset(hasher->state);
    return hasher;
}

void trpi_hasher_add(trpi_hasher *hasher, const void *data, size_t size) {
    if (size > 0) {
        (void)XXH3_128bits_update(hasher->state, data, size);
    }
}

void trpi_hasher_hex(const trpi_hasher *hasher, char ret_hex[33]) {
    static const char digits[] = "0123456789abcdef";
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hasher->state));
    for (size_t i = 0; i < sizeof(canonical.digest); i++) {
        ret_hex[2 * i] = digits[canonical.digest[i] >> 4];
        ret_hex[2 * i + 1] = digits[canonical.digest[i] & 15];
    }
    ret_hex[32] = '\0';
}

void trpi_hasher_free(trpi_hasher *hasher) {
    if (hasher != NULL) {
        (void)XXH3_freeState(hasher->state);
        free(hasher);
    }
}
