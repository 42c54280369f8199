/* reader.c: the formats of msgpack that the protocol uses: integers, booleans, str, bin, array. */
#include "core/wire/reader.h"

#include <string.h>

static bool no_memory(trpi_reader *in) {
    in->out_of_memory = true;
    return trpi_read_refuse(in, "out of memory");
}

bool trpi_read_blame(trpi_reader *in, const char *field) {
    if (in->path_depth < TRPI_READER_DEPTH) {
        in->path[in->path_depth++] = field;
    }
    return false;
}

static size_t left(const trpi_reader *in) {
    return (size_t)(in->end - in->at);
}

/* Takes a big-endian number of 1, 2, 4 or 8 bytes. */
static bool take_number(trpi_reader *in, size_t size, uint64_t *ret_value) {
    uint64_t value = 0;
    if (left(in) < size) {
        return trpi_read_refuse(in, "frame ends inside a number");
    }
    for (size_t i = 0; i < size; i++) {
        value = value << 8 | in->at[i];
    }
    in->at += size;
    *ret_value = value;
    return true;
}

static bool take_tag(trpi_reader *in, unsigned *ret_tag) {
    if (left(in) == 0) {
        return trpi_read_refuse(in, "frame ends early");
    }
    *ret_tag = *in->at++;
    return true;
}

/* Any integer: *ret_negative says whether *ret_value is an int64_t's bits or a uint64_t. */
static bool read_integer(trpi_reader *in, uint64_t *ret_value, bool *ret_negative) {
    unsigned tag;
    if (!take_tag(in, &tag)) {
        return false;
    }
    *ret_negative = false;
    if (tag <= 0x7f) {
        *ret_value = tag;
        return true;
    }
    if (tag >= 0xe0) {
        *ret_value = (uint64_t)(int64_t)(int8_t)tag;
        *ret_negative = true;
        return true;
    }
    if (tag >= 0xcc && tag <= 0xcf) {
        return take_number(in, (size_t)1 << (tag - 0xcc), ret_value);
    }
    if (tag < 0xd0 || tag > 0xd3) {
        return trpi_read_refuse(in, "expected a whole number");
    }
    size_t size = (size_t)1 << (tag - 0xd0);
    if (!take_number(in, size, ret_value)) {
        return false;
    }
    *ret_negative = *ret_value >> (8 * size - 1) != 0;
    if (*ret_negative && size < sizeof(uint64_t)) {
        *ret_value |= UINT64_MAX << (8 * size);
    }
    return true;
}

bool trpi_read_u64(trpi_reader *in, uint64_t *ret_value) {
    bool negative;
    if (!read_integer(in, ret_value, &negative)) {
        return false;
    }
    return !negative || trpi_read_refuse(in, "expected a number that is not negative");
}

bool trpi_read_i64(trpi_reader *in, int64_t *ret_value) {
    uint64_t value;
    bool negative;
    if (!read_integer(in, &value, &negative)) {
        return false;
    }
    if (!negative && value > INT64_MAX) {
        return trpi_read_refuse(in, "number is too large");
    }
    *ret_value = (int64_t)value;
    return true;
}

bool trpi_read_bool(trpi_reader *in, bool *ret_value) {
    unsigned tag;
    if (!take_tag(in, &tag)) {
        return false;
    }
    *ret_value = tag == 0xc3;
    return tag == 0xc2 || tag == 0xc3 || trpi_read_refuse(in, "expected true or false");
}

/* The body of a string or blob: `size` bytes, which the frame must have. */
static bool take_body(trpi_reader *in, uint64_t size, trp_bytes *ret_bytes) {
    if (size > left(in)) {
        return trpi_read_refuse(in, "longer than the frame");
    }
    *ret_bytes = (trp_bytes){in->at, (size_t)size};
    in->at += size;
    return true;
}

bool trpi_read_str(trpi_reader *in, const char **ret_text) {
    unsigned tag;
    uint64_t size;
    trp_bytes bytes;
    if (!take_tag(in, &tag)) {
        return false;
    }
    if (tag >= 0xa0 && tag <= 0xbf) {
        size = tag & 0x1f;
    } else if (tag < 0xd9 || tag > 0xdb) {
        return trpi_read_refuse(in, "expected a text");
    } else if (!take_number(in, (size_t)1 << (tag - 0xd9), &size)) {
        return false;
    }
    if (!take_body(in, size, &bytes)) {
        return false;
    }
    /* A C string would end there, and two peers would see different texts. */
    if (memchr(bytes.data, '\0', bytes.size) != NULL) {
        return trpi_read_refuse(in, "text contains a NUL");
    }
    *ret_text = bytes.size > 0 ? trpi_arena_text(in->arena, bytes.data, bytes.size) : "";
    return *ret_text != NULL || no_memory(in);
}

bool trpi_read_bin(trpi_reader *in, trp_bytes *ret_bytes) {
    unsigned tag;
    uint64_t size;
    if (!take_tag(in, &tag)) {
        return false;
    }
    if (tag < 0xc4 || tag > 0xc6) {
        return trpi_read_refuse(in, "expected bytes");
    }
    return take_number(in, (size_t)1 << (tag - 0xc4), &size) && take_body(in, size, ret_bytes);
}

bool trpi_read_array(trpi_reader *in, uint64_t *ret_count) {
    unsigned tag;
    if (!take_tag(in, &tag)) {
        return false;
    }
    if (tag >= 0x90 && tag <= 0x9f) {
        *ret_count = tag & 0x0f;
        return true;
    }
    if (tag < 0xdc || tag > 0xdd) {
        return trpi_read_refuse(in, "expected a list");
    }
    return take_number(in, (size_t)2 << (tag - 0xdc), ret_count);
}

/* Memory for a list whose elements take at least min_bytes each on the wire and size bytes here. */
bool trpi_read_list(trpi_reader *in, size_t min_bytes, size_t size, void **ret_list,
                    size_t *ret_count) {
    uint64_t count;
    if (!trpi_read_array(in, &count)) {
        return false;
    }
    if (count > left(in) / min_bytes) {
        return trpi_read_refuse(in, "list is longer than the frame");
    }
    *ret_count = (size_t)count;
    *ret_list = count > 0 ? trpi_arena_alloc(in->arena, (size_t)count * size) : NULL;
    return count == 0 || *ret_list != NULL || no_memory(in);
}
