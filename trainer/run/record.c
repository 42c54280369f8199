#include "trainer/run/record.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/json.h"
#include "trainer/state/controller.h"

enum { RECORD_VERSION = 1, RECORD_BYTES_MAX = 64 << 20 };

/* ---- Scores ---- */

int64_t trpi_record_score(double value, bool smaller_is_better) {
    if (isnan(value)) {
        return TRPI_SCORE_WORST;
    }
    double better = smaller_is_better ? -value : value;
    int64_t bits;
    memcpy(&bits, &better, sizeof(bits));
    /* The bits of positive doubles are ordered as the doubles are; of negative ones the other way
     * round. */
    return bits >= 0 ? bits : (int64_t)(INT64_MIN - bits);
}

static int64_t score_of(const trpi_run_plan *plan, const trpi_manifest *manifest) {
    if (plan->score_by[0] == '\0') {
        return (int64_t)(manifest->number & INT64_MAX);
    }
    for (size_t i = 0; i < manifest->metric_count; i++) {
        if (strcmp(manifest->metrics[i].name, plan->score_by) == 0) {
            return trpi_record_score(manifest->metrics[i].value, plan->order == TRP_SCORE_MIN);
        }
    }
    return TRPI_SCORE_WORST;
}

/* ---- Entries ---- */

static void forget_entries(trpi_record *record) {
    for (size_t i = 0; i < record->count; i++) {
        trpi_manifest_release(&record->entries[i].manifest);
    }
    record->count = 0;
}

trp_code trpi_record_add(trpi_record *record, trpi_manifest *manifest, trp_error *err) {
    if (record->count == record->capacity) {
        size_t capacity = record->capacity == 0 ? 16 : record->capacity * 2;
        trpi_record_entry *entries = realloc(record->entries, capacity * sizeof(*entries));
        if (entries == NULL) {
            return trpi_fail(err, TRP_ENOMEM, "list of checkpoints");
        }
        record->entries = entries;
        record->capacity = capacity;
    }
    trpi_record_entry *entry = &record->entries[record->count++];
    entry->number = manifest->number;
    entry->score = score_of(record->plan, manifest);
    entry->manifest = *manifest;
    *manifest = (trpi_manifest){0};
    return TRP_OK;
}

const trpi_record_entry *trpi_record_latest(const trpi_record *record) {
    return record->count > 0 ? &record->entries[record->count - 1] : NULL;
}

trp_code trpi_record_path(const trpi_record *record, uint64_t number, trp_buf *out) {
    return trp_buf_printf(out, "%s/checkpoint_%06" PRIu64, trpi_ckpt_store_path(record->store),
                          number);
}

/* ---- Opening ---- */

/* The last attempt that run.json knows of; 0 in a new run. */
static trp_code read_attempt(const trpi_ckpt_store *store, uint64_t *ret_attempt, trp_error *err) {
    trp_buf text = {0};
    json_t *json = NULL;
    int64_t attempt = 0;
    trp_error inner = {0};
    trp_code code = trpi_ckpt_store_read_record(store, &text, &inner);
    if (code == TRP_ENOTFOUND) {
        *ret_attempt = 0;
        code = TRP_OK;
        goto out;
    }
    if (code == TRP_OK) {
        code = trpi_json_parse((const char *)text.data, text.size, "run.json", &json, &inner);
    }
    if (code == TRP_OK) {
        code = trpi_json_i64(json, "run.json", "attempt", true, &attempt, &inner);
    }
    if (code == TRP_OK && attempt < 0) {
        code = trpi_fail(&inner, TRP_EINVALID, "run.json: attempt is negative");
    }
    if (code == TRP_OK) {
        *ret_attempt = (uint64_t)attempt;
        goto out;
    }
    code = code == TRP_EINVALID ? TRP_ECORRUPT : code;
    code = trpi_fail(err, code,
                     "%s/%s; the checkpoints beside it are whole if they verify: remove run.json "
                     "to go on from them",
                     trpi_ckpt_store_path(store), inner.message);
out:
    json_decref(json);
    trp_buf_release(&text);
    return code;
}

static trp_code list_entries(trpi_record *record, trp_error *err) {
    trpi_checkpoint *found = NULL;
    size_t count = 0;
    trp_code code = trpi_ckpt_store_list(record->store, &found, &count, err);
    forget_entries(record);
    for (size_t i = 0; code == TRP_OK && i < count; i++) {
        if (found[i].damage.code == TRP_OK) {
            record->attempt = TRPI_MAX(record->attempt, found[i].manifest.attempt);
            code = trpi_record_add(record, &found[i].manifest, err);
        }
    }
    trpi_checkpoints_free(found, count);
    return code;
}

/* run.json may be older than the last attempt, or gone: the fence and the checkpoints know, too. */
trp_code trpi_record_open(trpi_record *record, const trpi_run_plan *plan, trp_error *err) {
    uint64_t owner = 0;
    *record = (trpi_record){.plan = plan};
    trp_code code = trpi_ckpt_store_open(plan->storage, plan->name, TRPI_CKPT_STORE_AUTO,
                                         &record->store, NULL, err);
    if (code == TRP_OK) {
        code = read_attempt(record->store, &record->attempt, err);
    }
    if (code == TRP_OK) {
        code = trpi_ckpt_store_attempt(record->store, &owner, err);
        record->attempt = TRPI_MAX(record->attempt, owner);
    }
    return code == TRP_OK ? list_entries(record, err) : code;
}

trp_code trpi_record_check_owner(const trpi_record *record, trp_error *err) {
    uint64_t owner = 0;
    trp_code code = trpi_ckpt_store_attempt(record->store, &owner, err);
    if (code == TRP_OK && owner > record->attempt) {
        code = trpi_fail(err, TRP_ECANCELED,
                         "%s: another driver has taken this run over, with attempt %" PRIu64
                         "; ours was attempt %" PRIu64,
                         trpi_ckpt_store_path(record->store), owner, record->attempt);
    }
    return code;
}

void trpi_record_release(trpi_record *record) {
    forget_entries(record);
    free(record->entries);
    trpi_ckpt_store_close(record->store);
    *record = (trpi_record){0};
}

typedef struct damage_notice {
    trpi_record_notice notice;
    void *arg;
} damage_notice;

static void on_damaged(void *arg, uint64_t number, const char *path, const trp_error *damage) {
    damage_notice *to = arg;
    char text[1024];
    trpi_format(text, sizeof(text), "%s is damaged and passed over: %s", path, damage->message);
    to->notice(to->arg, text);
}

/* Those above the newest that verifies are damaged: they stay where they are, but are neither the
 * latest nor among the best. */
static const trpi_record_entry *forget_above(trpi_record *record, uint64_t number) {
    while (record->count > 0 && record->entries[record->count - 1].number > number) {
        trpi_manifest_release(&record->entries[--record->count].manifest);
    }
    return trpi_record_latest(record);
}

trp_code trpi_record_begin(trpi_record *record, uint64_t attempt, trpi_record_notice notice,
                           void *notice_arg, const trpi_record_entry **ret_newest, trp_error *err) {
    damage_notice to = {notice, notice_arg};
    trpi_checkpoint *newest = NULL;
    trp_code code = trpi_ckpt_store_claim(record->store, attempt, err);
    if (code == TRP_OK) {
        record->attempt = attempt;
        record->owned = true;
        code = trpi_ckpt_store_sweep(record->store, attempt, err);
    }
    if (code == TRP_OK) {
        code = list_entries(record, err);
    }
    if (code == TRP_OK) {
        trp_error inner = {0};
        code = trpi_ckpt_store_newest(record->store, TRPI_VERIFY_CHECKSUMS, on_damaged, &to,
                                      &newest, &inner);
        if (code == TRP_ENOTFOUND) {
            *ret_newest = NULL;
            return TRP_OK;
        }
        if (code != TRP_OK) {
            return trpi_fail(err, code, "%s: %s", trpi_ckpt_store_path(record->store),
                             inner.message);
        }
    }
    if (code == TRP_OK) {
        *ret_newest = forget_above(record, newest->number);
        trpi_checkpoints_free(newest, 1);
    }
    return code;
}

/* ---- Pruning ---- */

static void remove_entry(trpi_record *record, size_t index) {
    trpi_manifest_release(&record->entries[index].manifest);
    record->count--;
    memmove(&record->entries[index], &record->entries[index + 1],
            (record->count - index) * sizeof(*record->entries));
}

trp_code trpi_record_prune(trpi_record *record, trp_error *err) {
    trpi_keep *keep = calloc(record->count + 1, sizeof(*keep));
    if (keep == NULL) {
        return trpi_fail(err, TRP_ENOMEM, "list of checkpoints");
    }
    for (size_t i = 0; i < record->count; i++) {
        keep[i] = (trpi_keep){record->entries[i].number, record->entries[i].score, false};
    }
    trpi_keep_select(keep, record->count, (size_t)record->plan->keep);
    trp_code code = TRP_OK;
    for (size_t i = record->count; code == TRP_OK && i-- > 0;) {
        if (keep[i].keep) {
            continue;
        }
        code = trpi_ckpt_store_remove(record->store, keep[i].number, err);
        if (code == TRP_OK || code == TRP_ENOTFOUND) { /* someone has removed it by hand */
            remove_entry(record, i);
            code = TRP_OK;
        }
    }
    free(keep);
    return code;
}

/* ---- run.json and metrics.jsonl ---- */

/* JSON has no such numbers; the manifest spells them the same way. */
static json_t *json_of_double(double value) {
    if (isnan(value)) {
        return json_string("NaN");
    }
    if (isinf(value)) {
        return json_string(value > 0 ? "Infinity" : "-Infinity");
    }
    return json_real(value);
}

/* jansson answers a NULL value or object with -1, so the chain needs one check at its end. */
static json_t *json_of_metrics(const trpi_manifest *manifest) {
    json_t *metrics = json_object();
    for (size_t i = 0; i < manifest->metric_count; i++) {
        const trpi_manifest_metric *metric = &manifest->metrics[i];
        if (json_object_set_new(metrics, metric->name, json_of_double(metric->value)) != 0) {
            json_decref(metrics);
            return NULL;
        }
    }
    return metrics;
}

static json_t *json_of_entry(const trpi_record_entry *entry) {
    char name[64];
    trpi_format(name, sizeof(name), "checkpoint_%06" PRIu64, entry->number);
    return json_pack("{s:s, s:I, s:I, s:o}", "name", name, "step", (json_int_t)entry->manifest.step,
                     "attempt", (json_int_t)entry->manifest.attempt, "metrics",
                     json_of_metrics(&entry->manifest));
}

static json_t *json_of_run(const trpi_record *record, trp_run_state state, int restarts,
                           uint64_t step) {
    const trpi_record_entry *latest = trpi_record_latest(record);
    char name[64] = "";
    if (latest != NULL) {
        trpi_format(name, sizeof(name), "checkpoint_%06" PRIu64, latest->number);
    }
    const trpi_run_plan *plan = record->plan;
    return json_pack("{s:i, s:s, s:s, s:s, s:I, s:i, s:I, s:I, s:s, s:s}", "version",
                     RECORD_VERSION, "name", plan->name, "function", plan->function, "state",
                     trp_run_state_name(state), "attempt", (json_int_t)record->attempt, "restarts",
                     restarts, "step", (json_int_t)step, "workers", (json_int_t)plan->workers,
                     "checkpoint", name, "dir", trpi_ckpt_store_path(record->store));
}

static trp_code add_checkpoints(const trpi_record *record, json_t *run, trp_error *err) {
    json_t *list = json_array();
    for (size_t i = 0; i < record->count; i++) {
        if (json_array_append_new(list, json_of_entry(&record->entries[i])) != 0) {
            json_decref(list);
            return trpi_fail(err, TRP_ENOMEM, "run.json");
        }
    }
    if (json_object_set_new(run, "checkpoints", list) != 0) {
        return trpi_fail(err, TRP_ENOMEM, "run.json");
    }
    return TRP_OK;
}

static trp_code write_json(const json_t *json, trp_buf *out, trp_error *err) {
    return json != NULL ? trpi_json_write(json, out, err) : trpi_fail(err, TRP_ENOMEM, "JSON");
}

trp_code trpi_record_write(trpi_record *record, trp_run_state state, int restarts, uint64_t step,
                           trp_error *err) {
    trp_buf text = {0};
    json_t *run = NULL;
    trp_code code = trpi_record_check_owner(record, err);
    if (code == TRP_OK) {
        run = json_of_run(record, state, restarts, step);
        code = run != NULL ? add_checkpoints(record, run, err) : TRP_OK;
    }
    if (code == TRP_OK) {
        code = write_json(run, &text, err);
    }
    if (code == TRP_OK) {
        code = trpi_ckpt_store_write_record(record->store, trp_buf_bytes(&text), err);
    }
    json_decref(run);
    trp_buf_release(&text);
    return code;
}

trp_code trpi_record_summary(const trpi_record *record, uint64_t trainer, trp_run_state state,
                             int restarts, uint64_t step, trp_buf *out, trp_error *err) {
    json_t *run = json_of_run(record, state, restarts, step);
    json_object_set_new(run, "trainer", json_integer((json_int_t)trainer));
    json_object_set_new(run, "ended", json_boolean(trpi_run_state_is_final(state)));
    trp_code code = write_json(run, out, err);
    json_decref(run);
    return code;
}

trp_code trpi_record_metrics(trpi_record *record, uint64_t attempt, uint64_t step,
                             const trpi_manifest *manifest, trp_error *err) {
    trp_buf text = {0};
    json_t *line = json_pack("{s:I, s:I, s:o}", "attempt", (json_int_t)attempt, "step",
                             (json_int_t)step, "metrics", json_of_metrics(manifest));
    trp_code code = write_json(line, &text, err);
    if (code == TRP_OK) {
        code = trpi_ckpt_store_append_metrics(record->store, trp_buf_bytes(&text), false, err);
    }
    json_decref(line);
    trp_buf_release(&text);
    return code;
}
