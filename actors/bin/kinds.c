#include "actors/bin/kinds.h"

#include <inttypes.h>
#include <string.h>

#include "actors/bin/options.h"
#include "actors/bin/units.h"

static void set_text(json_t *row, const char *key, const char *text) {
    json_object_set_new(row, key, trpi_json_of_text(text));
}

static double number(json_t *row, const char *key) {
    return json_number_value(json_object_get(row, key));
}

static const char *text_of(json_t *row, const char *key) {
    const char *text = json_string_value(json_object_get(row, key));
    return text ? text : "";
}

/* ---- Members that only tables show ---- */

/* "cpu 2/4, memory 1.0 GiB/16 GiB": used of what there is. */
static void set_use(json_t *row) {
    json_t *total;
    const char *name;
    char text[512] = "";
    json_object_foreach(json_object_get(row, "total"), name, total) {
        char used[64], all[64];
        size_t at = strlen(text);
        trpi_rows_amount(name, json_object_get(json_object_get(row, "used"), name), used,
                         sizeof(used));
        trpi_rows_amount(name, total, all, sizeof(all));
        trpi_format(text + at, sizeof(text) - at, "%s%s %s/%s", at ? ", " : "", name, used, all);
    }
    set_text(row, "use", text);
}

static void set_share(json_t *row, const char *key, json_t *stats, const char *used,
                      const char *total) {
    char a[32], b[32], text[80];
    if (json_is_object(stats)) {
        trpi_size_text((uint64_t)number(stats, used), a, sizeof(a));
        trpi_size_text((uint64_t)number(stats, total), b, sizeof(b));
        trpi_format(text, sizeof(text), "%s/%s", a, b);
        set_text(row, key, text);
    }
}

static void prepare_node(json_t *row) {
    json_t *stats = json_object_get(row, "stats");
    char note[256] = "", left[32];
    set_use(row);
    set_share(row, "memory", stats, "memory_used", "memory_total");
    set_share(row, "store", stats, "store_used", "store_capacity");
    if (strcmp(text_of(row, "state"), "draining") == 0) {
        trpi_duration_text(number(row, "drain_left_s"), left, sizeof(left));
        trpi_format(note, sizeof(note), "%s left: %s", left, text_of(row, "drain_reason"));
    } else if (strcmp(text_of(row, "state"), "dead") == 0) {
        trpi_format(note, sizeof(note), "%s", text_of(row, "reason"));
    }
    set_text(row, "note", note);
}

/* "signaled, signal 9" instead of all that is known of a death. */
static void prepare_actor(json_t *row) {
    json_t *death = json_object_get(row, "death");
    const char *cause = text_of(death, "cause");
    int signal_number = (int)number(death, "signal"), exit_code = (int)number(death, "exit_code");
    char text[256];
    trpi_format(text, sizeof(text), "%s", cause);
    if (signal_number != 0) {
        trpi_format(text, sizeof(text), "%s, signal %d", cause, signal_number);
    } else if (exit_code != 0) {
        trpi_format(text, sizeof(text), "%s, exit code %d", cause, exit_code);
    }
    set_text(row, "last_death", text);
}

static void prepare_group(json_t *row) {
    json_t *nodes = json_array(), *needs = json_array(), *bundle;
    size_t i;
    json_array_foreach(json_object_get(row, "bundles"), i, bundle) {
        json_array_append(nodes, json_object_get(bundle, "node"));
        json_array_append(needs, json_object_get(bundle, "resources"));
    }
    json_object_set_new(row, "bundle_nodes", nodes);
    json_object_set_new(row, "bundle_needs", needs);
}

static void prepare_gang(json_t *row) {
    char text[64];
    trpi_format(text, sizeof(text), "%.0f/%.0f", number(row, "running"), number(row, "members"));
    set_text(row, "running_of", text);
}

static void prepare_nothing(json_t *row) {
    (void)row;
}

/* ---- The table ---- */

const trpi_kind trpi_kinds[] = {
    {"node",
     "nodes",
     "n",
     prepare_node,
     {{"NODE", "id", "n"},
      {"STATE", "state", NULL},
      {"NAME", "name", NULL},
      {"HOST", "host", NULL},
      {"PID", "pid", ""},
      {"ACTORS", "actors", NULL},
      {"RESOURCES IN USE", "use", NULL},
      {"HOST'S MEMORY", "memory", NULL},
      {"SINCE", "age_s", NULL, TRPI_SECONDS},
      {"LABELS", "labels", NULL},
      {"NOTE", "note", NULL}},
     11},
    {"actor",
     "actors",
     "a",
     prepare_actor,
     {{"ACTOR", "id", "a"},
      {"STATE", "state", NULL},
      {"TYPE", "type", NULL},
      {"NAME", "name", NULL},
      {"NODE", "node", "n"},
      {"PID", "pid", ""},
      {"JOB", "job", "j"},
      {"RESTARTS", "restarts", NULL},
      {"SINCE", "age_s", NULL, TRPI_SECONDS},
      {"RESOURCES", "resources", NULL},
      {"DEVICES", "devices", NULL},
      {"LAST DEATH", "last_death", NULL},
      {"WAITING FOR", "waiting_for", NULL}},
     13},
    {"group",
     "groups",
     "g",
     prepare_group,
     {{"GROUP", "id", "g"},
      {"STATE", "state", NULL},
      {"NAME", "name", NULL},
      {"STRATEGY", "strategy", NULL},
      {"JOB", "job", "j"},
      {"BUNDLES", "bundle_needs", NULL},
      {"NODES", "bundle_nodes", "n"},
      {"WAITING FOR", "waiting_for", NULL}},
     8},
    {"gang",
     "gangs",
     "x",
     prepare_gang,
     {{"GANG", "id", "x"},
      {"STATE", "state", NULL},
      {"NAME", "name", NULL},
      {"POLICY", "policy", NULL},
      {"JOB", "job", "j"},
      {"RUNNING", "running_of", NULL},
      {"RESTARTS", "restarts", NULL},
      {"REASON", "reason", NULL}},
     8},
    {"job",
     "jobs",
     "j",
     prepare_nothing,
     {{"JOB", "id", "j"},
      {"STATE", "state", NULL},
      {"NAME", "name", NULL},
      {"PID", "pid", ""},
      {"NAMESPACE", "namespace", NULL},
      {"ACTORS", "actors", NULL},
      {"STARTED", "age_s", NULL, TRPI_SECONDS},
      {"REASON", "reason", NULL}},
     8},
    {"run",
     "runs",
     NULL,
     prepare_nothing,
     {{"RUN", "name", NULL},
      {"STATE", "state", NULL},
      {"STEP", "step", NULL},
      {"ATTEMPT", "attempt", NULL},
      {"WORKERS", "workers", NULL},
      {"RESTARTS", "restarts", NULL},
      {"CHECKPOINT", "checkpoint", NULL},
      {"DIRECTORY", "dir", NULL}},
     8},
};
const size_t trpi_kind_count = TRPI_COUNTOF(trpi_kinds);

const trpi_kind *trpi_kind_find(const char *command, const char *word) {
    const char *names[2 * TRPI_COUNTOF(trpi_kinds)];
    size_t count = 0;
    for (size_t i = 0; i < trpi_kind_count; i++) {
        const trpi_kind *kind = &trpi_kinds[i];
        if (strcmp(word, kind->one) == 0 || strcmp(word, kind->many) == 0) {
            return kind;
        }
        names[count++] = kind->many;
        names[count++] = kind->one;
    }
    const char *near = trpi_nearest(word, names, count);
    (void)trpi_usage_error(
        command, "there are no %s; %s%s%s", word, near ? "did you mean " : "it is one of ",
        near ? near : "nodes, actors, groups, gangs, jobs, runs", near ? "?" : "");
    return NULL;
}

bool trpi_kind_id(const char *command, const trpi_kind *kind, const char *word, uint64_t *ret_id) {
    const char *digits = word + (word[0] == kind->prefix[0]);
    if (trpi_parse_u64(digits, UINT64_MAX, ret_id) && *ret_id != 0) {
        return true;
    }
    for (size_t i = 0; i < trpi_kind_count; i++) {
        const trpi_kind *other = &trpi_kinds[i];
        if (other->prefix != NULL && word[0] == other->prefix[0] && other != kind &&
            trpi_parse_u64(word + 1, UINT64_MAX, ret_id)) {
            (void)trpi_usage_error(command, "\"%s\" is one of the %s; %s are called %s1, %s2, ...",
                                   word, other->many, kind->many, kind->prefix, kind->prefix);
            return false;
        }
    }
    (void)trpi_usage_error(command, "\"%s\" is no %s; they are called %s1, %s2, ...", word,
                           kind->one, kind->prefix, kind->prefix);
    return false;
}

void trpi_kind_print(FILE *out, const trpi_kind *kind, json_t *rows) {
    size_t i;
    json_t *row;
    json_array_foreach(rows, i, row) {
        kind->prepare(row);
    }
    trpi_rows_print(out, rows, kind->columns, kind->column_count);
}
