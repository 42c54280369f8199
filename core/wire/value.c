/* value.c: trp_pack. */
#include <troupe/value.h>

#include <endian.h>
#include <msgpack.h>
#include <stdarg.h>
#include <string.h>

#include "core/wire/token.h"
#include "core/wire/value_format.h"

typedef struct packing {
    trpi_format_cursor format;
    msgpack_packer packer;
    va_list args;
} packing;

static int append_packed(void *buf, const char *bytes, size_t size) {
    return trp_buf_append(buf, bytes, size) == TRP_OK ? 0 : -1;
}

/* msgpack-c's packers fail only where append_packed() does. */
static trp_code done(packing *p, int failed) {
    return failed ? trpi_fail(p->format.err, TRP_ENOMEM, "pack: out of memory") : TRP_OK;
}

/* ---- Texts and bytes ---- */

static trp_code check_body(packing *p, const void *data, size_t size) {
    if (data == NULL && size > 0) {
        return trpi_format_wrong(&p->format, "NULL has a size");
    }
    /* Its length is 32 bits in msgpack. */
    return size <= UINT32_MAX ? TRP_OK : trpi_format_wrong(&p->format, "longer than 4 GiB");
}

static trp_code pack_text(packing *p, const char *text, size_t size) {
    trp_code code = check_body(p, text, size);
    if (code != TRP_OK) {
        return code;
    }
    return done(p, msgpack_pack_str(&p->packer, size) ||
                       (size > 0 && msgpack_pack_str_body(&p->packer, text, size)));
}

static trp_code pack_string(packing *p, const char *text) {
    return text != NULL ? pack_text(p, text, strlen(text)) : done(p, msgpack_pack_nil(&p->packer));
}

static trp_code pack_bytes(packing *p, trp_bytes bytes) {
    trp_code code = check_body(p, bytes.data, bytes.size);
    if (code != TRP_OK) {
        return code;
    }
    return done(p,
                msgpack_pack_bin(&p->packer, bytes.size) ||
                    (bytes.size > 0 && msgpack_pack_bin_body(&p->packer, bytes.data, bytes.size)));
}

/* Numbers of `size` bytes each, in the order of bytes that all machines write. */
static trp_code pack_numbers(packing *p, const void *numbers, size_t count, size_t size) {
    trp_buf *buf = p->packer.data;
    if (count > UINT32_MAX / size) {
        return trpi_format_wrong(&p->format, "longer than 4 GiB");
    }
    trp_code code = pack_bytes(p, (trp_bytes){numbers, count * size});
    if (code != TRP_OK || BYTE_ORDER == LITTLE_ENDIAN) {
        return code;
    }
    unsigned char *at = buf->data + buf->size - count * size;
    for (size_t i = 0; i < count; i++, at += size) {
        for (size_t low = 0, high = size - 1; low < high; low++, high--) {
            unsigned char byte = at[low];
            at[low] = at[high];
            at[high] = byte;
        }
    }
    return TRP_OK;
}

static trp_code pack_packed(packing *p, trp_bytes value, int depth) {
    trp_code code = trpi_value_check(value, depth, p->format.err);
    if (code != TRP_OK) {
        return trpi_context(p->format.err, code, "pack, argument of *");
    }
    return done(p, append_packed(p->packer.data, value.data, value.size));
}

/* ---- Values ---- */

static trp_code pack_value(packing *p, int depth);

static trp_code pack_array(packing *p, int depth) {
    bool closes = false;
    trp_code code = done(p, msgpack_pack_array(&p->packer, trpi_format_count(&p->format)));
    while (code == TRP_OK) {
        code = trpi_format_closes(&p->format, ']', &closes);
        if (code != TRP_OK || closes) {
            break;
        }
        code = pack_value(p, depth);
    }
    return code;
}

static trp_code pack_pair(packing *p, int depth) {
    trp_code code = trpi_format_key(&p->format, NULL);
    if (code != TRP_OK) {
        return code;
    }
    const char *key = va_arg(p->args, const char *);
    if (key == NULL) {
        return trpi_format_wrong(&p->format, "a key is NULL");
    }
    code = pack_string(p, key);
    return code != TRP_OK ? code : pack_value(p, depth);
}

static trp_code pack_map(packing *p, int depth) {
    bool closes = false;
    trp_code code = done(p, msgpack_pack_map(&p->packer, trpi_format_count(&p->format)));
    while (code == TRP_OK) {
        code = trpi_format_closes(&p->format, '}', &closes);
        if (code != TRP_OK || closes) {
            break;
        }
        code = pack_pair(p, depth);
    }
    return code;
}

static trp_code pack_value(packing *p, int depth) {
    const void *data;
    char letter = trpi_format_next(&p->format);
    if (depth == 0 && (letter == '[' || letter == '{')) {
        return trpi_format_wrong(&p->format, "nested too deeply");
    }
    switch (letter) {
    case 'i':
        return done(p, msgpack_pack_int64(&p->packer, va_arg(p->args, int64_t)));
    case 'u':
        return done(p, msgpack_pack_uint64(&p->packer, va_arg(p->args, uint64_t)));
    case 'd':
        return done(p, msgpack_pack_double(&p->packer, va_arg(p->args, double)));
    case 'b':
        return done(p, va_arg(p->args, int) ? msgpack_pack_true(&p->packer)
                                            : msgpack_pack_false(&p->packer));
    case 's':
        return pack_string(p, va_arg(p->args, const char *));
    case 'S':
        data = va_arg(p->args, const char *);
        return pack_text(p, data, va_arg(p->args, size_t));
    case 'B':
        return pack_bytes(p, va_arg(p->args, trp_bytes));
    case 'F':
        data = va_arg(p->args, const float *);
        return pack_numbers(p, data, va_arg(p->args, size_t), sizeof(float));
    case 'I':
        data = va_arg(p->args, const int64_t *);
        return pack_numbers(p, data, va_arg(p->args, size_t), sizeof(int64_t));
    case 'a':
        return done(p, msgpack_pack_uint64(&p->packer, va_arg(p->args, trp_actor).id));
    case 'o':
        return done(p, msgpack_pack_uint64(&p->packer, va_arg(p->args, trp_object).id));
    case 'n':
        return done(p, msgpack_pack_nil(&p->packer));
    case '*':
        return pack_packed(p, va_arg(p->args, trp_bytes), depth);
    case '[':
        return pack_array(p, depth - 1);
    case '{':
        return pack_map(p, depth - 1);
    default:
        return trpi_format_wrong(&p->format, "expected a value's letter");
    }
}

trp_code trp_pack(trp_buf *buf, trp_error *err, const char *format, ...) {
    size_t before = buf->size;
    packing p = {.format = {.text = format, .at = format, .err = err}};
    msgpack_packer_init(&p.packer, buf, append_packed);
    va_start(p.args, format);
    trp_code code = pack_value(&p, TRPI_VALUE_DEPTH);
    va_end(p.args);
    if (code == TRP_OK) {
        code = trpi_format_end(&p.format);
    }
    if (code != TRP_OK) {
        buf->size = before;
        if (buf->data != NULL) {
            buf->data[before] = '\0';
        }
    }
    return code;
}
