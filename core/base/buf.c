/* buf.c: owned, growing bytes. One byte more than `size` is always kept and is NUL. */
#include <troupe/bytes.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/base.h"

#define BUF_FIRST_CAPACITY 64

trp_code trp_buf_reserve(trp_buf *buf, size_t size) {
    if (size > SIZE_MAX / 2 - buf->size - 1) {
        return TRP_ENOMEM;
    }
    size_t needed = buf->size + size + 1;
    if (needed <= buf->capacity) {
        return TRP_OK;
    }
    /* Doubling keeps appending linear; a first large append takes no more than it needs. */
    size_t capacity = TRPI_MAX(needed, TRPI_MAX(buf->capacity * 2, BUF_FIRST_CAPACITY));
    unsigned char *data = realloc(buf->data, capacity);
    if (data == NULL) {
        return TRP_ENOMEM;
    }
    data[buf->size] = '\0';
    buf->data = data;
    buf->capacity = capacity;
    return TRP_OK;
}

trp_code trp_buf_append(trp_buf *buf, const void *data, size_t size) {
    trp_code code = trp_buf_reserve(buf, size);
    if (code != TRP_OK) {
        return code;
    }
    if (size > 0) {
        memcpy(buf->data + buf->size, data, size);
        buf->size += size;
        buf->data[buf->size] = '\0';
    }
    return TRP_OK;
}

trp_code trp_buf_printf(trp_buf *buf, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (size < 0) {
        return TRP_EINVALID;
    }
    trp_code code = trp_buf_reserve(buf, (size_t)size);
    if (code != TRP_OK) {
        return code;
    }
    va_start(args, format);
    (void)vsnprintf((char *)buf->data + buf->size, (size_t)size + 1, format, args);
    va_end(args);
    buf->size += (size_t)size;
    return TRP_OK;
}

void trp_buf_clear(trp_buf *buf) {
    buf->size = 0;
    if (buf->data != NULL) {
        buf->data[0] = '\0';
    }
}

void trp_buf_release(trp_buf *buf) {
    if (buf != NULL) {
        free(buf->data);
        *buf = (trp_buf){0};
    }
}

trp_bytes trp_buf_bytes(const trp_buf *buf) {
    return (trp_bytes){buf->data, buf->size};
}

trp_bytes trp_bytes_of(const char *text) {
    return (trp_bytes){text, text != NULL ? strlen(text) : 0};
}
