#include "trainer/run/gang.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/log.h"
#include "core/base/times.h"
#include "trainer/run/clock.h"

enum {
    SLICE_MS = 50, /* how late a stop is noticed at most */
    DEATH_NOTICE_MS = 2000,
    INFEASIBLE_MS = 3000, /* for nodes that are about to join */
};

/* ---- Waiting ---- */

static uint64_t next_slice(uint64_t deadline_ns) {
    return trpi_run_slice_ms(deadline_ns, SLICE_MS);
}

static bool is_stopped(const trpi_run_gang *gang) {
    return atomic_load(gang->stop);
}

static trp_code stopped(trp_error *err) {
    return trpi_fail(err, TRP_ECANCELED, "the run was stopped");
}

/* ---- Lives ---- */

trp_code trpi_run_gang_init(trpi_run_gang *gang, trp_runtime *rt, const trpi_run_plan *plan,
                            const atomic_bool *stop, trp_error *err) {
    size_t count = (size_t)plan->workers;
    *gang = (trpi_run_gang){.rt = rt, .plan = plan, .stop = stop, .count = (int)count};
    gang->members = calloc(count, sizeof(*gang->members));
    gang->bundles = calloc(count, sizeof(*gang->bundles));
    gang->resources = calloc(plan->resources_count + 1, sizeof(*gang->resources));
    gang->slots = calloc(count, sizeof(*gang->slots));
    gang->refs = calloc(count, sizeof(*gang->refs));
    gang->done = calloc(count, sizeof(*gang->done));
    gang->called = calloc(count, sizeof(*gang->called));
    if (!gang->members || !gang->bundles || !gang->resources || !gang->slots || !gang->refs ||
        !gang->done || !gang->called) {
        return trpi_fail(err, TRP_ENOMEM, "%zu workers", count);
    }
    for (size_t i = 0; i < plan->resources_count; i++) {
        gang->resources[i] = (trp_resource){plan->resources[i].name, plan->resources[i].amount};
    }
    for (size_t i = 0; i < count; i++) {
        gang->bundles[i] = (trp_bundle){.cpus = plan->cpus,
                                        .gpus = plan->gpus,
                                        .resources = gang->resources,
                                        .resource_count = plan->resources_count};
    }
    return TRP_OK;
}

void trpi_run_gang_release(trpi_run_gang *gang) {
    free(gang->members);
    free(gang->bundles);
    free(gang->resources);
    free(gang->slots);
    free(gang->refs);
    free(gang->done);
    free(gang->called);
    *gang = (trpi_run_gang){0};
}

static trpi_member *member_of(trpi_run_gang *gang, trp_actor actor) {
    for (int i = 0; i < gang->count; i++) {
        if (gang->members[i].actor.id == actor.id) {
            return &gang->members[i];
        }
    }
    return NULL;
}

/* Takes one notice of death from the runtime's queue and leaves it with its member. */
static bool take_death(trpi_run_gang *gang, uint64_t timeout_ms) {
    trp_death death;
    if (trp_next_death(gang->rt, timeout_ms, &death, NULL) != TRP_OK) {
        return false;
    }
    trpi_member *member = member_of(gang, death.actor);
    if (member != NULL) {
        member->living = false;
        member->has_death = true;
        member->death = death;
    }
    return true;
}

static int living(const trpi_run_gang *gang) {
    int count = 0;
    for (int i = 0; i < gang->count; i++) {
        count += gang->members[i].living;
    }
    return count;
}

static void forget_call(trpi_run_gang *gang, trpi_member *member) {
    if (member->training) {
        trp_ref_release(gang->rt, member->train);
        member->training = false;
    }
}

void trpi_run_gang_clear(trpi_run_gang *gang, uint64_t timeout_ms) {
    trp_error err = {0};
    if (gang->group.id != 0 && trp_group_remove(gang->rt, gang->group, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "group_remove", "error=\"%s\"", err.message);
    }
    gang->group.id = 0;
    uint64_t deadline_ns = trpi_run_deadline_ns(timeout_ms);
    for (uint64_t slice = 1; living(gang) > 0 && slice > 0;) {
        slice = next_slice(deadline_ns);
        take_death(gang, slice);
    }
    for (int i = 0; i < gang->count; i++) {
        trpi_member *member = &gang->members[i];
        forget_call(gang, member);
        if (member->living) {
            trpi_log(TRPI_WARN, "worker_outlives_run", "actor=%" PRIu64, member->actor.id);
        }
        if (member->actor.id != 0) {
            trp_demonitor(gang->rt, member->actor);
        }
        *member = (trpi_member){0};
    }
}

/* ---- Placement and start ---- */

/* Waits while the group may still be placed. What no node can hold is waited for a short time only,
 * unless it has been placed before: then a node was lost, which may come back. */
static trp_code wait_placed(trpi_run_gang *gang, uint64_t deadline_ns, trp_error *err) {
    uint64_t grace_ns =
        gang->was_placed ? deadline_ns : TRPI_MIN(deadline_ns, trpi_run_deadline_ns(INFEASIBLE_MS));
    for (;;) {
        uint64_t slice = next_slice(deadline_ns);
        bool has_grace = next_slice(grace_ns) > 0;
        trp_error inner = {0};
        trp_code code = trp_group_wait(gang->rt, gang->group, slice, NULL, 0, &inner);
        if (is_stopped(gang)) {
            return stopped(err);
        }
        if ((code == TRP_ETIMEOUT && slice > 0) || (code == TRP_EINFEASIBLE && has_grace)) {
            continue;
        }
        gang->was_placed = gang->was_placed || code == TRP_OK;
        return code == TRP_OK ? code : trpi_fail(err, code, "%s", inner.message);
    }
}

trp_code trpi_run_gang_place(trpi_run_gang *gang, uint64_t deadline_ns, trp_error *err) {
    trp_code code = TRP_OK;
    if (gang->group.id == 0) {
        trp_group_options options = {.strategy = (trp_strategy)gang->plan->placement,
                                     .bundles = gang->bundles,
                                     .bundle_count = (size_t)gang->count};
        code = trp_group_create(gang->rt, &options, &gang->group, err);
    }
    if (code == TRP_OK) {
        code = wait_placed(gang, deadline_ns, err);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "place %d workers", gang->count);
}

static trp_code spawn_member(trpi_run_gang *gang, int bundle, trp_error *err) {
    const trpi_run_plan *plan = gang->plan;
    trpi_member *member = &gang->members[bundle];
    trp_spawn_options options = {.cpus = plan->cpus,
                                 .gpus = plan->gpus,
                                 .resources = gang->resources,
                                 .resource_count = plan->resources_count,
                                 .start_timeout_ms = TRPI_MIN(plan->start_timeout_ms, TRPI_DAY_MS),
                                 .group = gang->group,
                                 .bundle = bundle};
    if (member->actor.id != 0) {
        trp_demonitor(gang->rt, member->actor);
    }
    *member = (trpi_member){0};
    trp_code code =
        trp_spawn(gang->rt, trp_worker_type.name, (trp_bytes){0}, &options, &member->actor, err);
    if (code == TRP_OK) {
        member->living = true;
        code = trp_monitor(gang->rt, member->actor, err);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "spawn worker %d", bundle);
}

trp_code trpi_run_gang_spawn(trpi_run_gang *gang, trp_error *err) {
    trp_code code = TRP_OK;
    while (take_death(gang, 0)) { /* of those who died while nobody waited for them */
    }
    for (int i = 0; code == TRP_OK && i < gang->count; i++) {
        if (!gang->members[i].living && !gang->members[i].training) {
            code = spawn_member(gang, i, err);
        }
    }
    return code;
}

static trp_code wait_member(trpi_run_gang *gang, int bundle, uint64_t deadline_ns, trp_error *err) {
    trpi_member *member = &gang->members[bundle];
    for (;;) {
        uint64_t slice = next_slice(deadline_ns);
        trp_error inner = {0};
        trp_code code = trp_actor_wait_alive(gang->rt, member->actor, slice, &inner);
        if (is_stopped(gang)) {
            return stopped(err);
        }
        if (code == TRP_ETIMEOUT && slice > 0) {
            continue;
        }
        if (code != TRP_OK) {
            member->living = member->living && code != TRP_EACTOR_DIED;
            return trpi_fail(err, code, "start worker %d: %s", bundle, inner.message);
        }
        trp_actor_info info;
        code = trp_actor_get_info(gang->rt, member->actor, &info, err);
        if (code == TRP_OK) {
            member->node = info.node;
            member->pid = info.pid;
            TRPI_SET(member->devices, info.devices);
        }
        return code;
    }
}

trp_code trpi_run_gang_assemble(trpi_run_gang *gang, uint64_t deadline_ns, trp_error *err) {
    for (int i = 0; i < gang->count; i++) {
        trp_code code = wait_member(gang, i, deadline_ns, err);
        if (code != TRP_OK) {
            return code;
        }
    }
    for (int i = 0; i < gang->count; i++) {
        gang->slots[i] =
            (trpi_rank_slot){.node = gang->members[i].node, .devices = gang->members[i].devices};
    }
    trpi_ranks_assign(gang->slots, (size_t)gang->count);
    for (int i = 0; i < gang->count; i++) {
        gang->members[i].rank = gang->slots[i].rank;
        gang->members[i].local_rank = gang->slots[i].local_rank;
        gang->members[i].local_world = gang->slots[i].local_world;
        gang->members[i].node_rank = gang->slots[i].node_rank;
    }
    return TRP_OK;
}

/* ---- Losses ---- */

static bool is_loss(trp_code code) {
    return code == TRP_EACTOR_DIED || code == TRP_ENODE_DIED || code == TRP_EDISCONNECTED ||
           code == TRP_EUNAVAILABLE;
}

static bool was_hit(const trpi_member *member) {
    switch (member->death.cause) {
    case TRP_CAUSE_SIGNALED:
    case TRP_CAUSE_KILLED:
    case TRP_CAUSE_NODE_DIED:
    case TRP_CAUSE_OUT_OF_MEMORY:
        return member->has_death;
    default:
        return false;
    }
}

/* The notice may be a moment behind the failure. */
bool trpi_run_gang_was_hit(trpi_run_gang *gang, trp_code code) {
    uint64_t deadline_ns = trpi_run_deadline_ns(DEATH_NOTICE_MS);
    for (uint64_t slice = 1; is_loss(code) && slice > 0;) {
        for (int i = 0; i < gang->count; i++) {
            if (gang->members[i].has_death) {
                return was_hit(&gang->members[i]);
            }
        }
        slice = next_slice(deadline_ns);
        take_death(gang, slice);
    }
    return false;
}

/* ---- An attempt ---- */

static trpi_member *rank_zero(trpi_run_gang *gang) {
    for (int i = 0; i < gang->count; i++) {
        if (gang->members[i].rank == 0) {
            return &gang->members[i];
        }
    }
    return &gang->members[0];
}

static trp_code take_reply(trpi_run_gang *gang, trp_ref ref, trp_buf *reply, trp_error *err) {
    trp_bytes value;
    trp_code code = trp_get(gang->rt, ref, 0, &value, err);
    if (code == TRP_OK && trp_buf_append(reply, value.data, value.size) != TRP_OK) {
        code = trpi_fail(err, TRP_ENOMEM, "an answer of %zu bytes", value.size);
    }
    return code;
}

static trp_code ask_until(trpi_run_gang *gang, trp_actor actor, const char *method, trp_bytes args,
                          uint64_t deadline_ns, trp_buf *reply, trp_error *err) {
    trp_ref ref;
    bool done = false;
    trp_code code = trp_call(gang->rt, actor, method, args, 0, &ref, err);
    if (code != TRP_OK) {
        return code;
    }
    for (uint64_t slice = 1; code == TRP_OK && !done && slice > 0;) {
        slice = next_slice(deadline_ns);
        code = trp_wait(gang->rt, &ref, 1, 1, slice, &done, err);
        if (code == TRP_OK && is_stopped(gang)) {
            code = stopped(err);
        }
    }
    if (code == TRP_OK) {
        code = done ? take_reply(gang, ref, reply, err)
                    : trpi_fail(err, TRP_ETIMEOUT, "it does not answer");
    }
    trp_ref_release(gang->rt, ref);
    return code;
}

trp_code trpi_run_gang_join(trpi_run_gang *gang, uint64_t attempt, uint64_t token,
                            uint64_t deadline_ns, trpi_arena *arena, trpi_run_joined *ret_joined,
                            trp_error *err) {
    trpi_run_join join = {.attempt = attempt, .world = gang->count, .token = token};
    trp_buf args = {0}, reply = {0};
    trp_code code = trpi_pack_join(&join, &args, err);
    if (code == TRP_OK) {
        code = ask_until(gang, rank_zero(gang)->actor, "join", trp_buf_bytes(&args), deadline_ns,
                         &reply, err);
    }
    if (code == TRP_OK) {
        code = trpi_unpack_joined(trp_buf_bytes(&reply), arena, ret_joined, err);
    }
    trp_buf_release(&args);
    trp_buf_release(&reply);
    return code == TRP_OK ? code : trpi_context(err, code, "rendezvous at rank 0");
}

static trp_code train_member(trpi_run_gang *gang, trpi_member *member,
                             const trpi_run_assignment *common, trp_error *err) {
    trpi_run_assignment assignment = *common;
    assignment.rank = member->rank;
    assignment.world = gang->count;
    assignment.local_rank = member->local_rank;
    assignment.local_world = member->local_world;
    assignment.node_rank = member->node_rank;
    trp_buf args = {0};
    trp_code code = trpi_pack_assignment(&assignment, &args, err);
    if (code == TRP_OK) {
        code = trp_call(gang->rt, member->actor, "train", trp_buf_bytes(&args), 0, &member->train,
                        err);
        member->training = code == TRP_OK;
    }
    trp_buf_release(&args);
    return code == TRP_OK ? code : trpi_context(err, code, "start rank %d", member->rank);
}

trp_code trpi_run_gang_train(trpi_run_gang *gang, const trpi_run_assignment *common,
                             trp_error *err) {
    trp_code code = TRP_OK;
    for (int i = 0; code == TRP_OK && i < gang->count; i++) {
        code = train_member(gang, &gang->members[i], common, err);
    }
    return code;
}

int trpi_run_gang_training(const trpi_run_gang *gang) {
    int count = 0;
    for (int i = 0; i < gang->count; i++) {
        count += gang->members[i].training;
    }
    return count;
}

trpi_member *trpi_run_gang_wait(trpi_run_gang *gang, uint64_t timeout_ms) {
    size_t count = 0;
    trp_error err = {0};
    for (int i = 0; i < gang->count; i++) {
        if (gang->members[i].training) {
            gang->called[count] = &gang->members[i];
            gang->refs[count++] = gang->members[i].train;
        }
    }
    if (count == 0) {
        return NULL;
    }
    if (trp_wait(gang->rt, gang->refs, count, 1, timeout_ms, gang->done, &err) != TRP_OK) {
        trpi_log(TRPI_WARN, "wait_for_ranks", "error=\"%s\"", err.message);
        return gang->called[0]; /* which fails of the same, instead of being asked for ever */
    }
    for (size_t i = 0; i < count; i++) {
        if (gang->done[i]) {
            return gang->called[i];
        }
    }
    return NULL;
}

/* The notice may be a moment behind the failure of the call. */
static void find_death(trpi_run_gang *gang, trpi_member *member, trp_death *ret_death) {
    uint64_t deadline_ns = trpi_run_deadline_ns(DEATH_NOTICE_MS);
    for (uint64_t slice = 1; !member->has_death && slice > 0;) {
        slice = next_slice(deadline_ns);
        take_death(gang, slice);
    }
    if (member->has_death) {
        *ret_death = member->death;
        member->has_death = false;
    }
}

/* The call was answered: by what the train function returned. */
static trp_code read_left(const trpi_member *member, trp_bytes value, uint64_t *ret_step,
                          trp_error *err) {
    trpi_arena arena = {0};
    trpi_run_left left;
    trp_code code = trpi_unpack_left(value, &arena, &left, err);
    if (code == TRP_OK) {
        *ret_step = left.step;
        code = left.code < TRP_CODE_COUNT ? (trp_code)left.code : TRP_EPROTOCOL;
        if (code != TRP_OK) {
            code = trpi_fail(err, code, "%s", left.message);
        }
    }
    err->node = member->node;
    err->actor = member->actor.id;
    trpi_arena_release(&arena);
    return code;
}

trp_code trpi_run_gang_collect(trpi_run_gang *gang, trpi_member *member, trpi_member_end *ret_end) {
    trp_bytes value;
    *ret_end = (trpi_member_end){0};
    trp_code code = trp_get(gang->rt, member->train, 0, &value, &ret_end->error);
    ret_end->has_left = code == TRP_OK;
    if (code == TRP_OK) {
        code = read_left(member, value, &ret_end->step, &ret_end->error);
    }
    forget_call(gang, member);
    if (!ret_end->has_left && is_loss(code)) {
        find_death(gang, member, &ret_end->death);
    }
    ret_end->error.code = code;
    return code;
}

/* One that cannot be told is killed when the others have left: all others are told all the same. */
void trpi_run_gang_abort(trpi_run_gang *gang, uint64_t attempt) {
    trp_buf bytes = {0};
    trp_error err = {0};
    trp_code packed = trpi_pack_abort(&(trpi_run_abort){attempt}, &bytes, &err);
    for (int i = 0; i < gang->count; i++) {
        trpi_member *member = &gang->members[i];
        trp_code code = packed;
        if (code == TRP_OK && member->training && member->living) {
            code = trp_signal(gang->rt, member->actor, 0, trp_buf_bytes(&bytes), &err);
        }
        if (code != TRP_OK) {
            trpi_log(TRPI_WARN, "abort_attempt", "rank=%d error=\"%s\"", member->rank, err.message);
        }
    }
    trp_buf_release(&bytes);
}

void trpi_run_gang_kill_training(trpi_run_gang *gang) {
    for (int i = 0; i < gang->count; i++) {
        trpi_member *member = &gang->members[i];
        trp_error err = {0};
        if (member->training && member->living &&
            trp_kill(gang->rt, member->actor, false, &err) != TRP_OK) {
            trpi_log(TRPI_WARN, "kill_rank", "rank=%d error=\"%s\"", member->rank, err.message);
        }
    }
}
