/* msg.h: the messages of wire.def as C structs. No msgpack here: pure code may include this. */
#ifndef TRPI_MSG_H
#define TRPI_MSG_H

#include "core/base/base.h"

#define TRPI_WIRE_VERSION 2
#define TRPI_PHASE_UNKNOWN 255 /* ACTOR_STATE.phase of an actor that never was */

/* Strings are NUL-terminated and never NULL in a decoded message (an encoder takes NULL as "").
 * Lists are pointer + `<name>_count`. */
#define U64(n) uint64_t n;
#define I64(n) int64_t n;
#define BOOL(n) bool n;
#define STR(n) const char *n;
#define BIN(n) trp_bytes n;
#define LIST(type, n)                                                                              \
    struct trpi_##type *n;                                                                         \
    size_t n##_count;
#define STRUCT(name) typedef struct trpi_##name {
#define END_STRUCT(name)                                                                           \
    }                                                                                              \
    trpi_##name;
#define MESSAGE(NAME, name, number) typedef struct trpi_msg_##name {
#define END_MESSAGE(NAME, name)                                                                    \
    }                                                                                              \
    trpi_msg_##name;
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

typedef enum trpi_msg_type {
#define MESSAGE(NAME, name, number) TRPI_MSG_##NAME = number,
#include "core/wire/wire.def"
#undef MESSAGE
} trpi_msg_type;

typedef struct trpi_msg {
    trpi_msg_type type;
    union {
#define MESSAGE(NAME, name, number) trpi_msg_##name name;
#include "core/wire/wire.def"
#undef MESSAGE
    };
} trpi_msg;

#include "core/wire/wire_end.def"

/* Whether a decoded message's own rules hold (lists that must have one element, enums in range):
 * NULL, or the reason. */
const char *trpi_msg_invalid(const trpi_msg *msg);

const char *trpi_msg_name(trpi_msg_type type); /* "SPAWN"; "?" for none */

#endif
