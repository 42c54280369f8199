/* pack.h: structs to bytes and back, by a description of their fields. Scalars are eight bytes,
 * little-endian; texts and bytes have their length in front, lists their count. Any bytes are safe
 * to unpack. Knows no message: messages.h does. Threads: any, no shared state. */
#ifndef TRPI_PACK_H
#define TRPI_PACK_H

#include "core/base/arena.h"
#include "core/base/base.h"

typedef enum trpi_field_kind {
    TRPI_FIELD_U64,
    TRPI_FIELD_I64,
    TRPI_FIELD_F64,
    TRPI_FIELD_BOOL,
    TRPI_FIELD_STR,
    TRPI_FIELD_BIN,
    TRPI_FIELD_LIST
} trpi_field_kind;

typedef struct trpi_layout trpi_layout;

typedef struct trpi_field {
    const char *name;
    trpi_field_kind kind;
    size_t offset;
    size_t count_offset;                 /* LIST: of its size_t */
    const trpi_layout *(*element)(void); /* LIST: what it is a list of */
} trpi_field;

struct trpi_layout {
    const char *name;
    size_t size; /* of the struct */
    const trpi_field *fields;
    size_t field_count;
};

/* Appends. TRP_ENOMEM. */
TRP_CHECKED trp_code trpi_pack(const trpi_layout *layout, const void *message, trp_buf *out,
                               trp_error *err);

/* Texts and lists live in the arena, BIN fields borrow from `bytes`: the message is valid as long
 * as both are. TRP_EPROTOCOL names the message and the field. */
TRP_CHECKED trp_code trpi_unpack(const trpi_layout *layout, trp_bytes bytes, trpi_arena *arena,
                                 void *ret_message, trp_error *err);

#endif
