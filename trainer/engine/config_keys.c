#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/engine/config.h"

#define ANY 1e300

typedef enum key_type { BOOL, INT, NUMBER, TEXT, OBJECT, LIST } key_type;
typedef enum key_policy { USED, NOTE, FIXED } key_policy;

typedef struct config_key {
    trpi_config_section section;
    const char *name;
    key_type type;
    key_policy policy;
    double low, high;
    const char *text;
} config_key;

static const config_key keys[] = {
#define KEY(section, name, type, policy, low, high, text)                                          \
    {TRPI_SECTION_##section, #name, type, policy, low, high, text},
#include "trainer/engine/config.def"
#undef KEY
};

trp_code trpi_config_note(trp_zero_config *config, trp_error *err, const char *format, ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    char **notes = realloc(config->notes, (config->note_count + 1) * sizeof *notes);
    if (!notes) {
        return trpi_fail(err, TRP_ENOMEM, "configuration");
    }
    config->notes = notes;
    notes[config->note_count] = strdup(line);
    if (!notes[config->note_count]) {
        return trpi_fail(err, TRP_ENOMEM, "configuration");
    }
    config->note_count++;
    return TRP_OK;
}

/* JSON writers turn 5e8 and 2.0 into reals, and they are whole all the same. */
static bool is_whole(const json_t *value) {
    double real = json_number_value(value);
    return json_is_real(value) && real > -9e15 && real < 9e15 && real == (double)(int64_t)real;
}

static bool has_type(const json_t *value, key_type type) {
    switch (type) {
    case BOOL:
        return json_is_boolean(value);
    case INT:
        return json_is_integer(value) || is_whole(value);
    case NUMBER:
        return json_is_number(value);
    case TEXT:
        return json_is_string(value);
    case OBJECT:
        return json_is_object(value);
    case LIST:
        return json_is_array(value);
    }
    return false;
}

static trp_code refuse_type(const json_t *value, const config_key *key, const char *where,
                            trp_error *err) {
    static const char *const expected[] = {"true or false", "a whole number", "a number",
                                           "a text",        "an object",      "a list"};
    trp_buf found = {0};
    trp_code code = trpi_json_write(value, &found, err);
    if (!code) {
        bool automatic = json_is_string(value) && strcmp(json_string_value(value), "auto") == 0;
        code = trpi_fail(err, TRP_EINVALID, "%s.%s: expected %s, found %.100s%s", where, key->name,
                         expected[key->type], (const char *)found.data,
                         automatic ? "; give the value, or leave the key out for its default" : "");
    }
    trp_buf_release(&found);
    return code;
}

static trp_code check_range(double value, const config_key *key, const char *where,
                            trp_error *err) {
    if (value >= key->low && value <= key->high) {
        return TRP_OK;
    }
    if (key->high >= ANY) {
        return trpi_fail(err, TRP_EINVALID, "%s.%s: %.15g is out of range, it must be at least %g",
                         where, key->name, value, key->low);
    }
    return trpi_fail(err, TRP_EINVALID, "%s.%s: %.15g is out of range, it must be from %g to %g",
                     where, key->name, value, key->low, key->high);
}

static trp_code check_fixed(const json_t *value, const config_key *key, const char *where,
                            trp_error *err) {
    if (key->type == TEXT) {
        if (strcmp(json_string_value(value), key->text) == 0) {
            return TRP_OK;
        }
        return trpi_fail(err, TRP_EUNSUPPORTED,
                         "%s.%s: \"%s\" is not supported in this version, only \"%s\"", where,
                         key->name, json_string_value(value), key->text);
    }
    if (key->type == BOOL) {
        if (json_is_true(value) == (key->low != 0)) {
            return TRP_OK;
        }
        return trpi_fail(err, TRP_EUNSUPPORTED, "%s.%s: %s is not supported in this version", where,
                         key->name, json_is_true(value) ? "true" : "false");
    }
    if (json_number_value(value) == key->low) {
        return TRP_OK;
    }
    return trpi_fail(err, TRP_EUNSUPPORTED,
                     "%s.%s: %.15g is not supported in this version, only %g", where, key->name,
                     json_number_value(value), key->low);
}

static trp_code check_value(const json_t *value, const config_key *key, const char *where,
                            trp_zero_config *config, trp_error *err) {
    if (!has_type(value, key->type)) {
        return refuse_type(value, key, where, err);
    }
    if (key->policy == FIXED) {
        return check_fixed(value, key, where, err);
    }
    if (json_is_number(value)) {
        trp_code code = check_range(json_number_value(value), key, where, err);
        if (code) {
            return code;
        }
    }
    if (key->policy == NOTE) {
        return trpi_config_note(config, err, "%s.%s has no effect: %s", where, key->name,
                                key->text);
    }
    return TRP_OK;
}

static const config_key *find_key(trpi_config_section section, const char *name) {
    for (size_t i = 0; i < TRPI_COUNTOF(keys); i++) {
        if (keys[i].section == section && strcmp(keys[i].name, name) == 0) {
            return &keys[i];
        }
    }
    return NULL;
}

trp_code trpi_config_check(json_t *object, trpi_config_section section, const char *where,
                           trp_zero_config *config, trp_error *err) {
    const char *names[TRPI_COUNTOF(keys)];
    size_t count = 0;
    if (!object) {
        return TRP_OK;
    }
    for (size_t i = 0; i < TRPI_COUNTOF(keys); i++) {
        if (keys[i].section == section) {
            names[count++] = keys[i].name;
        }
    }
    trp_code code = trpi_json_only(object, where, names, count, err);
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value) {
        if (!code) {
            code = check_value(value, find_key(section, name), where, config, err);
        }
    }
    return code;
}
