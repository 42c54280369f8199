/* safetensors.c: the dtypes. Writing is in safetensors_write.c, reading in safetensors_read.c. */
#include "trainer/ckpt/safetensors.h"

#include <string.h>
#include <troupe/device.h>

#include "core/base/hash.h"
#include "trainer/ckpt/safetensors_format.h"

_Static_assert((int)TRPI_STORED_F32 == (int)TRP_F32 && (int)TRPI_STORED_BF16 == (int)TRP_BF16 &&
                   (int)TRPI_STORED_F16 == (int)TRP_F16 && (int)TRPI_STORED_I32 == (int)TRP_I32,
               "a trp_dtype may be cast to a trpi_stored");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are written as memory is");

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {
#define X(name, bytes) {#name, bytes},
    TRPI_STORED_MAP(X)
#undef X
};

size_t trpi_stored_size(trpi_stored dtype) {
    return (unsigned)dtype < TRPI_STORED_COUNT ? dtypes[dtype].size : 0;
}

const char *trpi_stored_name(trpi_stored dtype) {
    return (unsigned)dtype < TRPI_STORED_COUNT ? dtypes[dtype].name : "?";
}

trp_code trpi_safe_header_sum(const void *header, size_t size, char *ret_digits, trp_error *err) {
    char digits[33];
    trpi_hasher *hasher = trpi_hasher_new();
    if (!hasher) {
        return trpi_fail(err, TRP_ENOMEM, "a checksum");
    }
    trpi_hasher_add(hasher, header, TRPI_SAFE_SUM_AT);
    trpi_hasher_add(hasher, TRPI_SAFE_NO_SUM, 32);
    trpi_hasher_add(hasher, (const char *)header + TRPI_SAFE_SUM_AT + 32,
                    size - TRPI_SAFE_SUM_AT - 32);
    trpi_hasher_hex(hasher, digits);
    trpi_hasher_free(hasher);
    memcpy(ret_digits, digits, 32);
    return TRP_OK;
}
