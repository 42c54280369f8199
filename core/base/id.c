/* id.c: random UUIDs (version 4) from libuuid, which asks the kernel each time: safe after fork. */
#include "core/base/id.h"

#include <string.h>
#include <uuid/uuid.h>

void trpi_uuid(char ret_text[TRPI_UUID_TEXT]) {
    uuid_t uuid;
    uuid_generate_random(uuid);
    uuid_unparse_lower(uuid, ret_text);
}

uint64_t trpi_random_u64(void) {
    uuid_t uuid;
    uint64_t halves[2];
    _Static_assert(sizeof(uuid) == sizeof(halves), "a UUID has 128 bits");
    uuid_generate_random(uuid);
    memcpy(halves, uuid, sizeof(halves));
    /* Version and variant are fixed bits, at different places of the halves: the sum is random. */
    return halves[0] ^ halves[1];
}
