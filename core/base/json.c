/* json.c: jansson with duplicate keys refused, and typed access that says what was expected. */
#include "core/base/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define LARGEST_EXACT 9007199254740992.0 /* 2^53: every whole double up to here is one number */

static const char *type_text(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "nothing";
}

static trp_code parse_failed(trp_error *err, const char *where, const json_error_t *reason) {
    if (json_error_code(reason) == json_error_out_of_memory) {
        return trpi_fail(err, TRP_ENOMEM, "%s: out of memory", where);
    }
    return trpi_fail(err, TRP_EINVALID, "%s:%d:%d: %s", where, reason->line, reason->column,
                     reason->text);
}

trp_code trpi_json_parse(const char *text, size_t size, const char *where, json_t **ret_json,
                         trp_error *err) {
    json_error_t reason;
    json_t *json = json_loadb(size > 0 ? text : "", size, JSON_REJECT_DUPLICATES, &reason);
    if (json == NULL) {
        return parse_failed(err, where != NULL ? where : "text", &reason);
    }
    *ret_json = json;
    return TRP_OK;
}

trp_code trpi_json_load(const char *path, json_t **ret_json, trp_error *err) {
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return trpi_fail(err, errno == ENOENT ? TRP_ENOTFOUND : TRP_EIO, "%s: %s", path,
                         strerror(errno));
    }
    json_error_t reason;
    json_t *json = json_loadf(file, JSON_REJECT_DUPLICATES, &reason);
    bool unreadable = ferror(file) != 0;
    fclose(file);
    if (unreadable) {
        json_decref(json);
        return trpi_fail(err, TRP_EIO, "%s: cannot be read", path);
    }
    if (json == NULL) {
        return parse_failed(err, path, &reason);
    }
    *ret_json = json;
    return TRP_OK;
}

/* Finds the member; *ret_value is NULL when it is missing and need not be there. */
static trp_code find_member(json_t *object, const char *where, const char *key, bool required,
                            json_t **ret_value, trp_error *err) {
    if (!json_is_object(object)) {
        return trpi_fail(err, TRP_EINVALID, "%s: expected an object, found %s", where,
                         object != NULL ? type_text(object) : "nothing");
    }
    *ret_value = json_object_get(object, key);
    if (*ret_value == NULL && required) {
        return trpi_fail(err, TRP_EINVALID, "%s.%s: is missing", where, key);
    }
    return TRP_OK;
}

static trp_code wrong_type(trp_error *err, const char *where, const char *key, const char *wanted,
                           const json_t *found) {
    return trpi_fail(err, TRP_EINVALID, "%s.%s: expected %s, found %s", where, key, wanted,
                     type_text(found));
}

trp_code trpi_json_i64(json_t *object, const char *where, const char *key, bool required,
                       int64_t *ret_value, trp_error *err) {
    json_t *value;
    trp_code code = find_member(object, where, key, required, &value, err);
    if (code != TRP_OK || value == NULL) {
        return code;
    }
    if (json_is_real(value)) {
        double real = json_real_value(value);
        if (real != floor(real) || fabs(real) > LARGEST_EXACT) {
            return trpi_fail(err, TRP_EINVALID, "%s.%s: expected a whole number, found %.17g",
                             where, key, real);
        }
        *ret_value = (int64_t)real;
        return TRP_OK;
    }
    if (!json_is_integer(value)) {
        return wrong_type(err, where, key, "a whole number", value);
    }
    *ret_value = json_integer_value(value);
    return TRP_OK;
}

trp_code trpi_json_number(json_t *object, const char *where, const char *key, bool required,
                          double *ret_value, trp_error *err) {
    json_t *value;
    trp_code code = find_member(object, where, key, required, &value, err);
    if (code != TRP_OK || value == NULL) {
        return code;
    }
    if (!json_is_number(value)) {
        return wrong_type(err, where, key, "a number", value);
    }
    *ret_value = json_number_value(value);
    return TRP_OK;
}

trp_code trpi_json_bool(json_t *object, const char *where, const char *key, bool required,
                        bool *ret_value, trp_error *err) {
    json_t *value;
    trp_code code = find_member(object, where, key, required, &value, err);
    if (code != TRP_OK || value == NULL) {
        return code;
    }
    if (!json_is_boolean(value)) {
        return wrong_type(err, where, key, "true or false", value);
    }
    *ret_value = json_is_true(value);
    return TRP_OK;
}

trp_code trpi_json_text(json_t *object, const char *where, const char *key, bool required,
                        const char **ret_value, trp_error *err) {
    json_t *value;
    trp_code code = find_member(object, where, key, required, &value, err);
    if (code != TRP_OK || value == NULL) {
        return code;
    }
    if (!json_is_string(value)) {
        return wrong_type(err, where, key, "a string", value);
    }
    *ret_value = json_string_value(value);
    return TRP_OK;
}

static bool is_one_of(const char *word, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(word, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

trp_code trpi_json_only(json_t *object, const char *where, const char *const *keys, size_t count,
                        trp_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(object)) {
        return trpi_fail(err, TRP_EINVALID, "%s: expected an object, found %s", where,
                         object != NULL ? type_text(object) : "nothing");
    }
    json_object_foreach(object, key, value) {
        if (is_one_of(key, keys, count)) {
            continue;
        }
        const char *nearest = trpi_nearest(key, keys, count);
        if (nearest == NULL) {
            return trpi_fail(err, TRP_EINVALID, "%s.%s: unknown key", where, key);
        }
        return trpi_fail(err, TRP_EINVALID, "%s.%s: unknown key; did you mean \"%s\"?", where, key,
                         nearest);
    }
    return TRP_OK;
}

/* How many bytes the character at this place has; 0 when it is none that UTF-8 allows. */
static size_t character_size(const unsigned char *at) {
    size_t size = at[0] < 0x80 ? 1 : at[0] < 0xc2 ? 0 : at[0] < 0xe0 ? 2 : at[0] < 0xf0 ? 3 : 4;
    if (at[0] > 0xf4) {
        return 0;
    }
    for (size_t i = 1; i < size; i++) {
        if ((at[i] & 0xc0) != 0x80) { /* the text's end, too */
            return 0;
        }
    }
    bool too_long = (at[0] == 0xe0 && at[1] < 0xa0) || (at[0] == 0xf0 && at[1] < 0x90);
    bool surrogate = at[0] == 0xed && at[1] > 0x9f;
    bool too_large = at[0] == 0xf4 && at[1] > 0x8f;
    return too_long || surrogate || too_large ? 0 : size;
}

json_t *trpi_json_of_text(const char *text) {
    static const char replacement[] = "\xef\xbf\xbd";
    json_t *whole = json_string(text);
    trp_buf repaired = {0};
    trp_code code = TRP_OK;
    if (whole) {
        return whole;
    }
    while (*text != '\0' && code == TRP_OK) {
        size_t size = character_size((const unsigned char *)text);
        code = size ? trp_buf_append(&repaired, text, size)
                    : trp_buf_append(&repaired, replacement, sizeof(replacement) - 1);
        text += size ? size : 1;
    }
    if (code == TRP_OK) {
        whole = json_stringn((const char *)repaired.data, repaired.size);
    }
    trp_buf_release(&repaired);
    return whole;
}

static int append_text(const char *text, size_t size, void *out) {
    return trp_buf_append(out, text, size) == TRP_OK ? 0 : -1;
}

trp_code trpi_json_write(const json_t *json, trp_buf *out, trp_error *err) {
    size_t before = out->size;
    if (json_dump_callback(json, append_text, out, JSON_COMPACT | JSON_ENCODE_ANY) != 0) {
        out->size = before;
        return trpi_fail(err, TRP_ENOMEM, "JSON cannot be written: out of memory");
    }
    return TRP_OK;
}
