#include "actors/bin/rows.h"

#include <stdlib.h>
#include <string.h>

#include "actors/bin/options.h"

#define CELL 512
#define MIB (1024.0 * 1024.0)

static void append(char *out, size_t size, const char *text) {
    size_t used = strlen(out);
    trpi_format(out + used, size - used, "%s", text);
}

void trpi_rows_amount(const char *name, json_t *value, char *out, size_t size) {
    if (strcmp(name, "memory") == 0) { /* counted in MiB */
        trpi_size_text((uint64_t)(json_number_value(value) * MIB), out, size);
    } else {
        trpi_format(out, size, "%.10g", json_number_value(value));
    }
}

static void object_text(json_t *object, char *out, size_t size) {
    const char *name;
    json_t *value;
    out[0] = '\0';
    json_object_foreach(object, name, value) {
        char cell[CELL];
        if (json_is_number(value)) {
            trpi_rows_amount(name, value, cell, sizeof(cell));
        } else {
            trpi_value_text(value, NULL, cell, sizeof(cell));
        }
        append(out, size, out[0] ? ", " : "");
        append(out, size, name);
        append(out, size, " ");
        append(out, size, cell);
    }
}

static void array_text(json_t *array, const char *prefix, char *out, size_t size) {
    size_t i;
    json_t *value;
    out[0] = '\0';
    json_array_foreach(array, i, value) {
        char cell[CELL];
        trpi_value_text(value, prefix, cell, sizeof(cell));
        append(out, size, i ? ", " : "");
        append(out, size, cell);
    }
}

void trpi_value_text(json_t *value, const char *prefix, char *out, size_t size) {
    if (json_is_string(value)) {
        trpi_format(out, size, "%s", json_string_value(value));
    } else if (json_is_integer(value) && prefix != NULL) {
        if (json_integer_value(value) != 0) {
            trpi_format(out, size, "%s%lld", prefix, (long long)json_integer_value(value));
        } else {
            trpi_format(out, size, "-");
        }
    } else if (json_is_integer(value)) {
        trpi_format(out, size, "%lld", (long long)json_integer_value(value));
    } else if (json_is_real(value)) {
        trpi_format(out, size, "%.6g", json_real_value(value));
    } else if (json_is_boolean(value)) {
        trpi_format(out, size, "%s", json_is_true(value) ? "yes" : "no");
    } else if (json_is_object(value)) {
        object_text(value, out, size);
    } else if (json_is_array(value)) {
        array_text(value, prefix, out, size);
    } else {
        out[0] = '\0';
    }
    if (out[0] == '\0') {
        trpi_format(out, size, "-");
    }
}

/* Columns of text, not of bytes. */
static int width_of(const char *text) {
    int width = 0;
    for (; *text != '\0'; text++) {
        width += ((unsigned char)*text & 0xC0) != 0x80;
    }
    return width;
}

/* Names are a user's: what a terminal would obey must not reach it, and a row is one line. The
 * control characters are those below a space, DEL, and two bytes each from U+0080 to U+009F. */
static void make_printable(char *text) {
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        if (*at < ' ' || *at == 0x7f) {
            *at = '?';
        } else if (*at == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) {
            at[0] = at[1] = '?';
        }
    }
}

static void cell_text(json_t *row, const trpi_column *column, char *out, size_t size) {
    trpi_value_text(json_object_get(row, column->key), column->prefix, out, size);
    make_printable(out);
}

static bool measure(json_t *rows, const trpi_column *column, int *ret_width) {
    bool is_there = json_array_size(rows) == 0;
    int width = width_of(column->title);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        char cell[CELL];
        is_there |= json_object_get(row, column->key) != NULL;
        cell_text(row, column, cell, sizeof(cell));
        width = TRPI_MAX(width, width_of(cell));
    }
    *ret_width = width;
    return is_there;
}

static void print_cell(FILE *out, const char *text, int width, bool is_last) {
    int pad = is_last ? 0 : width - width_of(text) + 2;
    fprintf(out, "%s%*s", text, pad, "");
}

void trpi_rows_print(FILE *out, json_t *rows, const trpi_column *columns, size_t count) {
    int *widths = trpi_alloc(count * sizeof(*widths));
    bool *there = trpi_alloc(count * sizeof(*there));
    size_t last = 0, i;
    json_t *row;
    for (size_t c = 0; c < count; c++) {
        there[c] = measure(rows, &columns[c], &widths[c]);
        last = there[c] ? c : last;
    }
    for (size_t c = 0; c < count; c++) {
        if (there[c]) {
            print_cell(out, columns[c].title, widths[c], c == last);
        }
    }
    fprintf(out, "\n");
    json_array_foreach(rows, i, row) {
        for (size_t c = 0; c < count; c++) {
            char cell[CELL];
            if (there[c]) {
                cell_text(row, &columns[c], cell, sizeof(cell));
                print_cell(out, cell, widths[c], c == last);
            }
        }
        fprintf(out, "\n");
    }
    free(widths);
    free(there);
}

void trpi_json_print(FILE *out, json_t *value) {
    trp_buf text = {0};
    trp_error err;
    if (trpi_json_write(value, &text, &err) == TRP_OK) {
        fprintf(out, "%.*s\n", (int)text.size, (char *)text.data);
    } else {
        fprintf(stderr, "troupe: %s\n", err.message);
    }
    trp_buf_release(&text);
}

bool trpi_parse_format(const char *command, const char *text, bool *ret_is_json) {
    *ret_is_json = strcmp(text, "json") == 0;
    if (*ret_is_json || strcmp(text, "table") == 0) {
        return true;
    }
    (void)trpi_usage_error(command, "--format: \"%s\" is neither table nor json", text);
    return false;
}
