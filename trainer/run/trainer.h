/* trainer.h: the trainer of a run, an actor with two threads.
 *
 *   methods thread   serves the driver (fit, events, abort, leave) and the ranks (stage, report);
 *                    commits checkpoints, because that is what ranks wait for
 *   drive thread     drive.c: places, starts, watches, stops and restarts the workers, as the pure
 *                    controller says; the only one that calls the runtime
 *
 * They share what `lock` guards. The lock is held while a checkpoint is committed: a failure that
 * is noticed meanwhile is acted on afterwards, so that it is never unclear whether an attempt's
 * last checkpoint counts. */
#ifndef TRPI_TRAINER_H
#define TRPI_TRAINER_H

#include <pthread.h>
#include <stdatomic.h>
#include <troupe/train.h>

#include "trainer/run/collector.h"
#include "trainer/run/gang.h"
#include "trainer/run/journal.h"
#include "trainer/run/record.h"
#include "trainer/state/controller.h"
#include "trainer/state/progress.h"

/* Where the time of a recovery went: moments on the trainer's clock; 0 = no recovery under way. */
typedef struct trpi_recovery {
    uint64_t noticed_ns, told_ns, respawned_ns, started_ns;
} trpi_recovery;

typedef struct trpi_trainer {
    trp_context *ctx;
    trp_buf plan_bytes;
    trpi_arena arena;
    trpi_run_plan plan; /* in plan_bytes and arena; read-only once the thread runs */
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;

    pthread_mutex_t lock; /* of all from here */
    trpi_record record;
    trpi_collector collector;
    trpi_journal journal;
    trpi_progress progress;
    trpi_controller controller;
    trpi_recovery recovery;
    trpi_manifest last; /* its metrics: rank 0's last */
    trp_buf from;       /* path of the checkpoint that the attempt begins with; empty = none */
    uint64_t from_step; /* its step */
    double *recovery_ms;
    size_t recovery_count;

    /* The drive thread's own. */
    trp_runtime *rt;
    trpi_run_gang gang;
    trp_rank_failure *failures; /* of the attempt that failed last; the cause first */
    size_t failure_count;
    trp_error broken;      /* why no attempt could be started; code 0 = nothing */
    bool superseded;       /* another trainer owns the run: its directory is not ours any more */
    uint64_t published_ns; /* when the key-value store was told last */
} trpi_trainer;

/* drive.c: the drive thread, from INITIALIZING to a final state and the journal's end. */
void *trpi_trainer_drive(void *trainer);

/* rounds.c: what the collector calls, with the lock held. */
trpi_collector_hooks trpi_trainer_hooks(trpi_trainer *trainer);

/* news.c: tells the driver. With the lock held. */
void trpi_news_state(trpi_trainer *trainer, const char *detail);
void trpi_news_running(trpi_trainer *trainer);
void trpi_news_report(trpi_trainer *trainer, const trpi_round *round);
void trpi_news_checkpoint(trpi_trainer *trainer, const trpi_record_entry *entry, double took_ms);
void trpi_news_failure(trpi_trainer *trainer, const trp_rank_failure *failure, uint64_t noticed_ns);
void trpi_news_recovered(trpi_trainer *trainer, const double split_ms[5], double total_ms,
                         uint64_t now_ns);
TRP_CHECKED trp_code trpi_news_end(trpi_trainer *trainer, trp_error *err);

#endif
