/* token.c: all of msgpack's formats, read strictly. */
#include "core/wire/token.h"

#include <string.h>

static const char cut_off[] = "the value is cut off";

const char *trpi_token_text(trpi_token_kind kind) {
    static const char *const texts[] = {[TRPI_TOKEN_NIL] = "nil",
                                        [TRPI_TOKEN_BOOL] = "true or false",
                                        [TRPI_TOKEN_INTEGER] = "an integer",
                                        [TRPI_TOKEN_FLOAT] = "a number",
                                        [TRPI_TOKEN_DOUBLE] = "a number",
                                        [TRPI_TOKEN_TEXT] = "text",
                                        [TRPI_TOKEN_BYTES] = "bytes",
                                        [TRPI_TOKEN_ARRAY] = "an array",
                                        [TRPI_TOKEN_MAP] = "a map",
                                        [TRPI_TOKEN_EXTENSION] = "an extension"};
    return texts[kind];
}

/* ---- Pieces ---- */

static bool take(trp_bytes *in, uint64_t size, trp_bytes *ret_bytes) {
    if (size > in->size) {
        return false;
    }
    *ret_bytes = (trp_bytes){in->data, (size_t)size};
    *in = (trp_bytes){(const unsigned char *)in->data + size, in->size - (size_t)size};
    return true;
}

/* A big-endian number of 1, 2, 4 or 8 bytes. */
static bool take_number(trp_bytes *in, size_t size, uint64_t *ret_value) {
    trp_bytes bytes;
    uint64_t value = 0;
    if (!take(in, size, &bytes)) {
        return false;
    }
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | ((const unsigned char *)bytes.data)[i];
    }
    *ret_value = value;
    return true;
}

static const char *take_integer(trp_bytes *in, size_t size, bool is_signed, trpi_token *token) {
    token->kind = TRPI_TOKEN_INTEGER;
    if (!take_number(in, size, &token->number)) {
        return cut_off;
    }
    token->negative = is_signed && token->number >> (8 * size - 1) != 0;
    if (token->negative && size < sizeof(uint64_t)) {
        token->number |= UINT64_MAX << (8 * size);
    }
    return NULL;
}

static const char *take_real(trp_bytes *in, trpi_token_kind kind, trpi_token *token) {
    uint64_t bits;
    token->kind = kind;
    if (!take_number(in, kind == TRPI_TOKEN_FLOAT ? 4 : 8, &bits)) {
        return cut_off;
    }
    if (kind == TRPI_TOKEN_FLOAT) {
        uint32_t half = (uint32_t)bits;
        float real;
        memcpy(&real, &half, sizeof(real));
        token->real = real;
    } else {
        memcpy(&token->real, &bits, sizeof(token->real));
    }
    return NULL;
}

/* A body whose length comes first, in `size` bytes. */
static const char *take_body(trp_bytes *in, trpi_token_kind kind, size_t size, trpi_token *token) {
    uint64_t length;
    token->kind = kind;
    return take_number(in, size, &length) && take(in, length, &token->body) ? NULL : cut_off;
}

static const char *take_extension(trp_bytes *in, uint64_t length, trpi_token *token) {
    uint64_t type;
    token->kind = TRPI_TOKEN_EXTENSION;
    if (!take_number(in, 1, &type) || !take(in, length, &token->body)) {
        return cut_off;
    }
    token->type = (int8_t)type;
    return NULL;
}

static const char *take_long_extension(trp_bytes *in, size_t size, trpi_token *token) {
    uint64_t length;
    return take_number(in, size, &length) ? take_extension(in, length, token) : cut_off;
}

static const char *take_count(trp_bytes *in, trpi_token_kind kind, size_t size, trpi_token *token) {
    uint64_t count;
    token->kind = kind;
    if (!take_number(in, size, &count)) {
        return cut_off;
    }
    token->count = (uint32_t)count;
    return NULL;
}

/* ---- A token ---- */

/* The formats whose first byte also holds a number or a length. */
static const char *take_short(trp_bytes *in, unsigned tag, trpi_token *token) {
    if (tag <= 0x7f || tag >= 0xe0) {
        token->kind = TRPI_TOKEN_INTEGER;
        token->negative = tag >= 0xe0;
        token->number = (uint64_t)(int64_t)(int8_t)tag;
    } else if (tag <= 0x8f) {
        token->kind = TRPI_TOKEN_MAP;
        token->count = tag & 0x0f;
    } else if (tag <= 0x9f) {
        token->kind = TRPI_TOKEN_ARRAY;
        token->count = tag & 0x0f;
    } else {
        token->kind = TRPI_TOKEN_TEXT;
        return take(in, tag & 0x1f, &token->body) ? NULL : cut_off;
    }
    return NULL;
}

const char *trpi_token_take(trp_bytes *in, trpi_token *ret_token) {
    uint64_t tag;
    *ret_token = (trpi_token){0};
    if (!take_number(in, 1, &tag)) {
        return cut_off;
    }
    switch (tag) {
    case 0xc0:
        return NULL; /* nil */
    case 0xc1:
        return "a byte is no msgpack";
    case 0xc2:
    case 0xc3:
        ret_token->kind = TRPI_TOKEN_BOOL;
        ret_token->boolean = tag == 0xc3;
        return NULL;
    case 0xc4:
    case 0xc5:
    case 0xc6:
        return take_body(in, TRPI_TOKEN_BYTES, (size_t)1 << (tag - 0xc4), ret_token);
    case 0xc7:
    case 0xc8:
    case 0xc9:
        return take_long_extension(in, (size_t)1 << (tag - 0xc7), ret_token);
    case 0xca:
        return take_real(in, TRPI_TOKEN_FLOAT, ret_token);
    case 0xcb:
        return take_real(in, TRPI_TOKEN_DOUBLE, ret_token);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        return take_integer(in, (size_t)1 << (tag - 0xcc), false, ret_token);
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        return take_integer(in, (size_t)1 << (tag - 0xd0), true, ret_token);
    case 0xd4:
    case 0xd5:
    case 0xd6:
    case 0xd7:
    case 0xd8:
        return take_extension(in, (uint64_t)1 << (tag - 0xd4), ret_token);
    case 0xd9:
    case 0xda:
    case 0xdb:
        return take_body(in, TRPI_TOKEN_TEXT, (size_t)1 << (tag - 0xd9), ret_token);
    case 0xdc:
    case 0xdd:
        return take_count(in, TRPI_TOKEN_ARRAY, (size_t)2 << (tag - 0xdc), ret_token);
    case 0xde:
    case 0xdf:
        return take_count(in, TRPI_TOKEN_MAP, (size_t)2 << (tag - 0xde), ret_token);
    default:
        return take_short(in, (unsigned)tag, ret_token);
    }
}

/* ---- A value ---- */

/* A count that lies costs nothing: each element takes a byte at least, so the loop ends with the
 * bytes. */
const char *trpi_value_take(trp_bytes *in, int depth) {
    trpi_token token;
    const char *reason = trpi_token_take(in, &token);
    if (reason != NULL || (token.kind != TRPI_TOKEN_ARRAY && token.kind != TRPI_TOKEN_MAP)) {
        return reason;
    }
    if (depth == 0) {
        return "the value is nested too deeply";
    }
    uint64_t count = (uint64_t)token.count * (token.kind == TRPI_TOKEN_MAP ? 2 : 1);
    for (uint64_t i = 0; i < count && reason == NULL; i++) {
        reason = trpi_value_take(in, depth - 1);
    }
    return reason;
}

trp_code trpi_value_check(trp_bytes bytes, int depth, trp_error *err) {
    size_t size = bytes.size;
    const char *reason = trpi_value_take(&bytes, depth);
    if (reason != NULL) {
        return trpi_fail(err, TRP_EINVALID, "no msgpack value, at byte %zu of %zu: %s",
                         size - bytes.size, size, reason);
    }
    if (bytes.size > 0) {
        return trpi_fail(err, TRP_EINVALID, "no msgpack value: %zu bytes come after it",
                         bytes.size);
    }
    return TRP_OK;
}
