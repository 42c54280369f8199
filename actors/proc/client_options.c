/* client_options.c: the ranges of what may be asked for, one row an option. */
#include "actors/proc/client_options.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#include "core/base/base.h"
#include "core/base/times.h"

#define LIST_MAX 4096 /* entries of env, labels, retry_on */

/* ---- Numbers ---- */

typedef enum option_kind { OPTION_INT, OPTION_U64 } option_kind;

/* 0 is always allowed: it is the default. */
typedef struct option_row {
    const char *name;
    size_t offset;
    option_kind kind;
    int64_t min, max;
    const char *meaning; /* of what is allowed */
} option_row;

static trp_code check_number(const void *options, const option_row *row, trp_error *err) {
    const char *field = (const char *)options + row->offset;
    if (row->kind == OPTION_INT) {
        int value;
        memcpy(&value, field, sizeof(value));
        bool is_fine = value == 0 || (value >= row->min && value <= row->max);
        return is_fine
                   ? TRP_OK
                   : trpi_fail(err, TRP_EINVALID, "%s: %d; use %s", row->name, value, row->meaning);
    }
    uint64_t value;
    memcpy(&value, field, sizeof(value));
    bool is_fine = value == 0 || (value >= (uint64_t)row->min && value <= (uint64_t)row->max);
    return is_fine ? TRP_OK
                   : trpi_fail(err, TRP_EINVALID, "%s: %" PRIu64 "; use %s", row->name, value,
                               row->meaning);
}

static trp_code check_numbers(const void *options, const option_row *rows, size_t count,
                              trp_error *err) {
    trp_code code = TRP_OK;
    for (size_t i = 0; i < count && code == TRP_OK; i++) {
        code = check_number(options, &rows[i], err);
    }
    return code;
}

#define INT(type, field, min, max, meaning)                                                        \
    { #field, offsetof(type, field), OPTION_INT, min, max, meaning }
#define U64(type, field, min, max, meaning)                                                        \
    { #field, offsetof(type, field), OPTION_U64, min, max, meaning }

/* ---- Texts ---- */

/* Words of a list may be checked by what is in them. Returns NULL, or what they must be. */
typedef const char *word_check(const char *word);

static trp_code check_words(const char *name, const char *const *words, word_check *check,
                            trp_error *err) {
    for (size_t i = 0; words != NULL && words[i] != NULL; i++) {
        const char *wanted = check(words[i]);
        if (i >= LIST_MAX) {
            return trpi_fail(err, TRP_EINVALID, "%s: more than %d entries, or no NULL at the end",
                             name, LIST_MAX);
        }
        if (wanted != NULL) {
            return trpi_fail(err, TRP_EINVALID, "%s[%zu]: \"%.80s\" is not %s", name, i, words[i],
                             wanted);
        }
    }
    return TRP_OK;
}

static trp_code check_text(const char *name, const char *text, size_t max, trp_error *err) {
    size_t size = text != NULL ? strlen(text) : 0;
    return size <= max
               ? TRP_OK
               : trpi_fail(err, TRP_EINVALID, "%s: %zu bytes; use at most %zu", name, size, max);
}

static const char *env_wanted(const char *word) {
    const char *equals = strchr(word, '=');
    return equals != NULL && equals != word ? NULL : "\"KEY=value\"";
}

static const char *type_wanted(const char *word) {
    size_t size = strlen(word), max = sizeof(((trp_error *)0)->type) - 1;
    return size > 0 && size <= max ? NULL : "a type as trp_raise() takes it, of 1 to 47 bytes";
}

/* Letters, digits and what names of machines and zones are made of. */
static bool is_label_text(const char *text, size_t size) {
    static const char marks[] = "-_./:@";
    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool is_word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!is_word && strchr(marks, c) == NULL) {
            return false;
        }
    }
    return size > 0 && size <= 128;
}

/* "zone=a|b", "zone!=a", "ssd", "!ssd" */
static const char *label_wanted(const char *word) {
    static const char wanted[] = "a selector: \"key=a\", \"key=a|b\", \"key!=a\", \"key\" or "
                                 "\"!key\", of letters, digits and -_./:@";
    const char *equals = strchr(word, '=');
    if (equals == NULL) {
        const char *key = word[0] == '!' ? word + 1 : word;
        return is_label_text(key, strlen(key)) ? NULL : wanted;
    }
    bool is_not = equals > word && equals[-1] == '!';
    if (!is_label_text(word, (size_t)(equals - word) - is_not)) {
        return wanted;
    }
    for (const char *value = equals + 1;; value++) {
        size_t size = strcspn(value, "|");
        if (!is_label_text(value, size)) {
            return wanted;
        }
        value += size;
        if (*value == '\0') {
            return NULL;
        }
    }
}

trp_code trpi_env_check(const char *const *env, trp_error *err) {
    return check_words("env", env, env_wanted, err);
}

/* ---- Spawning ---- */

#define RETRIES "-1 for ever, or a count from 0"

static const option_row spawn_rows[] = {
    INT(trp_spawn_options, restarts_max, -1, INT32_MAX, RETRIES),
    INT(trp_spawn_options, call_retries_max, -1, INT32_MAX, RETRIES),
    INT(trp_spawn_options, max_concurrency, 1, 1024, "a number of threads from 1 to 1024"),
    INT(trp_spawn_options, max_pending_calls, 1, INT32_MAX, "a count from 1, or 0 for no limit"),
    INT(trp_spawn_options, bundle, -1, INT32_MAX, "-1 for any, or an index from 0"),
    U64(trp_spawn_options, restart_backoff_ms, 1, TRPI_DAY_MS, "at most a day"),
    U64(trp_spawn_options, restart_window_ms, 1, 365 * TRPI_DAY_MS, "at most a year"),
    U64(trp_spawn_options, start_timeout_ms, 1, TRPI_DAY_MS, "at most a day"),
    U64(trp_spawn_options, liveness_ms, 50, TRPI_DAY_MS,
        "50 ms to a day, or 0 for none: what is shorter tells of a busy host, not of a hung actor"),
};

static trp_code check_choices(const trp_spawn_options *o, trp_error *err) {
    if ((unsigned)o->restart > TRP_RESTART_NEVER) {
        return trpi_fail(err, TRP_EINVALID, "restart: %d; use a trp_restart", (int)o->restart);
    }
    if ((unsigned)o->schedule > TRP_SCHEDULE_SPREAD) {
        return trpi_fail(err, TRP_EINVALID, "schedule: %d; use a trp_schedule", (int)o->schedule);
    }
    return TRP_OK;
}

/* What would have no effect is a mistake of somebody who expects one. */
static trp_code check_pairs(const trp_spawn_options *o, const trp_actor_type *type,
                            trp_error *err) {
    const struct {
        bool is_wrong;
        const char *message;
    } rules[] = {
        {o->get_if_exists && (o->name == NULL || o->name[0] == '\0'), "get_if_exists needs a name"},
        {o->group.id == 0 && o->bundle != 0, "bundle: it is given, but no group is"},
        {o->group.id != 0 && o->node != 0,
         "node: a bundle of a group is where the group is placed"},
        {o->node_soft && o->node == 0, "node_soft needs a node"},
        {o->restart_window_ms != 0 && o->restarts_max <= 0,
         "restart_window_ms needs a restarts_max above 0, which it spreads"},
        {o->save_each_call && type != NULL && type->save == NULL,
         "save_each_call: the type of the actor has no save()"},
        {o->cwd != NULL && o->cwd[0] != '/', "cwd: use an absolute path, which the node must have"},
        {o->resource_count > 0 && o->resources == NULL, "resources is NULL, its count is not 0"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(rules); i++) {
        if (rules[i].is_wrong) {
            return trpi_fail(err, TRP_EINVALID, "%s", rules[i].message);
        }
    }
    return TRP_OK;
}

trp_code trpi_spawn_check(const trp_spawn_options *o, const trp_actor_type *type, trp_error *err) {
    trp_code code = check_text("name", o->name, 255, err);
    if (code == TRP_OK) {
        code = check_text("cwd", o->cwd, 4095, err);
    }
    if (code == TRP_OK) {
        code = check_numbers(o, spawn_rows, TRPI_COUNTOF(spawn_rows), err);
    }
    if (code == TRP_OK) {
        code = check_choices(o, err);
    }
    if (code == TRP_OK) {
        code = check_pairs(o, type, err);
    }
    if (code == TRP_OK) {
        code = check_words("retry_on", o->retry_on, type_wanted, err);
    }
    if (code == TRP_OK) {
        code = check_words("labels", o->labels, label_wanted, err);
    }
    return code == TRP_OK ? trpi_env_check(o->env, err) : code;
}

/* ---- Calls and gangs ---- */

trp_code trpi_call_check(const trp_call_options *o, trp_error *err) {
    if (o->retries_max < -1 && o->retries_max != TRP_RETRIES_NONE) {
        return trpi_fail(err, TRP_EINVALID,
                         "retries_max: %d; use a count, 0 for the actor's, -1 for ever or "
                         "TRP_RETRIES_NONE",
                         o->retries_max);
    }
    if (o->object_count > 0 && o->objects == NULL) {
        return trpi_fail(err, TRP_EINVALID, "objects is NULL, its count is not 0");
    }
    return check_words("retry_on", o->retry_on, type_wanted, err);
}

static const option_row gang_rows[] = {
    INT(trp_gang_options, restarts_max, -1, INT32_MAX, RETRIES),
    U64(trp_gang_options, restart_window_ms, 1, 365 * TRPI_DAY_MS, "at most a year"),
    U64(trp_gang_options, restart_backoff_ms, 1, TRPI_DAY_MS, "at most a day"),
};

trp_code trpi_gang_check(const trp_gang_options *o, trp_error *err) {
    trp_code code = check_text("name", o->name, 255, err);
    if (code == TRP_OK) {
        code = check_numbers(o, gang_rows, TRPI_COUNTOF(gang_rows), err);
    }
    if (code != TRP_OK) {
        return code;
    }
    if ((unsigned)o->policy > TRP_GANG_RESTART) {
        return trpi_fail(err, TRP_EINVALID, "policy: %d; use a trp_gang_policy", (int)o->policy);
    }
    if (o->policy == TRP_GANG_END && o->restarts_max != 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "restarts_max: %d, but policy TRP_GANG_END restarts nothing; use "
                         "TRP_GANG_RESTART",
                         o->restarts_max);
    }
    if (o->restart_window_ms != 0 && o->restarts_max <= 0) {
        return trpi_fail(err, TRP_EINVALID,
                         "restart_window_ms needs a restarts_max above 0, which it spreads");
    }
    return TRP_OK;
}
