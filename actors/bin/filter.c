#include "actors/bin/filter.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "actors/bin/rows.h"

enum { KEY_MAX = 64, KEYS_MAX = 256 };

json_t *trpi_member(json_t *row, const char *key) {
    const char *dot = strchr(key, '.');
    json_t *member = json_object_get(row, key);
    if (member == NULL && dot != NULL && dot - key < KEY_MAX) {
        char outer[KEY_MAX];
        trpi_format(outer, sizeof(outer), "%.*s", (int)(dot - key), key);
        return trpi_member(json_object_get(row, outer), dot + 1);
    }
    return member;
}

/* ---- Keys ---- */

static bool is_known(json_t *rows, const char *key) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (trpi_member(row, key) != NULL) {
            return true;
        }
    }
    return json_array_size(rows) == 0; /* nobody can tell, and nothing is shown */
}

static trp_code check_key(json_t *rows, const char *option, const char *key, trp_error *err) {
    const char *keys[KEYS_MAX], *name;
    char list[400] = "";
    size_t count = 0;
    json_t *value;
    if (is_known(rows, key)) {
        return TRP_OK;
    }
    json_object_foreach(json_array_get(rows, 0), name, value) {
        if (count < KEYS_MAX) {
            size_t used = strlen(list);
            trpi_format(list + used, sizeof(list) - used, "%s%s", count ? ", " : "", name);
            keys[count++] = name;
        }
    }
    const char *near = trpi_nearest(key, keys, count);
    return near ? trpi_fail(err, TRP_EINVALID, "%s: there is no key %s; did you mean %s?", option,
                            key, near)
                : trpi_fail(err, TRP_EINVALID, "%s: there is no key %s; there are %s", option, key,
                            list);
}

/* ---- Filters ---- */

static bool equals(json_t *value, const char *wanted) {
    char text[512];
    size_t i;
    json_t *item;
    if (json_is_array(value)) {
        json_array_foreach(value, i, item) {
            if (equals(item, wanted)) {
                return true;
            }
        }
        return false;
    }
    if (json_is_boolean(value)) {
        return strcasecmp(wanted, json_is_true(value) ? "yes" : "no") == 0 ||
               strcasecmp(wanted, json_is_true(value) ? "true" : "false") == 0;
    }
    trpi_value_text(value, NULL, text, sizeof(text));
    if (strcasecmp(text, wanted) == 0) {
        return true;
    }
    bool has_letter = strchr("nagxj", wanted[0]) != NULL && wanted[0] != '\0';
    return json_is_integer(value) && has_letter && strcmp(text, wanted + 1) == 0;
}

static void keep(json_t *rows, const char *key, const char *wanted, bool is_not) {
    for (size_t i = json_array_size(rows); i-- > 0;) {
        json_t *value = trpi_member(json_array_get(rows, i), key);
        bool is_equal = value != NULL ? equals(value, wanted) : wanted[0] == '\0';
        if (is_equal == is_not) {
            json_array_remove(rows, i);
        }
    }
}

trp_code trpi_filter(json_t *rows, const trpi_words *filters, trp_error *err) {
    /* All keys first: an earlier filter may leave no row that a later one could be checked by. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < filters->count; i++) {
            const char *filter = filters->items[i], *sign = strchr(filter, '=');
            bool is_not = sign != NULL && sign > filter && sign[-1] == '!';
            char key[KEY_MAX];
            if (sign == NULL || sign == filter + is_not || sign - filter >= KEY_MAX) {
                return trpi_fail(err, TRP_EINVALID,
                                 "--filter: \"%s\" is neither KEY=VALUE nor KEY!=VALUE", filter);
            }
            trpi_format(key, sizeof(key), "%.*s", (int)(sign - filter) - is_not, filter);
            if (pass > 0) {
                keep(rows, key, sign + 1, is_not);
            } else if (check_key(rows, "--filter", key, err) != TRP_OK) {
                return TRP_EINVALID;
            }
        }
    }
    return TRP_OK;
}

/* ---- Order ---- */

typedef struct sortable {
    json_t *row, *value;
    size_t position;
    bool is_reverse;
} sortable;

static int compare_values(const json_t *a, const json_t *b) {
    if (json_is_number(a) && json_is_number(b)) {
        double x = json_number_value(a), y = json_number_value(b);
        return (x > y) - (x < y);
    }
    char text[2][512];
    trpi_value_text((json_t *)a, NULL, text[0], sizeof(text[0]));
    trpi_value_text((json_t *)b, NULL, text[1], sizeof(text[1]));
    return strcmp(text[0], text[1]);
}

static int compare(const void *left, const void *right) {
    const sortable *a = left, *b = right;
    int order = compare_values(a->value, b->value);
    order = a->is_reverse ? -order : order;
    return order ? order : (a->position > b->position) - (a->position < b->position);
}

trp_code trpi_sort(json_t *rows, const char *key, trp_error *err) {
    bool is_reverse = key[0] == '-';
    size_t count = json_array_size(rows);
    key += is_reverse;
    trp_code code = check_key(rows, "--sort", key, err);
    if (code != TRP_OK || count == 0) {
        return code;
    }
    sortable *sorted = trpi_alloc(count * sizeof(*sorted));
    for (size_t i = 0; i < count; i++) {
        json_t *row = json_incref(json_array_get(rows, i));
        sorted[i] = (sortable){row, trpi_member(row, key), i, is_reverse};
    }
    qsort(sorted, count, sizeof(*sorted), compare);
    json_array_clear(rows);
    for (size_t i = 0; i < count; i++) {
        json_array_append_new(rows, sorted[i].row);
    }
    free(sorted);
    return TRP_OK;
}
