#include "trainer/run/pack.h"

#include <string.h>

/* ---- Packing ---- */

static trp_code put_u64(trp_buf *out, uint64_t value) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    return trp_buf_append(out, bytes, sizeof(bytes));
}

static trp_code put_bytes(trp_buf *out, const void *data, size_t size) {
    trp_code code = put_u64(out, size);
    return code == TRP_OK && size > 0 ? trp_buf_append(out, data, size) : code;
}

static trp_code put_struct(const trpi_layout *layout, const char *from, trp_buf *out);

static trp_code put_list(const trpi_field *field, const char *from, trp_buf *out) {
    const trpi_layout *element = field->element();
    size_t count;
    const char *items;
    memcpy(&count, from + field->count_offset, sizeof(count));
    memcpy(&items, from + field->offset, sizeof(items));
    trp_code code = put_u64(out, count);
    for (size_t i = 0; code == TRP_OK && i < count; i++) {
        code = put_struct(element, items + i * element->size, out);
    }
    return code;
}

static trp_code put_field(const trpi_field *field, const char *from, trp_buf *out) {
    const char *at = from + field->offset;
    uint64_t bits;
    const char *text;
    trp_bytes bytes;
    switch (field->kind) {
    case TRPI_FIELD_U64:
    case TRPI_FIELD_I64:
    case TRPI_FIELD_F64:
        memcpy(&bits, at, sizeof(bits));
        return put_u64(out, bits);
    case TRPI_FIELD_BOOL:
        return put_u64(out, *(const bool *)at);
    case TRPI_FIELD_STR:
        memcpy(&text, at, sizeof(text));
        return put_bytes(out, text, text != NULL ? strlen(text) : 0);
    case TRPI_FIELD_BIN:
        memcpy(&bytes, at, sizeof(bytes));
        return put_bytes(out, bytes.data, bytes.size);
    case TRPI_FIELD_LIST:
        return put_list(field, from, out);
    }
    return TRP_EINTERNAL;
}

static trp_code put_struct(const trpi_layout *layout, const char *from, trp_buf *out) {
    for (size_t i = 0; i < layout->field_count; i++) {
        trp_code code = put_field(&layout->fields[i], from, out);
        if (code != TRP_OK) {
            return code;
        }
    }
    return TRP_OK;
}

trp_code trpi_pack(const trpi_layout *layout, const void *message, trp_buf *out, trp_error *err) {
    trp_code code = put_struct(layout, message, out);
    return code == TRP_OK ? TRP_OK : trpi_fail(err, code, "pack %s", layout->name);
}

/* ---- Unpacking ---- */

typedef struct reader {
    const unsigned char *at;
    size_t left;
    trpi_arena *arena;
} reader;

static bool get_u64(reader *in, uint64_t *ret_value) {
    if (in->left < 8) {
        return false;
    }
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) {
        value = value << 8 | in->at[i];
    }
    in->at += 8;
    in->left -= 8;
    *ret_value = value;
    return true;
}

static bool get_bytes(reader *in, trp_bytes *ret_bytes) {
    uint64_t size;
    if (!get_u64(in, &size) || size > in->left) {
        return false;
    }
    *ret_bytes = (trp_bytes){in->at, (size_t)size};
    in->at += size;
    in->left -= (size_t)size;
    return true;
}

static bool get_text(reader *in, void *to) {
    trp_bytes bytes;
    if (!get_bytes(in, &bytes) || (bytes.size > 0 && memchr(bytes.data, 0, bytes.size) != NULL)) {
        return false;
    }
    const char *text = trpi_arena_text(in->arena, bytes.data, bytes.size);
    memcpy(to, &text, sizeof(text));
    return text != NULL;
}

static bool get_bool(reader *in, bool *ret_value) {
    uint64_t value;
    if (!get_u64(in, &value) || value > 1) {
        return false;
    }
    *ret_value = value == 1;
    return true;
}

static const char *get_struct(const trpi_layout *layout, reader *in, char *to);

/* Every element takes at least eight bytes, so a count that the rest cannot hold is refused before
 * memory is taken for it. */
static bool get_list(const trpi_field *field, reader *in, char *to) {
    const trpi_layout *element = field->element();
    uint64_t count;
    if (!get_u64(in, &count) || count > in->left / 8) {
        return false;
    }
    char *items = trpi_arena_alloc(in->arena, (size_t)count * element->size);
    if (items == NULL) {
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        if (get_struct(element, in, items + i * element->size) != NULL) {
            return false;
        }
    }
    size_t length = (size_t)count;
    memcpy(to + field->count_offset, &length, sizeof(length));
    memcpy(to + field->offset, &items, sizeof(items));
    return true;
}

static bool get_field(const trpi_field *field, reader *in, char *to) {
    char *at = to + field->offset;
    uint64_t bits;
    switch (field->kind) {
    case TRPI_FIELD_U64:
    case TRPI_FIELD_I64:
    case TRPI_FIELD_F64:
        if (!get_u64(in, &bits)) {
            return false;
        }
        memcpy(at, &bits, sizeof(bits));
        return true;
    case TRPI_FIELD_BOOL:
        return get_bool(in, (bool *)at);
    case TRPI_FIELD_STR:
        return get_text(in, at);
    case TRPI_FIELD_BIN:
        return get_bytes(in, (trp_bytes *)at);
    case TRPI_FIELD_LIST:
        return get_list(field, in, to);
    }
    return false;
}

/* NULL, or the name of the field that does not read. */
static const char *get_struct(const trpi_layout *layout, reader *in, char *to) {
    for (size_t i = 0; i < layout->field_count; i++) {
        if (!get_field(&layout->fields[i], in, to)) {
            return layout->fields[i].name;
        }
    }
    return NULL;
}

trp_code trpi_unpack(const trpi_layout *layout, trp_bytes bytes, trpi_arena *arena,
                     void *ret_message, trp_error *err) {
    reader in = {bytes.data, bytes.size, arena};
    void *message = trpi_arena_alloc(arena, layout->size);
    if (message == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "unpack %s", layout->name);
    }
    const char *broken = get_struct(layout, &in, message);
    if (broken != NULL) {
        return trpi_fail(err, TRP_EPROTOCOL, "%s: field %s does not read", layout->name, broken);
    }
    if (in.left > 0) {
        return trpi_fail(err, TRP_EPROTOCOL, "%s: %zu bytes too many", layout->name, in.left);
    }
    memcpy(ret_message, message, layout->size);
    return TRP_OK;
}
