/* gang.h: the workers of a run, placed together: their processes, their ranks and their calls.
 *
 * A member is a bundle of the placement group and whoever works in it. Members outlive attempts:
 * one that dies is spawned again into its bundle, the others keep their processes. Knows no policy:
 * what to do when a member fails is decided by others. Threads: one. Every wait has a deadline and
 * ends early, with TRP_ECANCELED, once *stop is set. */
#ifndef TRPI_RUN_GANG_H
#define TRPI_RUN_GANG_H

#include <stdatomic.h>
#include <troupe/train.h>

#include "trainer/run/messages.h"
#include "trainer/state/ranks.h"

typedef struct trpi_member {
    trp_actor actor;
    bool living;   /* spawned, and no notice of its death so far */
    bool training; /* the call of its train function is under way, in `train` */
    trp_ref train;
    uint64_t node;
    int64_t pid;
    char devices[128];
    int rank, local_rank, local_world, node_rank;
    bool has_death; /* a notice that nobody has asked for yet */
    trp_death death;
} trpi_member;

typedef struct trpi_run_gang {
    trp_runtime *rt;
    const trpi_run_plan *plan; /* borrowed */
    const atomic_bool *stop;
    trp_group group;      /* id 0 = not placed */
    bool was_placed;      /* at some time */
    trpi_member *members; /* by bundle */
    int count;

    /* Room for `count` each, made once: what is handed to the runtime or to ranks.c. */
    trp_bundle *bundles;
    trp_resource *resources; /* as many as the plan has */
    trpi_rank_slot *slots;
    trp_ref *refs;
    bool *done;
    trpi_member **called;
} trpi_run_gang;

TRP_CHECKED trp_code trpi_run_gang_init(trpi_run_gang *gang, trp_runtime *rt,
                                        const trpi_run_plan *plan, const atomic_bool *stop,
                                        trp_error *err);
/* Kills every member, removes the group and waits until both is done, at most timeout_ms. The gang
 * can be placed again. */
void trpi_run_gang_clear(trpi_run_gang *gang, uint64_t timeout_ms);
void trpi_run_gang_release(trpi_run_gang *gang); /* clear it first */

/* Reserves all bundles, unless they are. TRP_ETIMEOUT says what is missing; TRP_EINFEASIBLE, which
 * does not take that long, what no node has. */
TRP_CHECKED trp_code trpi_run_gang_place(trpi_run_gang *gang, uint64_t deadline_ns, trp_error *err);
/* Spawns whoever does not live and whose train call, if there was one, has been collected. Returns
 * without waiting for them. */
TRP_CHECKED trp_code trpi_run_gang_spawn(trpi_run_gang *gang, trp_error *err);
/* Waits until all members live and gives them ranks. TRP_EACTOR_DIED: one could not be started. */
TRP_CHECKED trp_code trpi_run_gang_assemble(trpi_run_gang *gang, uint64_t deadline_ns,
                                            trp_error *err);

/* After a start that failed with `code`: whether a member was lost that had started, or would have,
 * if a machine had not failed or somebody killed it. */
bool trpi_run_gang_was_hit(trpi_run_gang *gang, trp_code code);

/* Rank 0 opens the meeting place; *ret_joined lives in the arena. */
TRP_CHECKED trp_code trpi_run_gang_join(trpi_run_gang *gang, uint64_t attempt, uint64_t token,
                                        uint64_t deadline_ns, trpi_arena *arena,
                                        trpi_run_joined *ret_joined, trp_error *err);
/* Calls the train function on every member. `common` has what is the same for all. */
TRP_CHECKED trp_code trpi_run_gang_train(trpi_run_gang *gang, const trpi_run_assignment *common,
                                         trp_error *err);

/* A member whose train call has ended, or NULL when timeout_ms has passed first. */
trpi_member *trpi_run_gang_wait(trpi_run_gang *gang, uint64_t timeout_ms);
/* The end of that call; its code is returned, too. */
typedef struct trpi_member_end {
    bool has_left;   /* the train function has returned: TRP_OK, or its error */
    trp_error error; /* that, or why the call failed */
    trp_death death; /* cause NONE unless the member died */
    uint64_t step;   /* has_left: the last one that this rank has done */
} trpi_member_end;
TRP_CHECKED trp_code trpi_run_gang_collect(trpi_run_gang *gang, trpi_member *member,
                                           trpi_member_end *ret_end);
int trpi_run_gang_training(const trpi_run_gang *gang); /* how many */

/* Tells all that still train to leave that attempt. */
void trpi_run_gang_abort(trpi_run_gang *gang, uint64_t attempt);
/* SIGKILL for those who have not. Their calls then end. */
void trpi_run_gang_kill_training(trpi_run_gang *gang);

#endif
