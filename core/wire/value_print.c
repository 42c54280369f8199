/* value_print.c: trp_value_print. JSON as far as it goes; what JSON lacks stands in <...>. */
#include <troupe/value.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire/token.h"

#define BYTES_SHOWN 8

/* Writes up to `limit` bytes; what comes after is dropped, and the walk ends early. */
typedef struct printing {
    trp_buf *text;
    size_t left;
    bool is_full, out_of_memory;
} printing;

/* ---- Pieces, each whole or not at all ---- */

static void put(printing *p, const char *piece, size_t size) {
    if (p->is_full || size > p->left) {
        p->is_full = true;
        return;
    }
    if (trp_buf_append(p->text, piece, size) != TRP_OK) {
        p->is_full = p->out_of_memory = true;
        return;
    }
    p->left -= size;
}

static void put_text(printing *p, const char *piece) {
    put(p, piece, strlen(piece));
}

/* Bytes of the UTF-8 character that `at` starts with, 0 if it is none (Unicode 15, table 3-7). */
static size_t character_size(const unsigned char *at, size_t left) {
    static const struct {
        unsigned char first, last, low, high; /* of the first byte; of the second */
        size_t size;
    } rows[] = {
        {0x00, 0x7f, 0x80, 0xbf, 1}, {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4}};
    size_t row = 0;
    while (row < TRPI_COUNTOF(rows) && (at[0] < rows[row].first || at[0] > rows[row].last)) {
        row++;
    }
    if (row == TRPI_COUNTOF(rows) || rows[row].size > left) {
        return 0;
    }
    for (size_t i = 1; i < rows[row].size; i++) {
        unsigned char low = i == 1 ? rows[row].low : 0x80, high = i == 1 ? rows[row].high : 0xbf;
        if (at[i] < low || at[i] > high) {
            return 0;
        }
    }
    return rows[row].size;
}

/* One character, so that a terminal shows it and is not told anything by it. */
static size_t put_character(printing *p, const unsigned char *at, size_t left) {
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    size_t size = character_size(at, left);
    const char *escape = size == 1 && *at != '\0' ? strchr(escaped, *at) : NULL;
    char piece[8];
    if (escape != NULL) {
        trpi_format(piece, sizeof(piece), "\\%c", letters[escape - escaped]);
        put_text(p, piece);
    } else if (size == 0) {
        trpi_format(piece, sizeof(piece), "\\x%02x", *at);
        put_text(p, piece);
    } else if ((size == 1 && (*at < ' ' || *at == 0x7f)) ||
               (size == 2 && at[0] == 0xc2 && at[1] < 0xa0)) { /* C0, DEL and C1 controls */
        trpi_format(piece, sizeof(piece), "\\u%04x", size == 1 ? *at : at[1]);
        put_text(p, piece);
    } else {
        put(p, (const char *)at, size);
    }
    return size > 0 ? size : 1;
}

static void put_quoted(printing *p, trp_bytes text) {
    const unsigned char *at = text.data;
    put_text(p, "\"");
    for (size_t i = 0; i < text.size && !p->is_full;) {
        i += put_character(p, at + i, text.size - i);
    }
    put_text(p, "\"");
}

static void put_bytes(printing *p, const char *what, trp_bytes bytes) {
    const unsigned char *at = bytes.data;
    char piece[48];
    trpi_format(piece, sizeof(piece), "<%s%zu byte%s", what, bytes.size,
                bytes.size == 1 ? "" : "s");
    put_text(p, piece);
    for (size_t i = 0; i < bytes.size && i < BYTES_SHOWN; i++) {
        trpi_format(piece, sizeof(piece), "%s%02x", i == 0 ? " " : "", at[i]);
        put_text(p, piece);
    }
    put_text(p, bytes.size > BYTES_SHOWN ? "...>" : ">");
}

/* The fewest digits that read back as the same number. */
static void put_real(printing *p, double real, bool is_float) {
    char piece[32];
    for (int digits = is_float ? 6 : 15; digits <= 17; digits++) {
        trpi_format(piece, sizeof(piece), "%.*g", digits, real);
        if (is_float ? strtof(piece, NULL) == (float)real : strtod(piece, NULL) == real) {
            break;
        }
    }
    put_text(p, piece);
}

static void put_leaf(printing *p, const trpi_token *token) {
    char piece[32];
    switch (token->kind) {
    case TRPI_TOKEN_NIL:
        put_text(p, "null");
        break;
    case TRPI_TOKEN_BOOL:
        put_text(p, token->boolean ? "true" : "false");
        break;
    case TRPI_TOKEN_INTEGER:
        trpi_format(piece, sizeof(piece), token->negative ? "%" PRId64 : "%" PRIu64, token->number);
        put_text(p, piece);
        break;
    case TRPI_TOKEN_FLOAT:
    case TRPI_TOKEN_DOUBLE:
        put_real(p, token->real, token->kind == TRPI_TOKEN_FLOAT);
        break;
    case TRPI_TOKEN_TEXT:
        put_quoted(p, token->body);
        break;
    case TRPI_TOKEN_BYTES:
        put_bytes(p, "", token->body);
        break;
    default:
        trpi_format(piece, sizeof(piece), "extension %d, ", token->type);
        put_bytes(p, piece, token->body);
    }
}

static void put_value(printing *p, trp_bytes *in) {
    trpi_token token;
    if (p->is_full || trpi_token_take(in, &token) != NULL) {
        return;
    }
    bool is_map = token.kind == TRPI_TOKEN_MAP;
    if (!is_map && token.kind != TRPI_TOKEN_ARRAY) {
        put_leaf(p, &token);
        return;
    }
    put_text(p, is_map ? "{" : "[");
    for (uint32_t i = 0; i < token.count && !p->is_full; i++) {
        put_text(p, i > 0 ? ", " : "");
        put_value(p, in);
        if (is_map) {
            put_text(p, ": ");
            put_value(p, in);
        }
    }
    put_text(p, is_map ? "}" : "]");
}

trp_code trp_value_print(trp_bytes bytes, size_t limit, trp_buf *text, trp_error *err) {
    size_t before = text->size;
    printing p = {.text = text, .left = limit};
    trp_code code = trpi_value_check(bytes, TRPI_VALUE_DEPTH, err);
    if (code != TRP_OK) {
        return code;
    }
    put_value(&p, &bytes);
    if (!p.out_of_memory && p.is_full) {
        p.out_of_memory = trp_buf_append(text, "...", 3) != TRP_OK;
    }
    if (p.out_of_memory) {
        text->size = before;
        return trpi_fail(err, TRP_ENOMEM, "print: out of memory");
    }
    return TRP_OK;
}
