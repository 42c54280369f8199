/* messages.h: the messages of messages.def as C structs, and how they become bytes and back. */
#ifndef TRPI_MESSAGES_H
#define TRPI_MESSAGES_H

#include "trainer/run/pack.h"

/* Texts are never NULL in an unpacked message (packing takes NULL as ""). Lists are a pointer and
 * `<name>_count`. */
#define U64(n) uint64_t n;
#define I64(n) int64_t n;
#define F64(n) double n;
#define BOOL(n) bool n;
#define STR(n) const char *n;
#define BIN(n) trp_bytes n;
#define LIST(type, n)                                                                              \
    struct trpi_run_##type *n;                                                                     \
    size_t n##_count;
#define STRUCT(name) typedef struct trpi_run_##name {
#define END_STRUCT(name)                                                                           \
    }                                                                                              \
    trpi_run_##name;
#define MESSAGE(name) STRUCT(name)
#define END_MESSAGE(name) END_STRUCT(name)
#include "trainer/run/messages.def"
#undef U64
#undef I64
#undef F64
#undef BOOL
#undef STR
#undef BIN
#undef LIST
#undef STRUCT
#undef END_STRUCT
#undef MESSAGE
#undef END_MESSAGE

/* trpi_pack_plan(&plan, out, err) and trpi_unpack_plan(bytes, arena, &plan, err), and so on for
 * every message: see trpi_pack() and trpi_unpack(). */
#define U64(n)
#define I64(n)
#define F64(n)
#define BOOL(n)
#define STR(n)
#define BIN(n)
#define LIST(type, n)
#define STRUCT(name)
#define END_STRUCT(name)
#define MESSAGE(name)                                                                              \
    TRP_CHECKED trp_code trpi_pack_##name(const trpi_run_##name *message, trp_buf *out,            \
                                          trp_error *err);                                         \
    TRP_CHECKED trp_code trpi_unpack_##name(trp_bytes bytes, trpi_arena *arena,                    \
                                            trpi_run_##name *ret_message, trp_error *err);
#define END_MESSAGE(name)
#include "trainer/run/messages.def"
#undef U64
#undef I64
#undef F64
#undef BOOL
#undef STR
#undef BIN
#undef LIST
#undef STRUCT
#undef END_STRUCT
#undef MESSAGE
#undef END_MESSAGE

#endif
