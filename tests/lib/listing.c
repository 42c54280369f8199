#include "tests/lib/listing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "tests/lib/cluster.h"

json_t *test_list(trp_runtime *rt, const char *what) {
    trp_buf text = {0};
    TEST_OK(trp_list(rt, what, &text, err));
    json_t *rows = json_loadb((const char *)text.data, text.size, 0, NULL);
    trp_buf_release(&text);
    assert_non_null(rows);
    return rows;
}

json_t *test_row(const json_t *rows, const char *key, uint64_t number) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (json_integer_value(json_object_get(row, key)) == (json_int_t)number) {
            return row;
        }
    }
    return NULL;
}

json_t *test_row_named(const json_t *rows, const char *key, const char *text) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        if (strcmp(test_row_text(row, key), text) == 0) {
            return row;
        }
    }
    return NULL;
}

const char *test_row_text(const json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text != NULL ? text : "";
}

long long test_row_number(const json_t *row, const char *key) {
    return json_integer_value(json_object_get(row, key));
}

json_t *test_listed_actor(trp_runtime *rt, trp_actor actor) {
    json_t *rows = test_list(rt, "actors"), *row = test_row(rows, "id", actor.id);
    assert_non_null(row);
    json_incref(row);
    json_decref(rows);
    return row;
}

json_t *test_json_in(const char *output) {
    json_t *json = NULL;
    for (const char *line = output; line != NULL && json == NULL;) {
        if (*line == '{' || *line == '[') {
            json = json_loads(line, JSON_DISABLE_EOF_CHECK, NULL);
        }
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return json;
}
