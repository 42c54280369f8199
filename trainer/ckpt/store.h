/* store.h: the directory of a run, and how a checkpoint becomes durable in it.
 *
 *   {storage}/{name}/
 *       run.json                       the trainer's own record, replaced atomically
 *       metrics.jsonl                  one line per report, appended
 *       checkpoint_000000/ ...         committed; each has a manifest.json
 *       .staging-<attempt>-<number>/   being written; rank r's files in .rank-<r>/
 *       .deleted-<number>/             being removed
 *       .deleted-<attempt>-<number>/   the same, of staging
 *       .last-number                   the highest number removed: numbers start above it
 *       .attempt                       the attempt that owns the run: older ones may not commit
 *
 * The life of a checkpoint. A process may be killed between any two steps, and within each:
 *
 *   stage()        ranks get .staging-A-N/.rank-R/ and write their files there
 *   seal()         each rank: files fsynced, sizes and checksums taken, directories fsynced
 *   commit()       files moved up into .staging-A-N/, manifest written, all fsynced;
 *                  ** rename to checkpoint_N **; fsync of the run directory
 *   remove()       ** rename to .deleted-N **, then the tree goes
 *   sweep()        what dead attempts and half-done removals left
 *
 * Only the starred renames change what a reader sees, so a checkpoint is there whole or not at all.
 * A trainer that was replaced and does not know it cannot commit: its successor's sweep() raised
 * .attempt and took the staging directories away. A number that was committed is never used again.
 *
 * A damaged checkpoint is never loaded and never skipped in silence: list() and newest() hand out
 * what is wrong with it. Knows nothing of what is in the files.
 *
 * Threads: a store is immutable after opening; different checkpoints may be worked on at once.
 * Blocking: on the disk only. Errors: TRP_EIO names path and reason (disk full among them). */
#ifndef TRPI_CKPT_STORE_H
#define TRPI_CKPT_STORE_H

#include "trainer/ckpt/manifest.h"

typedef struct trpi_ckpt_store trpi_ckpt_store;

typedef enum trpi_ckpt_store_mode {
    TRPI_CKPT_STORE_AUTO, /* open it, or create it */
    TRPI_CKPT_STORE_MUST, /* TRP_ENOTFOUND if it does not exist */
    TRPI_CKPT_STORE_NEVER /* TRP_EEXISTS if it exists */
} trpi_ckpt_store_mode;

/* A run exists once it has a run.json or a checkpoint. `name` is one path component that does not
 * start with '.'. storage: a path; "s3://..." is TRP_EUNSUPPORTED here. ret_existed may be NULL. */
TRP_CHECKED trp_code trpi_ckpt_store_open(const char *storage, const char *name,
                                          trpi_ckpt_store_mode mode, trpi_ckpt_store **ret_store,
                                          bool *ret_existed, trp_error *err);
/* The same of the path {storage}/{name}, with or without a slash at its end; the run must exist. */
TRP_CHECKED trp_code trpi_ckpt_store_open_path(const char *path, trpi_ckpt_store **ret_store,
                                               trp_error *err);
void trpi_ckpt_store_close(trpi_ckpt_store *store);             /* NULL is fine */
const char *trpi_ckpt_store_path(const trpi_ckpt_store *store); /* lives as long as store */

/* run.json: JSON text of the trainer's. Read: appended to `out`; TRP_ENOTFOUND before the first. */
TRP_CHECKED trp_code trpi_ckpt_store_write_record(trpi_ckpt_store *store, trp_bytes json,
                                                  trp_error *err);
TRP_CHECKED trp_code trpi_ckpt_store_read_record(const trpi_ckpt_store *store, trp_buf *out,
                                                 trp_error *err);

/* Appends line + '\n' to metrics.jsonl; the line holds no newline. A line that a crash tore is cut
 * off first. Not fsynced unless `durable`. One writer at a time. */
TRP_CHECKED trp_code trpi_ckpt_store_append_metrics(trpi_ckpt_store *store, trp_bytes line,
                                                    bool durable, trp_error *err);

/* ---- What is there ---- */

typedef struct trpi_checkpoint {
    uint64_t number;
    char *path;             /* {run}/checkpoint_%06d */
    trp_error damage;       /* code TRP_OK: the manifest reads. Else why not */
    trpi_manifest manifest; /* empty when damaged */
} trpi_checkpoint;

/* All committed checkpoints by rising number, the damaged ones among them. Only manifests are read.
 * Free with trpi_checkpoints_free(). */
TRP_CHECKED trp_code trpi_ckpt_store_list(const trpi_ckpt_store *store,
                                          trpi_checkpoint **ret_checkpoints, size_t *ret_count,
                                          trp_error *err);
void trpi_checkpoints_free(trpi_checkpoint *checkpoints, size_t count);

/* The newest checkpoint that verifies. TRP_ENOTFOUND: the run has none at all. TRP_ECORRUPT: it has
 * some and all are damaged. `damaged` (may be NULL) is called for each newer one that is passed
 * over, so that the caller can say so; a caller that gives none gets TRP_ECORRUPT for the first
 * damaged one instead of an older checkpoint. Free with trpi_checkpoints_free(ckpt, 1). */
typedef void (*trpi_damaged_fn)(void *arg, uint64_t number, const char *path,
                                const trp_error *damage);
TRP_CHECKED trp_code trpi_ckpt_store_newest(const trpi_ckpt_store *store, trpi_verify depth,
                                            trpi_damaged_fn damaged, void *arg,
                                            trpi_checkpoint **ret_checkpoint, trp_error *err);

/* One above every number that was ever committed; 0 in a new run. */
TRP_CHECKED trp_code trpi_ckpt_store_next_number(const trpi_ckpt_store *store, uint64_t *ret_number,
                                                 trp_error *err);

/* ---- How one comes about ---- */

/* Makes {run}/.staging-<attempt>-<number>/.rank-<rank>/ and appends its path to ret_dir, with a NUL
 * kept behind. An existing one of the same attempt is emptied. The run directory must exist.
 * TRP_ECANCELED: a later attempt owns the run. */
TRP_CHECKED trp_code trpi_ckpt_store_stage(const char *run_dir, uint64_t attempt, uint64_t number,
                                           int rank, trp_buf *ret_dir, trp_error *err);

/* Done by the rank (which needs no trpi_ckpt_store: only the directory it got): fsyncs all files
 * below `dir` and the directories, and adds an entry for each to `entries`, named relative to dir.
 * A file that is neither regular nor a directory is TRP_EINVALID. Zero files is fine. */
TRP_CHECKED trp_code trpi_ckpt_store_seal(const char *dir, int rank, trpi_manifest *entries,
                                          trp_error *err);

/* Done by the trainer when every rank has sealed: manifest->files is the union of their entries;
 * number, step, attempt, world and metrics are set. Checks that the files are there with those
 * sizes (contents were checked when sealed), moves them up, writes the manifest, renames. Returns
 * only when it is durable. TRP_EEXISTS: that number is taken. TRP_ECANCELED: a later
 * attempt owns the run, or the staging directory is gone. After an error nothing is visible; call
 * trpi_ckpt_store_discard() or leave it to sweep(). */
TRP_CHECKED trp_code trpi_ckpt_store_commit(trpi_ckpt_store *store, trpi_manifest *manifest,
                                            char **ret_path,
                                            trp_error *err); /* ret_path: free(); may be NULL */
TRP_CHECKED trp_code trpi_ckpt_store_discard(trpi_ckpt_store *store, uint64_t attempt,
                                             uint64_t number, trp_error *err);

/* Removes a committed checkpoint; missing is TRP_ENOTFOUND. */
TRP_CHECKED trp_code trpi_ckpt_store_remove(trpi_ckpt_store *store, uint64_t number,
                                            trp_error *err);

/* Takes the run for this attempt, durably: TRP_ECANCELED when an attempt as high has been taken, by
 * whomever; of two that claim the same one at the same time, one gets it. sweep() does the same for
 * an attempt that is this process' own already. */
TRP_CHECKED trp_code trpi_ckpt_store_claim(trpi_ckpt_store *store, uint64_t attempt,
                                           trp_error *err);

/* Removes staging directories of attempts below `attempt` and half-removed checkpoints. Call it
 * when an attempt begins, before list(). */
TRP_CHECKED trp_code trpi_ckpt_store_sweep(trpi_ckpt_store *store, uint64_t attempt,
                                           trp_error *err);

/* The highest attempt that has swept, durable before sweep() removes anything; 0 = none. The next
 * one must be above it, whatever run.json says. */
TRP_CHECKED trp_code trpi_ckpt_store_attempt(const trpi_ckpt_store *store, uint64_t *ret_attempt,
                                             trp_error *err);

/* For tests: the process ends by _exit(99) in the n-th step (1, 2, ...) of stage, seal, commit,
 * remove and sweep taken from now on; 0 = never. trpi_ckpt_store_steps() tells how many have been
 * taken.
 */
void trpi_ckpt_store_crash_at(uint64_t step);
uint64_t trpi_ckpt_store_steps(void);

#endif
