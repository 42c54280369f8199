/* record.h: the run's directory as the trainer sees it: which checkpoints there are, how good they
 * are, and run.json, which is replaced whole after every change.
 *
 * The directories are the truth: what is committed there exists, with the step and the metrics of
 * its manifest. run.json adds what they cannot tell (attempts, state) and is what tools read.
 * Threads: one at a time; the trainer's lock guards it. Blocking: on the disk. */
#ifndef TRPI_RECORD_H
#define TRPI_RECORD_H

#include <troupe/train.h>

#include "trainer/ckpt/store.h"
#include "trainer/run/messages.h"
#include "trainer/state/checkpoint_keep.h"

typedef struct trpi_record_entry {
    uint64_t number;
    int64_t score;
    trpi_manifest manifest;
} trpi_record_entry;

typedef struct trpi_record {
    const trpi_run_plan *plan; /* borrowed */
    trpi_ckpt_store *store;
    uint64_t attempt;           /* the last one used */
    bool owned;                 /* that one is ours: run.json may be written */
    trpi_record_entry *entries; /* by rising number, whole ones only */
    size_t count, capacity;
} trpi_record;

/* What happened to it that a user should know: a checkpoint that is damaged and passed over. */
typedef void (*trpi_record_notice)(void *arg, const char *text);

/* Opens (or makes) the directory and reads what is there; `attempt` is the highest of which there
 * is any trace. TRP_ECORRUPT for a run.json that does not read. Release also after an error. */
TRP_CHECKED trp_code trpi_record_open(trpi_record *record, const trpi_run_plan *plan,
                                      trp_error *err);
void trpi_record_release(trpi_record *record);

/* An attempt begins: takes the run for it, sweeps what earlier ones left, lists what is committed
 * and finds the newest checkpoint that verifies by its checksums: disks flip bits also while a run
 * is under way. *ret_newest is NULL when there is none at all, else borrowed until the next call.
 * TRP_ECORRUPT when all there are are damaged; TRP_ECANCELED when another trainer has taken the
 * run. */
TRP_CHECKED trp_code trpi_record_begin(trpi_record *record, uint64_t attempt,
                                       trpi_record_notice notice, void *notice_arg,
                                       const trpi_record_entry **ret_newest, trp_error *err);

/* TRP_ECANCELED when another trainer has begun a later attempt of this run: from then on it is not
 * ours to write to. */
TRP_CHECKED trp_code trpi_record_check_owner(const trpi_record *record, trp_error *err);

/* Takes *manifest, which is committed, and zeroes it. */
TRP_CHECKED trp_code trpi_record_add(trpi_record *record, trpi_manifest *manifest, trp_error *err);

/* Removes what the plan does not keep. Damaged ones stay: a person should see them. */
TRP_CHECKED trp_code trpi_record_prune(trpi_record *record, trp_error *err);

/* run.json with this state and step. TRP_ECANCELED as above. */
TRP_CHECKED trp_code trpi_record_write(trpi_record *record, trp_run_state state, int restarts,
                                       uint64_t step, trp_error *err);
/* Appends the same without the list of checkpoints, and with who writes it: what the key-value
 * store keeps of a run. A row that is not `ended` and whose trainer is dead will not change any
 * more. */
TRP_CHECKED trp_code trpi_record_summary(const trpi_record *record, uint64_t trainer,
                                         trp_run_state state, int restarts, uint64_t step,
                                         trp_buf *out, trp_error *err);

/* One line of metrics.jsonl. */
TRP_CHECKED trp_code trpi_record_metrics(trpi_record *record, uint64_t attempt, uint64_t step,
                                         const trpi_manifest *manifest, trp_error *err);

/* The latest entry, or NULL. */
const trpi_record_entry *trpi_record_latest(const trpi_record *record);
/* Appends {run}/checkpoint_%06d. */
TRP_CHECKED trp_code trpi_record_path(const trpi_record *record, uint64_t number, trp_buf *out);

/* An integer that is ordered as the metric's value is, under the plan's order; TRPI_SCORE_WORST for
 * NaN. */
int64_t trpi_record_score(double value, bool smaller_is_better);

#endif
