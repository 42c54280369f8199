#include "actors/proc/worker_types.h"

#include <string.h>

#define NAMES_MAX 256 /* looked at for the nearest */

static bool is_name(const char *name) {
    return name != NULL && name[0] != '\0';
}

/* ---- Groups ---- */

size_t trpi_type_group_count(const trp_actor_type *type) {
    size_t count = 1;
    while (type->concurrency != NULL && type->concurrency[count - 1].name != NULL) {
        count++;
    }
    return count;
}

static uint32_t find_group(const trp_actor_type *type, const char *name) {
    size_t count = trpi_type_group_count(type);
    for (uint32_t i = 1; i < count; i++) {
        if (strcmp(type->concurrency[i - 1].name, name) == 0) {
            return i;
        }
    }
    return 0;
}

uint32_t trpi_type_group(const trp_actor_type *type, const trp_method *method) {
    return method->group != NULL ? find_group(type, method->group) : 0;
}

static trp_code check_groups(const trp_actor_type *type, trp_error *err) {
    size_t count = trpi_type_group_count(type);
    for (uint32_t i = 1; i < count; i++) {
        const trp_concurrency *group = &type->concurrency[i - 1];
        if (!is_name(group->name)) {
            return trpi_fail(err, TRP_EINVALID, "actor type %s: concurrency group %u has no name",
                             type->name, (unsigned)(i - 1));
        }
        if (group->threads < 1 || group->threads > TRPI_GROUP_THREADS_MAX) {
            return trpi_fail(err, TRP_EINVALID,
                             "actor type %s: concurrency group %s has %d threads; from 1 to %d are "
                             "possible",
                             type->name, group->name, group->threads, TRPI_GROUP_THREADS_MAX);
        }
        if (find_group(type, group->name) != i) {
            return trpi_fail(err, TRP_EINVALID, "actor type %s: two concurrency groups named %s",
                             type->name, group->name);
        }
    }
    return TRP_OK;
}

/* ---- Methods ---- */

const trp_method *trpi_type_method(const trp_actor_type *type, const char *name) {
    for (const trp_method *method = type->methods; method->name != NULL; method++) {
        if (strcmp(method->name, name) == 0) {
            return method;
        }
    }
    return NULL;
}

void trpi_type_no_method(const trp_actor_type *type, const char *name, char *out, size_t size) {
    const char *names[NAMES_MAX];
    size_t count = 0;
    while (count < NAMES_MAX && type->methods[count].name != NULL) {
        names[count] = type->methods[count].name;
        count++;
    }
    const char *near = trpi_nearest(name, names, count);
    trpi_format(out, size, "%s has no method \"%.128s\"%s%s%s", type->name, name,
                near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}

static trp_code unknown_group(const trp_actor_type *type, const trp_method *method,
                              trp_error *err) {
    const char *names[NAMES_MAX];
    size_t count = TRPI_MIN(trpi_type_group_count(type) - 1, (size_t)NAMES_MAX);
    for (size_t i = 0; i < count; i++) {
        names[i] = type->concurrency[i].name;
    }
    const char *near = trpi_nearest(method->group, names, count);
    return trpi_fail(err, TRP_EINVALID,
                     "actor type %s: method %s runs in the concurrency group \"%s\", which the "
                     "type does not have%s%s%s",
                     type->name, method->name, method->group, near ? "; did you mean \"" : "",
                     near ? near : "", near ? "\"?" : "");
}

static trp_code check_method(const trp_actor_type *type, const trp_method *method, trp_error *err) {
    if (!is_name(method->name)) {
        return trpi_fail(err, TRP_EINVALID, "actor type %s: method %zu has an empty name",
                         type->name, (size_t)(method - type->methods));
    }
    if (method->run == NULL) {
        return trpi_fail(err, TRP_EINVALID, "actor type %s: method %s: run is NULL", type->name,
                         method->name);
    }
    if (trpi_type_method(type, method->name) != method) {
        return trpi_fail(err, TRP_EINVALID, "actor type %s: two methods are named %s", type->name,
                         method->name);
    }
    if (method->group != NULL && find_group(type, method->group) == 0) {
        return unknown_group(type, method, err);
    }
    return TRP_OK;
}

/* ---- Types ---- */

static trp_code check_type(const trp_actor_type *type, trp_error *err) {
    if (type->methods == NULL) {
        return trpi_fail(err, TRP_EINVALID,
                         "actor type %s: methods is NULL; a type without methods has a table with "
                         "just { NULL, NULL }",
                         type->name);
    }
    if ((type->save == NULL) != (type->load == NULL)) {
        return trpi_fail(err, TRP_EINVALID,
                         "actor type %s has %s and no %s; what is saved must be loaded", type->name,
                         type->save ? "save()" : "load()", type->save ? "load()" : "save()");
    }
    trp_code code = check_groups(type, err);
    for (const trp_method *method = type->methods; code == TRP_OK && method->name != NULL;
         method++) {
        code = check_method(type, method, err);
    }
    return code;
}

trp_code trpi_types_check(const trp_actor_type *const *types, trp_error *err) {
    for (size_t i = 0; types[i] != NULL; i++) {
        if (!is_name(types[i]->name)) {
            return trpi_fail(err, TRP_EINVALID, "actor type %zu has no name", i);
        }
        for (size_t j = 0; j < i; j++) {
            if (strcmp(types[j]->name, types[i]->name) == 0) {
                return trpi_fail(err, TRP_EINVALID, "two actor types are named %s", types[i]->name);
            }
        }
        trp_code code = check_type(types[i], err);
        if (code != TRP_OK) {
            return code;
        }
    }
    return TRP_OK;
}

trp_code trpi_types_find(const trp_actor_type *const *types, const char *name, const char *exe,
                         const trp_actor_type **ret_type, trp_error *err) {
    const char *names[NAMES_MAX];
    size_t count = 0;
    for (size_t i = 0; types[i] != NULL; i++) {
        if (strcmp(types[i]->name, name) == 0) {
            *ret_type = types[i];
            return TRP_OK;
        }
        if (count < NAMES_MAX) {
            names[count++] = types[i]->name;
        }
    }
    const char *near = trpi_nearest(name, names, count);
    return trpi_fail(err, TRP_ENOTFOUND, "actor type \"%s\" is not registered in %s%s%s%s", name,
                     exe, near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "");
}
