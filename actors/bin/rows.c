#include "actors/bin/rows.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "actors/bin/options.h"
#include "actors/bin/units.h"

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

static bool is_empty(const json_t *value) {
    return value == NULL || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static void cell_text(json_t *row, const trpi_column *column, char *out, size_t size) {
    json_t *value = json_object_get(row, column->key);
    if (json_is_number(value) && column->unit == TRPI_SECONDS) {
        trpi_duration_text(json_number_value(value), out, size);
    } else if (json_is_number(value) && column->unit == TRPI_BYTES) {
        trpi_size_text((uint64_t)json_number_value(value), out, size);
    } else {
        trpi_value_text(value, column->prefix, out, size);
    }
    make_printable(out);
}

/* ---- Terminals ---- */

/* What a line may have; 0: as much as it wants, since a program or a file reads it. */
static int line_width(FILE *out) {
    struct winsize window;
    if (isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &window) == 0) {
        return window.ws_col;
    }
    return 0;
}

static bool has_colors(FILE *out) {
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    bool is_dumb = terminal == NULL || strcmp(terminal, "dumb") == 0;
    return isatty(fileno(out)) && (none == NULL || none[0] == '\0') && !is_dumb;
}

/* Green is well, yellow is on its way, red is over or wrong. */
static const char *color_of(const char *text) {
    static const struct {
        const char *word, *color;
    } colors[] = {
        {"alive", "\033[32m"},   {"running", "\033[32m"},    {"placed", "\033[32m"},
        {"pending", "\033[33m"}, {"restarting", "\033[33m"}, {"draining", "\033[33m"},
        {"dead", "\033[31m"},    {"failed", "\033[31m"},     {"lost", "\033[31m"},
    };
    for (size_t i = 0; i < TRPI_COUNTOF(colors); i++) {
        if (strcasecmp(text, colors[i].word) == 0) {
            return colors[i].color;
        }
    }
    return NULL;
}

/* ---- Tables ---- */

enum { CELL_MIN = 8, GAP = 2 };

typedef struct table {
    const trpi_column *columns;
    size_t count, last; /* last: that is there */
    int *widths;
    bool *there;
    bool has_colors;
} table;

static bool measure(json_t *rows, const trpi_column *column, int *ret_width) {
    bool is_there = json_array_size(rows) == 0;
    int width = width_of(column->title);
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        char cell[CELL];
        is_there |= !is_empty(json_object_get(row, column->key));
        cell_text(row, column, cell, sizeof(cell));
        width = TRPI_MAX(width, width_of(cell));
    }
    *ret_width = width;
    return is_there;
}

/* The longest cell gives way first, so that a long message does not cost an id; a state never does.
 */
static void make_fit(table *t, int line) {
    for (;;) {
        int sum = 0;
        size_t widest = 0;
        for (size_t c = 0; c < t->count; c++) {
            bool can_give = t->there[c] && strcmp(t->columns[c].key, "state") != 0;
            sum += t->there[c] ? t->widths[c] + (c == t->last ? 0 : GAP) : 0;
            if (can_give && (!t->there[widest] || t->widths[c] >= t->widths[widest])) {
                widest = c;
            }
        }
        if (line == 0 || sum <= line || t->widths[widest] <= CELL_MIN) {
            return;
        }
        t->widths[widest] = TRPI_MAX(CELL_MIN, t->widths[widest] - (sum - line));
    }
}

/* At most `width` columns of it, the last one an ellipsis when something is left out. */
static void cut(char *text, int width) {
    if (width_of(text) <= width) {
        return;
    }
    int left = width - 1;
    char *at = text;
    while (*at != '\0' && (left > 0 || ((unsigned char)*at & 0xC0) == 0x80)) {
        left -= ((unsigned char)at[1] & 0xC0) != 0x80;
        at++;
    }
    trpi_format(at, CELL - (size_t)(at - text), "…");
}

static void print_cell(FILE *out, const table *t, size_t c, char *text) {
    cut(text, t->widths[c]);
    int pad = c == t->last ? 0 : t->widths[c] - width_of(text) + GAP;
    const char *color = t->has_colors ? color_of(text) : NULL;
    fprintf(out, "%s%s%s%*s", color ? color : "", text, color ? "\033[0m" : "", pad, "");
}

static void print_line(FILE *out, const table *t, json_t *row) {
    for (size_t c = 0; c < t->count; c++) {
        char cell[CELL];
        if (!t->there[c]) {
            continue;
        }
        if (row != NULL) {
            cell_text(row, &t->columns[c], cell, sizeof(cell));
        } else {
            TRPI_SET(cell, t->columns[c].title);
        }
        print_cell(out, t, c, cell);
    }
    fprintf(out, "\n");
}

void trpi_rows_print(FILE *out, json_t *rows, const trpi_column *columns, size_t count) {
    table t = {.columns = columns, .count = count, .has_colors = has_colors(out)};
    size_t i;
    json_t *row;
    t.widths = trpi_alloc(count * sizeof(*t.widths));
    t.there = trpi_alloc(count * sizeof(*t.there));
    for (size_t c = 0; c < count; c++) {
        t.there[c] = measure(rows, &columns[c], &t.widths[c]);
        t.last = t.there[c] ? c : t.last;
    }
    make_fit(&t, line_width(out));
    print_line(out, &t, NULL);
    json_array_foreach(rows, i, row) {
        print_line(out, &t, row);
    }
    free(t.widths);
    free(t.there);
}

/* ---- One row ---- */

/* Ages and sizes are known by the end of their names. */
static trpi_unit unit_of(const char *key) {
    size_t size = strlen(key);
    if (size > 2 && strcmp(key + size - 2, "_s") == 0) {
        return TRPI_SECONDS;
    }
    bool is_bytes = (size > 6 && strcmp(key + size - 6, "_bytes") == 0) ||
                    strncmp(key, "memory_", 7) == 0 || strcmp(key, "store_used") == 0 ||
                    strcmp(key, "store_capacity") == 0;
    return is_bytes && strcmp(key, "memory_kills") != 0 ? TRPI_BYTES : TRPI_PLAIN;
}

static const char *prefix_of(const char *key) {
    static const char *const prefixes[][2] = {{"node", "n"},   {"actor", "a"}, {"owner", "a"},
                                              {"group", "g"},  {"gang", "x"},  {"job", "j"},
                                              {"trainer", "a"}};
    for (size_t i = 0; i < TRPI_COUNTOF(prefixes); i++) {
        if (strcmp(key, prefixes[i][0]) == 0) {
            return prefixes[i][1];
        }
    }
    return NULL;
}

static void print_text_lines(FILE *out, const char *text, int indent) {
    while (*text != '\0') {
        char line[CELL];
        size_t size = strcspn(text, "\n");
        trpi_format(line, sizeof(line), "%.*s", (int)size, text);
        make_printable(line);
        fprintf(out, "%*s%s\n", indent, "", line);
        text += size + (text[size] == '\n');
    }
}

static void print_member(FILE *out, json_t *row, const char *key, int indent);

static void print_members(FILE *out, json_t *row, int indent) {
    const char *key;
    json_t *value;
    json_object_foreach(row, key, value) {
        print_member(out, row, key, indent);
    }
}

static void print_objects(FILE *out, json_t *array, int indent) {
    size_t i;
    json_t *row;
    json_array_foreach(array, i, row) {
        char cell[CELL];
        trpi_value_text(row, NULL, cell, sizeof(cell));
        make_printable(cell);
        fprintf(out, "%*s%s\n", indent, "", cell);
    }
}

/* Members whose values are all numbers fit on a line. */
static bool is_flat(json_t *object) {
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        if (!json_is_number(value) || unit_of(key) != TRPI_PLAIN) {
            return false;
        }
    }
    return true;
}

static void print_member(FILE *out, json_t *row, const char *key, int indent) {
    json_t *value = json_object_get(row, key);
    trpi_column column = {.key = key, .prefix = prefix_of(key), .unit = unit_of(key)};
    char cell[CELL];
    const char *text = json_string_value(value);
    if (text != NULL && strchr(text, '\n') != NULL) {
        fprintf(out, "%*s%s:\n", indent, "", key);
        print_text_lines(out, text, indent + 2);
    } else if (json_is_object(value) && !is_flat(value)) {
        fprintf(out, "%*s%s:\n", indent, "", key);
        print_members(out, value, indent + 2);
    } else if (json_is_object(json_array_get(value, 0))) {
        fprintf(out, "%*s%s:\n", indent, "", key);
        print_objects(out, value, indent + 2);
    } else {
        cell_text(row, &column, cell, sizeof(cell));
        fprintf(out, "%*s%s: %s\n", indent, "", key, cell);
    }
}

void trpi_row_print(FILE *out, json_t *row, const char *prefix) {
    char id[32];
    if (prefix != NULL) {
        trpi_value_text(json_object_get(row, "id"), prefix, id, sizeof(id));
        json_object_set_new(row, "id", json_string(id));
    }
    print_members(out, row, 0);
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
