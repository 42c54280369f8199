/* print.c: one line of a message for logs, made from wire.def. */
#include "core/wire/codec.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct printer {
    char *at;
    size_t room; /* with the NUL */
} printer;

__attribute__((format(printf, 2, 3))) static void put(printer *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int size = vsnprintf(out->at, out->room, format, args);
    va_end(args);
    if (size > 0 && out->room > 0) {
        size_t used = TRPI_MIN((size_t)size, out->room - 1);
        out->at += used;
        out->room -= used;
    }
}

/* In quotes where a reader of key=value lines would see another end. */
static void put_str(printer *out, const char *text) {
    if (text == NULL || *text == '\0' || strpbrk(text, " =\n\t") != NULL) {
        put(out, "\"%s\"", text != NULL ? text : "");
    } else {
        put(out, "%s", text);
    }
}

#define U64(n) put(out, " " #n "=%" PRIu64, in->n);
#define I64(n) put(out, " " #n "=%" PRId64, in->n);
#define BOOL(n) put(out, " " #n "=%s", in->n ? "true" : "false");
#define STR(n)                                                                                     \
    put(out, " " #n "=");                                                                          \
    put_str(out, in->n);
#define BIN(n) put(out, " " #n "=%zuB", in->n.size);
#define LIST(type, n)                                                                              \
    put(out, " " #n "=[");                                                                         \
    for (size_t i = 0; i < in->n##_count; i++) {                                                   \
        put(out, "{");                                                                             \
        print_##type(out, &in->n[i]);                                                              \
        put(out, " }");                                                                            \
    }                                                                                              \
    put(out, "]");
#define STRUCT(name) static void print_##name(printer *out, const trpi_##name *in) {
#define END_STRUCT(name) }
#define MESSAGE(NAME, name, number)                                                                \
    static void print_msg_##name(printer *out, const trpi_msg_##name *in) {
#define END_MESSAGE(NAME, name) }
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

static void print_fields(printer *out, const trpi_msg *msg) {
    switch (msg->type) {
#define MESSAGE(NAME, name, number)                                                                \
    case TRPI_MSG_##NAME:                                                                          \
        print_msg_##name(out, &msg->name);                                                         \
        break;
#include "core/wire/wire.def"
#undef MESSAGE
    }
}

void trpi_msg_print(const trpi_msg *msg, char *out, size_t size) {
    printer to = {out, size};
    put(&to, "%s", trpi_msg_name(msg->type));
    print_fields(&to, msg);
}
