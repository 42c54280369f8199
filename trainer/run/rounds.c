/* rounds.c: what a complete round of reports does to the run: its progress is counted, its metrics
 * are written down, its checkpoint is committed. */
#include <inttypes.h>
#include <stdlib.h>

#include "core/base/log.h"
#include "trainer/run/clock.h"
#include "trainer/run/trainer.h"

static trp_code next_number(void *arg, uint64_t *ret_number, trp_error *err) {
    trpi_trainer *t = arg;
    return trpi_ckpt_store_next_number(t->record.store, ret_number, err);
}

static void discard(void *arg, uint64_t attempt, uint64_t number) {
    trpi_trainer *t = arg;
    trp_error err = {0};
    if (trpi_ckpt_store_discard(t->record.store, attempt, number, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "discard_staging", "error=\"%s\"", err.message); /* sweep() gets it */
    }
}

/* The first complete round after a restart ends the recovery. The workers told how long they took
 * to join and to load; what they cannot know is the rest. */
static void end_recovery(trpi_trainer *t, uint64_t now_ns) {
    const trpi_recovery *r = &t->recovery;
    if (r->started_ns == 0) {
        return;
    }
    uint64_t open_ns = TRPI_MIN(t->collector.open_ns, now_ns - r->started_ns);
    uint64_t load_ns = TRPI_MIN(TRPI_MAX(t->collector.load_ns, open_ns), now_ns - r->started_ns);
    double split_ms[5] = {
        trpi_run_to_ms(r->told_ns - r->noticed_ns),
        trpi_run_to_ms(r->respawned_ns - r->told_ns),
        trpi_run_to_ms(r->started_ns - r->respawned_ns + open_ns),
        trpi_run_to_ms(load_ns - open_ns),
        trpi_run_to_ms(now_ns - r->started_ns - load_ns),
    };
    double total_ms = trpi_run_to_ms(now_ns - r->noticed_ns);
    double *all = realloc(t->recovery_ms, (t->recovery_count + 1) * sizeof(*all));
    if (all != NULL) {
        t->recovery_ms = all;
        t->recovery_ms[t->recovery_count++] = total_ms;
    }
    t->recovery = (trpi_recovery){0};
    trpi_news_recovered(t, split_ms, total_ms, now_ns);
}

static trp_code copy_metrics(const trpi_manifest *from, trpi_manifest *to, trp_error *err) {
    trpi_manifest_release(to);
    trp_code code = TRP_OK;
    for (size_t i = 0; code == TRP_OK && i < from->metric_count; i++) {
        code = trpi_manifest_add_metric(to, from->metrics[i].name, from->metrics[i].value, err);
    }
    return code;
}

/* run.json is written before anything is removed: it never lists what is gone. */
static trp_code commit(trpi_trainer *t, trpi_manifest *manifest, trp_buf *ret_path,
                       trp_error *err) {
    uint64_t begun_ns = trpi_run_now_ns();
    trp_code code = trpi_ckpt_store_commit(t->record.store, manifest, NULL, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "commit checkpoint %" PRIu64, manifest->number);
    }
    uint64_t number = manifest->number;
    code = trpi_record_add(&t->record, manifest, err);
    if (code == TRP_OK) {
        code = trpi_record_path(&t->record, number, ret_path);
    }
    if (code == TRP_OK) {
        code = trpi_record_write(&t->record, t->controller.state, t->controller.restarts,
                                 t->progress.step, err);
    }
    if (code == TRP_OK) {
        trpi_news_checkpoint(t, trpi_record_latest(&t->record),
                             trpi_run_to_ms(trpi_run_now_ns() - begun_ns));
        code = trpi_record_prune(&t->record, err);
    }
    return code;
}

static trp_code complete(void *arg, trpi_round *round, trp_buf *ret_path, trp_error *err) {
    trpi_trainer *t = arg;
    uint64_t now_ns = trpi_run_now_ns();
    trpi_progress_step(&t->progress, round->step, now_ns);
    end_recovery(t, now_ns);
    trpi_news_report(t, round);
    trp_code code = copy_metrics(&round->manifest, &t->last, err);
    if (code == TRP_OK) {
        code = trpi_record_metrics(&t->record, t->controller.attempt, round->step, &round->manifest,
                                   err);
    }
    if (code == TRP_OK && round->has_checkpoint) {
        code = commit(t, &round->manifest, ret_path, err);
    }
    return code;
}

trpi_collector_hooks trpi_trainer_hooks(trpi_trainer *trainer) {
    return (trpi_collector_hooks){trainer, next_number, complete, discard};
}
