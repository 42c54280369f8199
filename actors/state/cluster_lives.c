/* cluster_lives.c: what happens to actors: they find a place, start, run, are ended, and die.
 *
 * The diagram is in cluster_parts.h. Two rules carry everything here:
 *   - trpi_actor_gone() is the only way out of STARTING and RUNNING, and it is taken only when the
 * process is known not to exist any more. Until then the grant is held, whatever anybody wants.
 *   - An END under way (end_cause) decides the cause of the death that follows; the node only adds
 * what it saw. END is repeated until EXITED comes, so a lost message delays an end and cannot
 * prevent it. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

/* Beyond the node's own deadline for a start: its word must have come by then, or it was lost. */
static uint64_t start_deadline_ns(const trpi_cluster *c, const trpi_actor_rec *actor) {
    uint64_t grace_ms = 2 * c->config.node_timeout_ms;
    uint64_t start_ms = TRPI_MIN(actor->start_timeout_ms, (uint64_t)1 << 32); /* 49 days */
    return c->now_ns + (start_ms + grace_ms) * TRPI_NS_PER_MS;
}

static bool has_process(const trpi_actor_rec *actor) {
    return actor->place == TRPI_STARTING || actor->place == TRPI_RUNNING;
}

/* ---- Finding a place ---- */

/* Equal bytes = equal needs: see queue.h. */
static trp_bytes shape_of(trpi_cluster *c, const trpi_actor_rec *actor) {
    size_t count = 2 + 2 * actor->request.count;
    uint64_t *words = trpi_keep_array(c, count, sizeof(uint64_t));
    words[0] = actor->only_node;
    words[1] = (uint64_t)actor->bundle_asked;
    for (size_t i = 0; i < actor->request.count; i++) {
        words[2 + 2 * i] = actor->request.amounts[i].resource;
        words[3 + 2 * i] = (uint64_t)actor->request.amounts[i].amount;
    }
    return (trp_bytes){words, count * sizeof(uint64_t)};
}

static trpi_sched_node *pick(const trpi_cluster *c, const trpi_actor_rec *actor, bool fresh) {
    trpi_wish wish = {.request = &actor->request,
                      .only = actor->only_node,
                      .avoid = actor->life.restarts ? actor->last_node : 0,
                      .fresh = fresh};
    return trpi_sched_pick(&c->sched, &wish);
}

static void seek_node(trpi_cluster *c, trpi_actor_rec *actor) {
    if (actor->only_node && !trpi_sched_node_of(&c->sched, actor->only_node)) {
        char reason[200], node[128];
        trpi_text_node(c, actor->only_node, node, sizeof(node));
        trpi_format(reason, sizeof(reason), "it may run on %s only, which is dead", node);
        trpi_actor_end(c, actor, TRP_CAUSE_UNSCHEDULABLE, reason, false);
        return;
    }
    trpi_sched_node *room = c->stopping ? NULL : pick(c, actor, false);
    if (room) {
        trpi_actor_start(c, actor, trpi_table_get(&c->nodes, room->id), -1);
        return;
    }
    actor->place = TRPI_QUEUED;
    trpi_queue_push(&c->waiting, actor->id, shape_of(c, actor));
}

static void seek_bundle(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    if (group->removing) {
        trpi_actor_end(c, actor, TRP_CAUSE_GROUP_REMOVED, "its placement group was removed", false);
        return;
    }
    int64_t room = c->stopping ? -1 : trpi_group_room(group, actor);
    if (room >= 0) {
        uint64_t node = group->seats[room].node;
        trpi_actor_start(c, actor, trpi_table_get(&c->nodes, node), room);
        return;
    }
    actor->place = TRPI_IN_GROUP;
    trpi_queue_push(&group->waiting, actor->id, shape_of(c, actor));
}

void trpi_actor_seek(trpi_cluster *c, trpi_actor_rec *actor) {
    if (actor->group) {
        seek_bundle(c, actor);
    } else {
        seek_node(c, actor);
    }
}

/* After nodes gained room: of each shape the first in line, and the next when that one has gone. */
void trpi_actors_place(trpi_cluster *c) {
    uint64_t ticket = 0, id;
    while ((id = trpi_queue_next(&c->waiting, &ticket, NULL)) != 0) {
        trpi_actor_rec *actor = trpi_table_get(&c->actors, id);
        trpi_sched_node *room = pick(c, actor, true);
        if (room) {
            trpi_queue_remove(&c->waiting, id);
            trpi_actor_start(c, actor, trpi_table_get(&c->nodes, room->id), -1);
        }
    }
}

/* ---- Starting ---- */

static void take_grant(trpi_cluster *c, trpi_actor_rec *actor, trpi_node_rec *node,
                       int64_t bundle) {
    bool taken;
    if (bundle >= 0) {
        trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
        trpi_bundle_rec *from = &group->bundles[bundle];
        taken = trpi_pool_take(&from->pool, &actor->request, &actor->grant);
        from->users++;
    } else {
        taken = trpi_sched_take(trpi_sched_node_of(&c->sched, node->id), &actor->request,
                                &actor->grant);
    }
    TRP_ASSERT(taken); /* whoever chose the place has seen that it fits */
    actor->bundle = bundle;
    actor->node = node->id;
    trpi_table_put(&node->actors, actor->id, actor);
}

static void fill_lists(trpi_cluster *c, const trpi_actor_rec *actor, const trpi_node_rec *node,
                       trpi_msg_start *msg) {
    trpi_text *env = trpi_keep_array(c, actor->env_count, sizeof(trpi_text));
    for (size_t i = 0; i < actor->env_count; i++) {
        env[i].value = trpi_keep(c, actor->env[i].value);
    }
    trpi_text *devices = trpi_keep_array(c, actor->grant.part_count, sizeof(trpi_text));
    for (size_t i = 0; i < actor->grant.part_count; i++) {
        devices[i].value = trpi_keep(c, node->devices[actor->grant.parts[i].device]);
    }
    msg->env = env;
    msg->env_count = actor->env_count;
    msg->devices = devices;
    msg->devices_count = actor->grant.part_count;
}

static void post_start(trpi_cluster *c, const trpi_actor_rec *actor, const trpi_node_rec *node) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    void *args = trpi_keep_array(c, actor->args.size, 1);
    if (actor->args.size) {
        memcpy(args, actor->args.data, actor->args.size);
    }
    trpi_msg_start start = {
        .actor = actor->id,
        .incarnation = actor->life.incarnation,
        .restarts = (uint64_t)actor->life.restarts,
        .type = trpi_keep(c, actor->type),
        .name = trpi_keep(c, actor->name),
        .exe = trpi_keep(c, job->exe),
        .cwd = trpi_keep(c, job->cwd),
        .job = trpi_keep(c, job->name),
        .namespace_name = trpi_keep(c, job->namespace_name),
        .owner_job = actor->job,
        .cpus = trpi_request_amount(&actor->request, TRPI_CPU),
        .start_timeout_ms = actor->start_timeout_ms,
        .args = {args, actor->args.size},
    };
    fill_lists(c, actor, node, &start);
    trpi_post(c, node->peer, TRPI_MSG_START)->start = start;
}

void trpi_actor_start(trpi_cluster *c, trpi_actor_rec *actor, trpi_node_rec *node, int64_t bundle) {
    take_grant(c, actor, node, bundle);
    actor->place = TRPI_STARTING;
    trpi_timer_set(c, actor, start_deadline_ns(c, actor));
    post_start(c, actor, node);
}

/* The fence for what a node tells of an actor: it must be this node's, in this incarnation. */
static trpi_actor_rec *actor_on(trpi_cluster *c, const trpi_node_rec *node, uint64_t id,
                                uint64_t incarnation) {
    trpi_actor_rec *actor = trpi_table_get(&node->actors, id);
    if (!actor || actor->life.incarnation != incarnation) {
        c->stale++;
        return NULL;
    }
    return actor;
}

void trpi_actor_started(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_started *msg) {
    trpi_actor_rec *actor = actor_on(c, node, msg->actor, msg->incarnation);
    if (!actor) {
        /* A START that was under way when the node was given up, and arrived when it was back. */
        trpi_node_end_stranger(c, node, msg->actor, msg->incarnation);
        return;
    }
    if (actor->place != TRPI_STARTING) {
        return;
    }
    actor->place = TRPI_RUNNING;
    actor->pid = msg->pid;
    actor->since_ns = c->now_ns;
    trpi_replace(&actor->endpoint, msg->endpoint);
    trpi_replace(&actor->remote_endpoint, msg->remote_endpoint);
    trpi_life_started(&actor->life, c->now_ns);
    if (!actor->end_cause) {
        trpi_timer_clear(c, actor); /* else it is END's, which is to be repeated */
        trpi_actor_push(c, actor);
    }
}

/* ---- Ending ---- */

static void post_end(trpi_cluster *c, trpi_actor_rec *actor) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    if (node->living) {
        const char *reason = trpi_keep(c, actor->end_reason);
        trpi_msg *msg = trpi_post(c, node->peer, TRPI_MSG_END);
        msg->end.actor = actor->id;
        msg->end.incarnation = actor->life.incarnation;
        msg->end.cause = actor->end_cause;
        msg->end.reason = reason;
    }
    trpi_timer_set(c, actor, c->now_ns + c->config.end_repeat_ms * TRPI_NS_PER_MS);
}

static void leave_line(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_timer_clear(c, actor);
    if (actor->place == TRPI_QUEUED) {
        trpi_queue_remove(&c->waiting, actor->id);
    } else if (actor->place == TRPI_IN_GROUP) {
        trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
        trpi_queue_remove(&group->waiting, actor->id);
    }
}

/* Nobody runs: the end is now. Of an actor that waits for a restart, this is one more death. */
static void end_waiting(trpi_cluster *c, trpi_actor_rec *actor, trp_cause cause, const char *reason,
                        bool may_restart) {
    leave_line(c, actor);
    trpi_death death = {.incarnation = actor->life.incarnation,
                        .cause = cause,
                        .message = reason,
                        .stderr_tail = ""};
    trpi_actor_gone(c, actor, &death, may_restart);
}

void trpi_actor_end(trpi_cluster *c, trpi_actor_rec *actor, trp_cause cause, const char *reason,
                    bool may_restart) {
    if (actor->place == TRPI_NOWHERE) {
        return;
    }
    bool soft = may_restart || cause == TRP_CAUSE_START_TIMEOUT;
    if (!soft) {
        trpi_name_drop(c, actor); /* it will not come back: whoever wants the name may have it */
    }
    if (!has_process(actor)) {
        end_waiting(c, actor, cause, reason, may_restart);
        return;
    }
    if (actor->end_cause && (soft || !actor->end_soft)) {
        return; /* already on its way, by an END that allows no more than this one */
    }
    actor->end_cause = cause;
    actor->end_soft = soft;
    trpi_replace(&actor->end_reason, reason);
    post_end(c, actor);
}

void trpi_actor_timer(trpi_cluster *c, trpi_actor_rec *actor) {
    if (has_process(actor) && actor->end_cause) {
        post_end(c, actor);
    } else if (actor->place == TRPI_STARTING) {
        char reason[160], limit[32];
        trpi_text_seconds(actor->start_timeout_ms * TRPI_NS_PER_MS, limit, sizeof(limit));
        trpi_format(reason, sizeof(reason), "no word of its start long after start_timeout_ms (%s)",
                    limit);
        trpi_actor_end(c, actor, TRP_CAUSE_START_TIMEOUT, reason, true);
    } else if (actor->place == TRPI_BACKOFF) {
        trpi_actor_seek(c, actor);
    }
}

/* ---- Dead, for now or for good ---- */

void trpi_actor_exited(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_exited *msg) {
    trpi_death death = msg->death[0];
    trpi_actor_rec *actor = actor_on(c, node, msg->actor, death.incarnation);
    if (!actor) {
        return;
    }
    death.node = node->id; /* whose word it is */
    if (death.cause == TRP_CAUSE_NONE || death.cause >= TRP_CAUSE_COUNT) {
        death.cause = TRP_CAUSE_EXITED;
    }
    trpi_actor_gone(c, actor, &death, false);
}

void trpi_actor_grant_drop(trpi_cluster *c, trpi_actor_rec *actor) {
    if (actor->grant.held && actor->bundle >= 0) {
        trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
        group->bundles[actor->bundle].users--;
    }
    trpi_grant_drop(&actor->grant);
    actor->bundle = -1;
}

static void give_grant_back(trpi_cluster *c, trpi_actor_rec *actor) {
    int64_t bundle = actor->bundle;
    if (!actor->grant.held) {
        return;
    }
    actor->bundle = -1;
    if (bundle < 0) {
        trpi_sched_give(&c->sched, trpi_sched_node_of(&c->sched, actor->node), &actor->request,
                        &actor->grant);
        return;
    }
    trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    trpi_pool_give(&group->bundles[bundle].pool, &actor->request, &actor->grant);
    group->bundles[bundle].users--;
    trpi_group_left(c, group, actor, bundle);
}

static void leave_node(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    if (node) {
        trpi_table_remove(&node->actors, actor->id);
    }
    if (actor->node) {
        actor->last_node = actor->node;
    }
    actor->node = 0;
    actor->pid = 0;
    trpi_replace(&actor->endpoint, "");
    trpi_replace(&actor->remote_endpoint, "");
}

/* The clients of this incarnation are gone with it, and what they own follows. */
static void end_workers(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_client_rec *worker;
    uint64_t id = 0;
    while ((worker = trpi_table_next(&actor->workers, &id)) != NULL) {
        trpi_client_end(c, worker, "its process ended");
    }
}

static void remember(trpi_cluster *c, const trpi_actor_rec *actor) {
    trpi_recent_death *slot = &c->recent[c->recent_count++ % TRPI_RECENT_DEATHS];
    free((char *)slot->death.message);
    *slot = (trpi_recent_death){actor->id, c->now_ns, *actor->death};
    slot->death.message = trpi_strdup(actor->death->message);
    slot->death.stderr_tail = "";
}

/* What the record keeps of the death: the node's word, under the cause and with the sentence of the
 * head. detail: what the node, or whoever ended it, said. */
static void note_death(trpi_cluster *c, trpi_actor_rec *actor, const trpi_death *death,
                       const trpi_life_end *end, const char *detail) {
    char sentence[512];
    trpi_text_death(c, actor, death, end, detail, sentence, sizeof(sentence));
    trpi_death *kept = actor->death ? actor->death : trpi_alloc(sizeof(*kept));
    free((char *)kept->message);
    free((char *)kept->stderr_tail);
    *kept = *death;
    kept->message = trpi_strdup(sentence);
    kept->stderr_tail = trpi_strdup(death->stderr_tail);
    actor->death = kept;
    remember(c, actor);
}

/* A final END decides: the owner is gone, whatever else the process did meanwhile. One that allows
 * a restart does not turn an orderly end (exit code 0, its own exit, a failed constructor) into
 * one. */
static const char *settle_cause(const trpi_actor_rec *actor, trpi_death *death,
                                trpi_life_end *end) {
    bool own_end = end->cause == TRP_CAUSE_FINISHED || end->cause == TRP_CAUSE_NEVER_STARTED ||
                   (end->cause == TRP_CAUSE_EXITED && end->exit_code == 0 && death->pid != 0);
    if (!actor->end_cause || (actor->end_soft && own_end)) {
        return death->message;
    }
    death->cause = actor->end_cause;
    end->cause = actor->end_cause;
    end->may_restart = actor->end_soft;
    return actor->end_reason;
}

static void finish(trpi_cluster *c, trpi_actor_rec *actor);

static void live_on(trpi_cluster *c, trpi_actor_rec *actor, uint64_t at_ns) {
    trpi_actor_push(c, actor);
    trpi_answer_all(c, &actor->killers);
    if (at_ns > c->now_ns) {
        actor->place = TRPI_BACKOFF;
        trpi_timer_set(c, actor, at_ns);
    } else {
        trpi_actor_seek(c, actor);
    }
}

void trpi_actor_gone(trpi_cluster *c, trpi_actor_rec *actor, const trpi_death *word,
                     bool may_restart) {
    trpi_death death = *word;
    trpi_life_end end = {(trp_cause)death.cause, death.exit_code, may_restart};
    uint64_t at_ns = 0;
    trpi_timer_clear(c, actor);
    give_grant_back(c, actor);
    leave_node(c, actor);
    actor->place = TRPI_BACKOFF; /* until it is known what follows */
    const char *detail = settle_cause(actor, &death, &end);
    bool lives = trpi_life_died(&actor->life, &end, c->now_ns, &c->random, &at_ns);
    death.is_final = !lives;
    note_death(c, actor, &death, &end, detail);
    actor->end_cause = TRP_CAUSE_NONE;
    actor->end_soft = false;
    actor->since_ns = c->now_ns;
    end_workers(c, actor);
    if (lives) {
        live_on(c, actor, at_ns);
    } else {
        finish(c, actor);
    }
}

/* ---- The dead that are kept ---- */

static void forget(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_table_remove(&c->dead, actor->dead_number);
    trpi_table_remove(&c->actors, actor->id);
    trpi_actor_free(actor);
}

/* Only of the latest deaths is all of stderr kept: 4 KiB times all of them would be the head's
 * size. */
static void forget_old(trpi_cluster *c) {
    trpi_actor_rec *actor;
    uint64_t number = 0;
    if (c->dead.count > c->config.dead_actors_kept) {
        forget(c, trpi_table_next(&c->dead, &number));
    }
    while (c->tails_until + c->config.dead_tails_kept < c->last_dead) {
        actor = trpi_table_get(&c->dead, ++c->tails_until);
        if (actor && actor->death) {
            free((char *)actor->death->stderr_tail);
            actor->death->stderr_tail = trpi_strdup("");
        }
    }
}

static void drop_start_data(trpi_cluster *c, trpi_actor_rec *actor) {
    c->start_bytes -= actor->start_bytes;
    actor->start_bytes = 0;
    for (size_t i = 0; i < actor->env_count; i++) {
        free((char *)actor->env[i].value);
    }
    free(actor->env);
    free((void *)actor->args.data);
    free(actor->end_reason);
    actor->env = NULL;
    actor->env_count = 0;
    actor->args = (trp_bytes){0};
    actor->end_reason = NULL;
}

static void leave_owner(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_client_rec *owner = trpi_table_get(&c->clients, actor->owner);
    if (owner) {
        trpi_table_remove(&owner->actors, actor->id);
    }
    actor->owner = 0;
}

static void finish(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_client_rec *client;
    uint64_t id = 0;
    actor->place = TRPI_NOWHERE;
    trpi_name_drop(c, actor);
    leave_owner(c, actor);
    trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    job->actors--;
    c->living_actors--;
    trpi_actor_push(c, actor);
    while ((client = trpi_table_next(&actor->subscribers, &id)) != NULL) {
        trpi_actor_unsubscribe(c, client, actor);
    }
    trpi_answer_all(c, &actor->killers);
    drop_start_data(c, actor);
    actor->dead_number = ++c->last_dead;
    trpi_table_put(&c->dead, actor->dead_number, actor);
    trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    if (group) {
        trpi_group_left(c, group, actor, -1);
    }
    forget_old(c);
}
