/* safetensors_format.h: what writer and reader of safetensors.h must agree on. */
#ifndef TRPI_SAFETENSORS_FORMAT_H
#define TRPI_SAFETENSORS_FORMAT_H

#include "core/base/base.h"

#define TRPI_SAFE_ALIGN 64
#define TRPI_SAFE_META_KEY "__metadata__"
#define TRPI_SAFE_SUM_KEY "xxh3" /* of the header; "xxh3.<name>" of a tensor */
#define TRPI_SAFE_NO_SUM "00000000000000000000000000000000"

/* Every header of ours starts so; the 32 digits of its checksum follow, and count as zeros in it.
 */
#define TRPI_SAFE_START "{\"__metadata__\":{\"xxh3\":\""
#define TRPI_SAFE_SUM_AT (sizeof TRPI_SAFE_START - 1)

/* Checksum of a header of at least TRPI_SAFE_SUM_AT + 32 bytes into 32 digits, without a NUL (so
 * that they can go straight into the header). */
TRP_CHECKED trp_code trpi_safe_header_sum(const void *header, size_t size, char *ret_digits,
                                          trp_error *err);

#endif
