/* value_unpack.c: trp_unpack.
 *
 * The input is checked as a whole first: one value, not cut off, not too deep. After that only its
 * kinds can be wrong. */
#include <troupe/value.h>

#include <endian.h>
#include <stdarg.h>
#include <string.h>

#include "core/wire/token.h"
#include "core/wire/value_format.h"

#define KEYS_MAX 64   /* in one map of a format */
#define PATH_SIZE 160 /* of "options.range[1]"; a longer one is cut */

typedef struct unpacking {
    trpi_format_cursor format;
    va_list args;
    char path[PATH_SIZE]; /* of what is read now */
    trp_error *err;
} unpacking;

/* ---- Where, and what is wrong there ---- */

static size_t enter_key(unpacking *u, const char *key) {
    size_t before = strlen(u->path);
    trpi_format(u->path + before, PATH_SIZE - before, "%s%s", before > 0 ? "." : " ", key);
    return before;
}

static size_t enter_index(unpacking *u, size_t index) {
    size_t before = strlen(u->path);
    trpi_format(u->path + before, PATH_SIZE - before, "%s[%zu]", before > 0 ? "" : " ", index);
    return before;
}

static void leave(unpacking *u, size_t before) {
    u->path[before] = '\0';
}

static trp_code wrong(unpacking *u, const char *what) {
    return trpi_fail(u->err, TRP_EINVALID, "argument%s: %s", u->path, what);
}

static trp_code unexpected(unpacking *u, const char *expected, const trpi_token *token) {
    return trpi_fail(u->err, TRP_EINVALID, "argument%s: expected %s, got %s", u->path, expected,
                     trpi_token_text(token->kind));
}

/* A token of that kind from the front. */
static trp_code expect(unpacking *u, trp_bytes *in, trpi_token_kind kind, trpi_token *ret_token) {
    const char *reason = trpi_token_take(in, ret_token);
    if (reason != NULL) {
        return wrong(u, reason);
    }
    return ret_token->kind == kind ? TRP_OK : unexpected(u, trpi_token_text(kind), ret_token);
}

/* ---- Numbers ---- */

static trp_code unpack_signed(unpacking *u, trp_bytes *in, int64_t *target) {
    trpi_token token;
    trp_code code = expect(u, in, TRPI_TOKEN_INTEGER, &token);
    if (code == TRP_OK && !token.negative && token.number > INT64_MAX) {
        return wrong(u, "the integer is too large");
    }
    if (code == TRP_OK) {
        *target = (int64_t)token.number;
    }
    return code;
}

static trp_code unpack_unsigned(unpacking *u, trp_bytes *in, uint64_t *target) {
    trpi_token token;
    trp_code code = expect(u, in, TRPI_TOKEN_INTEGER, &token);
    if (code == TRP_OK && token.negative) {
        return wrong(u, "expected an integer that is not negative");
    }
    if (code == TRP_OK) {
        *target = token.number;
    }
    return code;
}

static trp_code unpack_double(unpacking *u, trp_bytes *in, double *target) {
    trpi_token token;
    const char *reason = trpi_token_take(in, &token);
    if (reason != NULL) {
        return wrong(u, reason);
    }
    if (token.kind == TRPI_TOKEN_INTEGER) {
        *target = token.negative ? (double)(int64_t)token.number : (double)token.number;
    } else if (token.kind == TRPI_TOKEN_FLOAT || token.kind == TRPI_TOKEN_DOUBLE) {
        *target = token.real;
    } else {
        return unexpected(u, "a number", &token);
    }
    return TRP_OK;
}

static trp_code unpack_bool(unpacking *u, trp_bytes *in, bool *target) {
    trpi_token token;
    trp_code code = expect(u, in, TRPI_TOKEN_BOOL, &token);
    if (code == TRP_OK) {
        *target = token.boolean;
    }
    return code;
}

/* ---- Texts and bytes ---- */

static trp_code unpack_string(unpacking *u, trp_bytes *in, char *target, size_t size) {
    trpi_token token;
    trp_code code = expect(u, in, TRPI_TOKEN_TEXT, &token);
    if (code != TRP_OK) {
        return code;
    }
    if (token.body.size >= size) {
        return trpi_fail(u->err, TRP_EINVALID, "argument%s: a text of %zu bytes, at most %zu fit",
                         u->path, token.body.size, size > 0 ? size - 1 : 0);
    }
    if (memchr(token.body.data, '\0', token.body.size) != NULL) {
        return wrong(u, "the text has a NUL inside");
    }
    memcpy(target, token.body.data, token.body.size);
    target[token.body.size] = '\0';
    return TRP_OK;
}

static trp_code unpack_body(unpacking *u, trp_bytes *in, trpi_token_kind kind, trp_bytes *target) {
    trpi_token token;
    trp_code code = expect(u, in, kind, &token);
    if (code == TRP_OK) {
        *target = token.body;
    }
    return code;
}

static void copy_numbers(unsigned char *to, trp_bytes from, size_t size) {
    if (from.size == 0) {
        return;
    }
    memcpy(to, from.data, from.size);
    for (size_t i = 0; BYTE_ORDER == BIG_ENDIAN && i < from.size; i++) {
        to[i] = ((const unsigned char *)from.data)[i ^ (size - 1)];
    }
}

static trp_code unpack_numbers(unpacking *u, trp_bytes *in, void *target, size_t *count,
                               size_t size) {
    trp_bytes bytes;
    trp_code code = unpack_body(u, in, TRPI_TOKEN_BYTES, &bytes);
    if (code != TRP_OK) {
        return code;
    }
    if (bytes.size % size != 0) {
        return trpi_fail(u->err, TRP_EINVALID, "argument%s: %zu bytes are no numbers of %zu bytes",
                         u->path, bytes.size, size);
    }
    if (bytes.size / size > *count) {
        return trpi_fail(u->err, TRP_EINVALID, "argument%s: %zu numbers, at most %zu fit", u->path,
                         bytes.size / size, *count);
    }
    copy_numbers(target, bytes, size);
    *count = bytes.size / size;
    return TRP_OK;
}

static trp_code unpack_nil(unpacking *u, trp_bytes *in) {
    trpi_token token;
    return expect(u, in, TRPI_TOKEN_NIL, &token);
}

static trp_code unpack_any(unpacking *u, trp_bytes *in, trp_bytes *target) {
    trp_bytes value = *in;
    const char *reason = trpi_value_take(in, TRPI_VALUE_DEPTH);
    if (reason != NULL) {
        return wrong(u, reason);
    }
    value.size -= in->size;
    *target = value;
    return TRP_OK;
}

/* ---- Arrays ----
 *
 * `in` is NULL where the input has no such value: then the format is walked for its arguments. */

static trp_code unpack_value(unpacking *u, trp_bytes *in, int depth);

static trp_code check_count(unpacking *u, trp_bytes *in) {
    trpi_token token;
    size_t count = trpi_format_count(&u->format);
    trp_code code = expect(u, in, TRPI_TOKEN_ARRAY, &token);
    if (code == TRP_OK && token.count != count) {
        return trpi_fail(u->err, TRP_EINVALID, "argument%s: expected %zu elements, got %u", u->path,
                         count, (unsigned)token.count);
    }
    return code;
}

static trp_code unpack_array(unpacking *u, trp_bytes *in, int depth) {
    bool closes = false;
    trp_code code = in != NULL ? check_count(u, in) : TRP_OK;
    for (size_t i = 0; code == TRP_OK; i++) {
        code = trpi_format_closes(&u->format, ']', &closes);
        if (code != TRP_OK || closes) {
            break;
        }
        size_t before = enter_index(u, i);
        code = unpack_value(u, in, depth);
        leave(u, before);
    }
    return code;
}

/* ---- Maps ---- */

typedef struct map {
    trp_bytes entries; /* from the first key on */
    uint32_t count;
    uint32_t found; /* entries that the format has named so far, in `keys` */
    const char *keys[KEYS_MAX];
    size_t key_count;
    bool is_open; /* "...": other keys are welcome */
} map;

static bool is_key(const trpi_token *token, const char *key) {
    return token->kind == TRPI_TOKEN_TEXT && token->body.size == strlen(key) &&
           memcmp(token->body.data, key, token->body.size) == 0;
}

static bool is_known(const map *m, const trpi_token *token) {
    for (size_t i = 0; i < m->key_count; i++) {
        if (is_key(token, m->keys[i])) {
            return true;
        }
    }
    return false;
}

static bool is_named(const map *m, const char *key) {
    for (size_t i = 0; i < m->key_count; i++) {
        if (strcmp(m->keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

/* How often the key is there; *ret_value starts with the value of the last one. */
static uint32_t find_key(const map *m, const char *key, trp_bytes *ret_value) {
    trp_bytes rest = m->entries;
    uint32_t times = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        trp_bytes at = rest;
        trpi_token token;
        if (trpi_token_take(&at, &token) == NULL && is_key(&token, key)) {
            *ret_value = at;
            times++;
        }
        if (trpi_value_take(&rest, TRPI_VALUE_DEPTH) != NULL ||
            trpi_value_take(&rest, TRPI_VALUE_DEPTH) != NULL) {
            break;
        }
    }
    return times;
}

/* Names a key that nobody has asked for. */
static trp_code unknown_key(unpacking *u, const map *m) {
    trp_bytes rest = m->entries;
    trpi_token token = {0};
    char name[40];
    for (uint32_t i = 0; i < m->count; i++) {
        trp_bytes at = rest;
        if (trpi_token_take(&at, &token) != NULL || !is_known(m, &token) ||
            trpi_value_take(&rest, TRPI_VALUE_DEPTH) != NULL ||
            trpi_value_take(&rest, TRPI_VALUE_DEPTH) != NULL) {
            break;
        }
    }
    if (token.kind != TRPI_TOKEN_TEXT) {
        return trpi_fail(u->err, TRP_EINVALID, "argument%s: a key is %s, not text", u->path,
                         trpi_token_text(token.kind));
    }
    trpi_format(name, sizeof(name), "%.*s", (int)TRPI_MIN(token.body.size, sizeof(name)),
                (const char *)token.body.data);
    for (char *at = name; *at != '\0'; at++) {
        *at = (unsigned char)*at < ' ' || *at == 127 ? '?' : *at;
    }
    const char *near = trpi_nearest(name, m->keys, m->key_count);
    return trpi_fail(u->err, TRP_EINVALID, "argument%s: unknown key \"%s\"%s%s%s", u->path, name,
                     near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static bool is_nil(trp_bytes value) {
    trpi_token token;
    return trpi_token_take(&value, &token) == NULL && token.kind == TRPI_TOKEN_NIL;
}

static trp_code unpack_pair(unpacking *u, map *m, bool is_there, int depth) {
    trp_bytes value = {0};
    bool is_optional;
    trp_code code = trpi_format_key(&u->format, &is_optional);
    if (code != TRP_OK) {
        return code;
    }
    const char *key = va_arg(u->args, const char *);
    if (key == NULL || m->key_count == KEYS_MAX) {
        return trpi_format_wrong(&u->format, key ? "too many keys in a map" : "a key is NULL");
    }
    if (is_named(m, key)) {
        return trpi_format_wrong(&u->format, "a key comes twice");
    }
    m->keys[m->key_count++] = key;
    size_t before = enter_key(u, key);
    uint32_t times = find_key(m, key, &value);
    m->found += times;
    if (times > 1) {
        code = wrong(u, "is there twice");
    } else if (is_there && times == 0 && !is_optional) {
        code = wrong(u, "is missing");
    } else {
        bool passes = times == 0 || (is_optional && is_nil(value));
        code = unpack_value(u, passes ? NULL : &value, depth);
    }
    leave(u, before);
    return code;
}

static trp_code take_open_end(unpacking *u, map *m) {
    for (int i = 0; i < 3; i++) {
        if (trpi_format_next(&u->format) != '.') {
            return trpi_format_wrong(&u->format, "expected \"...\"");
        }
    }
    m->is_open = true;
    return trpi_format_peek(&u->format) == '}'
               ? TRP_OK
               : trpi_format_wrong(&u->format, "\"...\" comes last in a map");
}

static trp_code open_map(unpacking *u, trp_bytes *in, map *m) {
    trpi_token token;
    m->entries = *in;
    trp_code code = expect(u, &m->entries, TRPI_TOKEN_MAP, &token);
    if (code == TRP_OK) {
        m->count = token.count;
        const char *reason = trpi_value_take(in, TRPI_VALUE_DEPTH);
        return reason == NULL ? TRP_OK : wrong(u, reason);
    }
    return code;
}

static trp_code unpack_map(unpacking *u, trp_bytes *in, int depth) {
    map m = {0};
    bool closes = false;
    trp_code code = in != NULL ? open_map(u, in, &m) : TRP_OK;
    while (code == TRP_OK) {
        code = trpi_format_closes(&u->format, '}', &closes);
        if (code != TRP_OK || closes) {
            break;
        }
        code = trpi_format_peek(&u->format) == '.' ? take_open_end(u, &m)
                                                   : unpack_pair(u, &m, in != NULL, depth);
    }
    return code == TRP_OK && m.found < m.count && !m.is_open ? unknown_key(u, &m) : code;
}

/* ---- Values ---- */

/* The arguments of a letter, filled from the input where there is any. */
static trp_code unpack_letter(unpacking *u, trp_bytes *in, char letter) {
    void *target = letter != 'n' ? va_arg(u->args, void *) : NULL;
    size_t size = letter == 's' ? va_arg(u->args, size_t) : 0;
    size_t *count = letter == 'F' || letter == 'I' ? va_arg(u->args, size_t *) : NULL;
    if (in == NULL) {
        return TRP_OK;
    }
    switch (letter) {
    case 'i':
        return unpack_signed(u, in, target);
    case 'u':
        return unpack_unsigned(u, in, target);
    case 'd':
        return unpack_double(u, in, target);
    case 'b':
        return unpack_bool(u, in, target);
    case 's':
        return unpack_string(u, in, target, size);
    case 'S':
        return unpack_body(u, in, TRPI_TOKEN_TEXT, target);
    case 'B':
        return unpack_body(u, in, TRPI_TOKEN_BYTES, target);
    case 'F':
        return unpack_numbers(u, in, target, count, sizeof(float));
    case 'I':
        return unpack_numbers(u, in, target, count, sizeof(int64_t));
    case 'a':
        return unpack_unsigned(u, in, &((trp_actor *)target)->id);
    case 'o':
        return unpack_unsigned(u, in, &((trp_object *)target)->id);
    case 'n':
        return unpack_nil(u, in);
    default:
        return unpack_any(u, in, target);
    }
}

static trp_code unpack_value(unpacking *u, trp_bytes *in, int depth) {
    char letter = trpi_format_next(&u->format);
    if (letter == '\0' || strchr("iudbsSBFIaon*[{", letter) == NULL) {
        return trpi_format_wrong(&u->format, "expected a value's letter");
    }
    if (depth == 0 && strchr("[{", letter) != NULL) {
        return trpi_format_wrong(&u->format, "nested too deeply");
    }
    switch (letter) {
    case '[':
        return unpack_array(u, in, depth - 1);
    case '{':
        return unpack_map(u, in, depth - 1);
    default:
        return unpack_letter(u, in, letter);
    }
}

trp_code trp_unpack(trp_bytes bytes, trp_error *err, const char *format, ...) {
    unpacking u = {.format = {.text = format, .at = format, .err = err}, .err = err};
    trp_code code = trpi_value_check(bytes, TRPI_VALUE_DEPTH, err);
    if (code != TRP_OK) {
        return code;
    }
    va_start(u.args, format);
    code = unpack_value(&u, &bytes, TRPI_VALUE_DEPTH);
    va_end(u.args);
    return code == TRP_OK ? trpi_format_end(&u.format) : code;
}
