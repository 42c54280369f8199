/* worker_works.h: the calls that a worker has, from their arrival until they are answered; pure.
 *
 *        add              next                 end
 *   ────────> waiting ───────────> running ───────────> (gone)
 *               │ cancel              │ defer
 *               v                     v        end
 *            (taken out)          deferred ───────────> (gone)
 *
 * Calls wait in one line per concurrency group, in the order of their arrival. A deferred call has
 * an entry of its own beside the one that still runs, since either may end first. CANCEL finds
 * calls by who made them and under which number, without a walk.
 *
 * The entries are the shell's: they lie in what it keeps of a call. Not thread-safe. */
#ifndef TRPI_WORKER_WORKS_H
#define TRPI_WORKER_WORKS_H

#include "core/base/base.h"

typedef enum trpi_work_phase {
    TRPI_WORK_NONE, /* not in here */
    TRPI_WORK_WAITING,
    TRPI_WORK_RUNNING,
    TRPI_WORK_DEFERRED,
    TRPI_WORK_PHASES
} trpi_work_phase;

typedef struct trpi_work {
    struct trpi_work *prev, *next; /* in the line of its group, while it waits */
    struct trpi_work *chain;       /* with others of the same hash */
    trp_bytes peer;                /* who made the call; borrowed until it is gone from here */
    uint64_t call;
    uint32_t group;
    trpi_work_phase phase;
    bool is_canceled;
} trpi_work;

typedef struct trpi_work_group {
    trpi_work *first, *last;
    size_t waiting, running;
    uint32_t threads, threads_max; /* that there are, that there may be */
} trpi_work_group;

typedef struct trpi_works { /* zero-initialize */
    trpi_work_group *groups;
    size_t group_count;
    size_t counts[TRPI_WORK_PHASES]; /* entries by phase */
    trpi_work **buckets;
    size_t bucket_count; /* a power of two */
} trpi_works;

void trpi_works_init(trpi_works *works, const uint32_t *threads_max, size_t group_count);
void trpi_works_release(trpi_works *works); /* not the entries */

/* A call of work->peer, call and group has come. True: it waits for more threads than its group has
 * without a method to run, and the group may have one more. */
bool trpi_works_add(trpi_works *works, trpi_work *work);
/* A thread of the group has been made, and will ask for the next. */
void trpi_works_thread_made(trpi_works *works, uint32_t group);
/* The oldest call that waits in the group, which runs from now on; NULL when none waits. */
trpi_work *trpi_works_next(trpi_works *works, uint32_t group);
/* The call that runs will be answered by somebody else: `deferred` (its peer set) stands for that.
 */
void trpi_works_defer(trpi_works *works, const trpi_work *running, trpi_work *deferred);
/* A method has returned, a deferred call is answered, or a waiting one is given up. */
void trpi_works_end(trpi_works *works, trpi_work *work);
/* Marks what runs or is deferred; a call that waits is taken out and returned. NULL otherwise, also
 * when there is no such call any more. */
trpi_work *trpi_works_cancel(trpi_works *works, trp_bytes peer, uint64_t call);

/* NULL, or which invariant broke. */
const char *trpi_works_check(const trpi_works *works);

#endif
