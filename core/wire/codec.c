/* codec.c: encoder and decoder of every message, made from wire.def.
 *
 * Encoding goes through msgpack-c's packer, decoding through reader.h. */
#include "core/wire/codec.h"

#include <inttypes.h>
#include <msgpack.h>
#include <string.h>

#include "core/wire/reader.h"

/* ---- How many fields each struct and message has ---- */

#define U64(n) +1
#define I64(n) +1
#define BOOL(n) +1
#define STR(n) +1
#define BIN(n) +1
#define LIST(type, n) +1
/* clang-format off */
#define STRUCT(name) enum { FIELDS_##name = 0
#define END_STRUCT(name) };
#define MESSAGE(NAME, name, number) enum { FIELDS_msg_##name = 0
#define END_MESSAGE(NAME, name) };
/* clang-format on */
#include "core/wire/wire.def"
#include "core/wire/wire_end.def"

#define HEAD_FIELDS 2 /* version and number, in front of a message's own */

/* ---- Encoding ---- */

#define ROOM_BYTES 256 /* at first: most messages fit, and are appended without asking for more */

/* Called for each number and text, a few bytes at a time. */
static int append_packed(void *data, const char *bytes, size_t size) {
    trp_buf *out = data;
    if (out->capacity - out->size > size || trp_buf_reserve(out, size) == TRP_OK) {
        memcpy(out->data + out->size, bytes, size);
        out->size += size;
        return 0;
    }
    return -1;
}

/* A length is 32 bits on the wire; nothing of ours comes near it. */
static bool fits(size_t size) {
    return size <= UINT32_MAX;
}

static bool pack_str(msgpack_packer *out, const char *text) {
    size_t size = text != NULL ? strlen(text) : 0;
    return fits(size) && msgpack_pack_str(out, size) == 0 &&
           (size == 0 || msgpack_pack_str_body(out, text, size) == 0);
}

static bool pack_bin(msgpack_packer *out, trp_bytes bytes) {
    return fits(bytes.size) && msgpack_pack_bin(out, bytes.size) == 0 &&
           (bytes.size == 0 || msgpack_pack_bin_body(out, bytes.data, bytes.size) == 0);
}

static bool pack_bool(msgpack_packer *out, bool value) {
    return (value ? msgpack_pack_true(out) : msgpack_pack_false(out)) == 0;
}

static bool pack_array(msgpack_packer *out, size_t count) {
    return fits(count) && msgpack_pack_array(out, count) == 0;
}

#define PACK(call)                                                                                 \
    if (!(call)) {                                                                                 \
        return false;                                                                              \
    }
#define U64(n) PACK(msgpack_pack_uint64(out, in->n) == 0)
#define I64(n) PACK(msgpack_pack_int64(out, in->n) == 0)
#define BOOL(n) PACK(pack_bool(out, in->n))
#define STR(n) PACK(pack_str(out, in->n))
#define BIN(n) PACK(pack_bin(out, in->n))
#define LIST(type, n)                                                                              \
    PACK(pack_array(out, in->n##_count))                                                           \
    for (size_t i = 0; i < in->n##_count; i++) {                                                   \
        PACK(encode_##type(out, &in->n[i]))                                                        \
    }
#define STRUCT(name)                                                                               \
    static bool encode_##name(msgpack_packer *out, const trpi_##name *in) {                        \
        PACK(pack_array(out, FIELDS_##name))
#define END_STRUCT(name)                                                                           \
    return true;                                                                                   \
    }
#define MESSAGE(NAME, name, number)                                                                \
    static bool encode_msg_##name(msgpack_packer *out, const trpi_msg_##name *in) {                \
        PACK(pack_array(out, HEAD_FIELDS + FIELDS_msg_##name))                                     \
        PACK(msgpack_pack_uint32(out, TRPI_WIRE_VERSION) == 0)                                     \
        PACK(msgpack_pack_uint32(out, number) == 0)
#define END_MESSAGE(NAME, name)                                                                    \
    return true;                                                                                   \
    }
#include "core/wire/wire.def"
#undef PACK
#include "core/wire/wire_end.def"

/* ---- Decoding ---- */

static size_t left(const trpi_reader *in) {
    return (size_t)(in->end - in->at);
}

static bool expect_array(trpi_reader *in, uint64_t count) {
    uint64_t found;
    if (!trpi_read_array(in, &found)) {
        return false;
    }
    return found == count || trpi_read_refuse(in, "another number of fields");
}

#define READ(n, call)                                                                              \
    if (!(call)) {                                                                                 \
        return trpi_read_blame(in, #n);                                                            \
    }
#define U64(n) READ(n, trpi_read_u64(in, &out->n))
#define I64(n) READ(n, trpi_read_i64(in, &out->n))
#define BOOL(n) READ(n, trpi_read_bool(in, &out->n))
#define STR(n) READ(n, trpi_read_str(in, &out->n))
#define BIN(n) READ(n, trpi_read_bin(in, &out->n))
#define LIST(type, n) READ(n, decode_list_##type(in, &out->n, &out->n##_count))
#define STRUCT(name)                                                                               \
    static bool decode_##name(trpi_reader *in, trpi_##name *out) {                                 \
        if (!expect_array(in, FIELDS_##name)) {                                                    \
            return false;                                                                          \
        }
#define END_STRUCT(name)                                                                           \
    return true;                                                                                   \
    }                                                                                              \
    static bool decode_list_##name(trpi_reader *in, trpi_##name **ret_list, size_t *ret_count) {   \
        void *memory;                                                                              \
        if (!trpi_read_list(in, 1 + FIELDS_##name, sizeof(trpi_##name), &memory, ret_count)) {     \
            return false;                                                                          \
        }                                                                                          \
        *ret_list = memory;                                                                        \
        for (size_t i = 0; i < *ret_count; i++) {                                                  \
            if (!decode_##name(in, &(*ret_list)[i])) {                                             \
                return false;                                                                      \
            }                                                                                      \
        }                                                                                          \
        return true;                                                                               \
    }
#define MESSAGE(NAME, name, number)                                                                \
    static bool decode_msg_##name(trpi_reader *in, trpi_msg_##name *out) {
#define END_MESSAGE(NAME, name)                                                                    \
    return true;                                                                                   \
    }
#include "core/wire/wire.def"
#undef READ
#include "core/wire/wire_end.def"

/* ---- By type ---- */

#define U64(n)
#define I64(n)
#define BOOL(n)
#define STR(n)
#define BIN(n)
#define LIST(type, n)
#define STRUCT(name)
#define END_STRUCT(name)
#define END_MESSAGE(NAME, name)

static bool encode_message(msgpack_packer *out, const trpi_msg *msg) {
    switch (msg->type) {
#define MESSAGE(NAME, name, number)                                                                \
    case TRPI_MSG_##NAME:                                                                          \
        return encode_msg_##name(out, &msg->name);
#include "core/wire/wire.def"
#undef MESSAGE
    }
    TRP_ASSERT(!"a message of a type that exists");
    return false;
}

/* How many fields come behind version and number; -1 for a number that is no message. */
static int field_count(uint64_t number) {
    switch (number) {
#define MESSAGE(NAME, name, value)                                                                 \
    case value:                                                                                    \
        return FIELDS_msg_##name;
#include "core/wire/wire.def"
#undef MESSAGE
    default:
        return -1;
    }
}

static bool decode_fields(trpi_reader *in, trpi_msg *out) {
    switch (out->type) {
#define MESSAGE(NAME, name, number)                                                                \
    case TRPI_MSG_##NAME:                                                                          \
        return decode_msg_##name(in, &out->name);
#include "core/wire/wire.def"
#undef MESSAGE
    }
    return trpi_read_refuse(in, "unknown message");
}

trp_code trpi_encode(const trpi_msg *msg, trp_buf *out, trp_error *err) {
    msgpack_packer packer;
    trp_buf_clear(out);
    msgpack_packer_init(&packer, out, append_packed);
    if (trp_buf_reserve(out, ROOM_BYTES) != TRP_OK || !encode_message(&packer, msg)) {
        return trpi_fail(err, TRP_ENOMEM, "encode %s: out of memory", trpi_msg_name(msg->type));
    }
    out->data[out->size] = '\0'; /* as trp_buf_append() leaves it */
    return TRP_OK;
}

/* "SPAWN.resources.amount: expected a whole number" */
static trp_code decode_failed(const trpi_reader *in, const char *name, trp_error *err) {
    char path[128] = "";
    for (int i = in->path_depth - 1; i >= 0; i--) {
        size_t used = strlen(path);
        trpi_format(path + used, sizeof(path) - used, ".%s", in->path[i]);
    }
    return trpi_fail(err, in->out_of_memory ? TRP_ENOMEM : TRP_EPROTOCOL, "decode %s%s: %s", name,
                     path, in->reason);
}

/* Reads what is in front of the fields, and checks that they are ours. */
static trp_code decode_head(trpi_reader *in, trpi_msg_type *ret_type, trp_error *err) {
    uint64_t count, version, number;
    if (!trpi_read_array(in, &count) || !trpi_read_u64(in, &version)) {
        return decode_failed(in, "frame", err);
    }
    if (version != TRPI_WIRE_VERSION) {
        return trpi_fail(err, TRP_EPROTOCOL,
                         "peer speaks protocol version %" PRIu64 ", this program %d: both must be "
                         "of the same release",
                         version, TRPI_WIRE_VERSION);
    }
    if (!trpi_read_u64(in, &number)) {
        return decode_failed(in, "frame", err);
    }
    int fields = field_count(number);
    if (fields < 0) {
        return trpi_fail(err, TRP_EPROTOCOL, "decode frame: no message has number %" PRIu64,
                         number);
    }
    *ret_type = (trpi_msg_type)number;
    if (count != (uint64_t)fields + HEAD_FIELDS) {
        return trpi_fail(err, TRP_EPROTOCOL, "decode %s: another number of fields",
                         trpi_msg_name(*ret_type));
    }
    return TRP_OK;
}

trp_code trpi_decode(trp_bytes frame, trpi_arena *arena, trpi_msg *ret_msg, trp_error *err) {
    trpi_msg msg;
    const unsigned char *data = frame.size > 0 ? frame.data : (const unsigned char *)"";
    trpi_reader in = {.at = data, .end = data + frame.size, .arena = arena};
    trp_code code = decode_head(&in, &msg.type, err);
    if (code != TRP_OK) {
        return code;
    }
    if (!decode_fields(&in, &msg)) {
        return decode_failed(&in, trpi_msg_name(msg.type), err);
    }
    if (left(&in) > 0) {
        return trpi_fail(err, TRP_EPROTOCOL, "decode %s: %zu bytes too many",
                         trpi_msg_name(msg.type), left(&in));
    }
    const char *reason = trpi_msg_invalid(&msg);
    if (reason != NULL) {
        return trpi_fail(err, TRP_EPROTOCOL, "decode %s: %s", trpi_msg_name(msg.type), reason);
    }
    *ret_msg = msg;
    return TRP_OK;
}

bool trpi_peek(trp_bytes frame, trpi_msg_type *ret_type, uint64_t *ret_first) {
    const unsigned char *data = frame.size > 0 ? frame.data : (const unsigned char *)"";
    trpi_reader in = {.at = data, .end = data + frame.size};
    uint64_t count, version, number, first;
    if (!trpi_read_array(&in, &count) || !trpi_read_u64(&in, &version) ||
        !trpi_read_u64(&in, &number) || field_count(number) < 1 || !trpi_read_u64(&in, &first)) {
        return false;
    }
    *ret_type = (trpi_msg_type)number;
    *ret_first = first;
    return true;
}
