/* cluster_lives.c: what happens to actors: they run, are ended, and die.
 *
 * The diagram is in cluster_parts.h. Two rules carry everything here:
 *   - trpi_actor_gone() is the only way out of STARTING and RUNNING, and it is taken only when the
 * process is known not to exist any more. Until then the grant is held, whatever anybody wants.
 *   - An END under way (end_cause) decides the cause of the death that follows; the node only adds
 * what it saw. END is repeated until EXITED comes, so a lost message delays an end and cannot
 * prevent it. A later END can make it final and can hurry it, and nothing else. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

bool trpi_actor_has_process(const trpi_actor_rec *actor) {
    return actor->place == TRPI_STARTING || actor->place == TRPI_RUNNING;
}

trpi_actor_rec *trpi_actor_on(trpi_cluster *c, const trpi_node_rec *node, uint64_t id,
                              uint64_t incarnation) {
    trpi_actor_rec *actor = trpi_table_get(&node->actors, id);
    if (!actor || actor->life.incarnation != incarnation) {
        c->stale++;
        return NULL;
    }
    return actor;
}

void trpi_actor_started(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_started *msg) {
    trpi_actor_rec *actor = trpi_actor_on(c, node, msg->actor, msg->incarnation);
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
    trpi_gang_started(c, actor);
    if (!actor->end_cause) {
        trpi_timer_clear(c, actor); /* else it is END's, which is to be repeated */
        trpi_actor_push(c, actor);
    }
}

/* ---- Ending ---- */

static uint64_t grace_left_ms(const trpi_cluster *c, const trpi_actor_rec *actor) {
    uint64_t until = actor->end_deadline_ns;
    return until > c->now_ns ? (until - c->now_ns + TRPI_NS_PER_MS - 1) / TRPI_NS_PER_MS : 0;
}

static void post_end(trpi_cluster *c, trpi_actor_rec *actor) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    if (node->living) {
        const char *reason = trpi_keep(c, actor->end_reason);
        trpi_msg *msg = trpi_post(c, node->peer, TRPI_MSG_END);
        msg->end.actor = actor->id;
        msg->end.incarnation = actor->life.incarnation;
        msg->end.cause = actor->end_cause;
        msg->end.reason = reason;
        msg->end.grace_ms = grace_left_ms(c, actor);
    }
    trpi_timer_set(c, actor, c->now_ns + c->config.end_repeat_ms * TRPI_NS_PER_MS);
}

/* Nobody runs: the end is now. Of an actor that waits for a restart, this is one more death. */
static void end_waiting(trpi_cluster *c, trpi_actor_rec *actor, trp_cause cause, const char *reason,
                        bool may_restart) {
    trpi_actor_leave_line(c, actor);
    trpi_death death = {.incarnation = actor->life.incarnation,
                        .cause = cause,
                        .message = reason,
                        .stderr_tail = "",
                        .core = ""};
    trpi_actor_gone(c, actor, &death, may_restart);
}

static void begin_end(trpi_actor_rec *actor, trp_cause cause, const char *reason, bool soft) {
    actor->end_cause = cause;
    actor->end_soft = soft;
    trpi_replace(&actor->end_reason, reason);
}

void trpi_actor_end(trpi_cluster *c, trpi_actor_rec *actor, trp_cause cause, const char *reason,
                    bool may_restart, uint64_t grace_ms) {
    if (actor->place == TRPI_NOWHERE) {
        return;
    }
    bool soft = may_restart || cause == TRP_CAUSE_START_TIMEOUT;
    if (!soft) {
        trpi_actor_name_drop(c, actor); /* it will not come back: whoever wants it may have it */
    }
    if (!trpi_actor_has_process(actor)) {
        end_waiting(c, actor, cause, reason, may_restart);
        return;
    }
    bool under_way = actor->end_cause != TRP_CAUSE_NONE;
    bool hurries = under_way && actor->end_deadline_ns && grace_ms == 0;
    bool decides = !under_way || (!soft && (actor->end_soft || hurries));
    if (decides) {
        begin_end(actor, cause, reason, soft);
    }
    if (!under_way && grace_ms) {
        actor->end_graceful = true;
        actor->end_deadline_ns = c->now_ns + TRPI_MIN(grace_ms, TRPI_LONG_MS) * TRPI_NS_PER_MS;
    } else if (hurries) {
        actor->end_deadline_ns = 0;
    }
    if (decides || hurries) {
        post_end(c, actor);
    }
}

void trpi_actor_timer(trpi_cluster *c, trpi_actor_rec *actor) {
    if (trpi_actor_has_process(actor) && actor->end_cause) {
        post_end(c, actor);
    } else if (actor->place == TRPI_STARTING) {
        char reason[160], limit[32];
        trpi_text_seconds(TRPI_MIN(actor->wants.start_timeout_ms, TRPI_LONG_MS) * TRPI_NS_PER_MS,
                          limit, sizeof(limit));
        trpi_format(reason, sizeof(reason), "no word of its start long after start_timeout_ms (%s)",
                    limit);
        trpi_actor_end(c, actor, TRP_CAUSE_START_TIMEOUT, reason, true, 0);
    } else if (actor->place == TRPI_BACKOFF) {
        trpi_actor_seek(c, actor);
    }
}

/* ---- Dead, for now or for good ---- */

void trpi_actor_exited(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_exited *msg) {
    trpi_death death = msg->death[0];
    trpi_actor_rec *actor = trpi_actor_on(c, node, msg->actor, death.incarnation);
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

/* The clients of this incarnation are gone with it, and what they own follows. */
static void end_workers(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_client_rec *worker;
    uint64_t id = 0;
    while ((worker = trpi_table_next(&actor->workers, &id)) != NULL) {
        trpi_client_end(c, worker, false, "its process ended");
    }
}

static void remember(trpi_cluster *c, const trpi_actor_rec *actor) {
    trpi_recent_death *slot = &c->recent[c->recent_count++ % TRPI_RECENT_DEATHS];
    free((char *)slot->death.message);
    *slot = (trpi_recent_death){actor->id, c->now_ns, *actor->death};
    slot->death.message = trpi_strdup(actor->death->message);
    slot->death.stderr_tail = slot->death.core = "";
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
    free((char *)kept->core);
    *kept = *death;
    kept->message = trpi_strdup(sentence);
    kept->stderr_tail = trpi_strdup(death->stderr_tail);
    kept->core = trpi_strdup(death->core);
    actor->death = kept;
    remember(c, actor);
}

/* Asked to stop in good order, and killed all the same. */
static bool was_forced(const trpi_cluster *c, const trpi_actor_rec *actor,
                       const trpi_death *death) {
    return actor->end_graceful && death->signal != 0 && c->now_ns >= actor->end_deadline_ns;
}

/* A final END decides: the owner is gone, whatever else the process did meanwhile. One that allows
 * a restart does not turn an orderly end (exit code 0, its own exit, a failed constructor) into
 * one. Fills detail, which death->message may not be. */
static void settle_cause(const trpi_cluster *c, const trpi_actor_rec *actor, trpi_death *death,
                         trpi_life_end *end, char *detail, size_t size) {
    bool own_end = end->cause == TRP_CAUSE_FINISHED || end->cause == TRP_CAUSE_NEVER_STARTED ||
                   (end->cause == TRP_CAUSE_EXITED && end->exit_code == 0 && death->pid != 0);
    if (!actor->end_cause || (actor->end_soft && own_end)) {
        trpi_format(detail, size, "%s", death->message);
        return;
    }
    death->cause = actor->end_cause;
    end->cause = actor->end_cause;
    end->may_restart = actor->end_soft;
    if (was_forced(c, actor, death)) {
        trpi_format(detail, size, "%s, and killed because it took too long", actor->end_reason);
    } else if (actor->end_graceful && (death->signal || death->exit_code)) {
        trpi_format(detail, size, "%s; then: %s", actor->end_reason, death->message);
    } else {
        trpi_format(detail, size, "%s", actor->end_reason);
    }
}

/* A restart that its drain makes necessary is nobody's fault. */
static bool is_uncounted(const trpi_cluster *c, const trpi_actor_rec *actor,
                         const trpi_life_end *end) {
    const trpi_node_rec *node = trpi_table_get(&c->nodes, actor->node);
    return end->cause == TRP_CAUSE_DRAINED ||
           (end->cause == TRP_CAUSE_NODE_DIED && node && node->draining);
}

static void finish(trpi_cluster *c, trpi_actor_rec *actor);

static void live_on(trpi_cluster *c, trpi_actor_rec *actor, uint64_t at_ns) {
    const trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    trpi_actor_push(c, actor);
    trpi_answer_all(c, &actor->killers, NULL);
    if (at_ns > c->now_ns && !(gang && gang->restarting)) {
        actor->place = TRPI_BACKOFF;
        trpi_timer_set(c, actor, at_ns);
    } else {
        trpi_actor_seek(c, actor);
    }
}

/* Whether another incarnation follows, and when at the earliest. */
static bool decide(trpi_cluster *c, trpi_actor_rec *actor, const trpi_life_end *end,
                   uint64_t *ret_at_ns) {
    bool together = trpi_gang_mourns(c, actor, end);
    bool lives =
        together ? trpi_gang_death(c, actor, end) : trpi_life_goes_on(&actor->life, end, c->now_ns);
    if (lives) {
        bool uncounted = together || end->uncounted;
        *ret_at_ns = trpi_life_restart(&actor->life, uncounted, c->now_ns, &c->random);
    } else {
        trpi_life_end_now(&actor->life);
    }
    return lives;
}

static void answer_stoppers(trpi_cluster *c, trpi_actor_rec *actor, bool forced) {
    trp_error error = {0};
    if (forced) {
        (void)trpi_fail(&error, TRP_ETIMEOUT,
                        "actor a%" PRIu64 " did not stop in time and was killed", actor->id);
    }
    trpi_answer_all(c, &actor->stoppers, &error);
}

void trpi_actor_gone(trpi_cluster *c, trpi_actor_rec *actor, const trpi_death *word,
                     bool may_restart) {
    trpi_death death = *word;
    trpi_life_end end = {(trp_cause)death.cause, death.exit_code, may_restart, false};
    uint64_t at_ns = 0;
    char detail[600];
    trpi_timer_clear(c, actor);
    settle_cause(c, actor, &death, &end, detail, sizeof(detail));
    end.uncounted = is_uncounted(c, actor, &end);
    bool forced = was_forced(c, actor, &death);
    give_grant_back(c, actor);
    trpi_actor_leave_node(c, actor);
    actor->place = TRPI_BACKOFF; /* until it is known what follows */
    bool lives = decide(c, actor, &end, &at_ns);
    death.is_final = !lives;
    note_death(c, actor, &death, &end, detail);
    actor->end_cause = TRP_CAUSE_NONE;
    actor->end_soft = actor->end_graceful = false;
    actor->end_deadline_ns = 0;
    actor->since_ns = c->now_ns;
    end_workers(c, actor);
    trpi_gang_touch(c, actor);
    if (lives) {
        live_on(c, actor, at_ns);
    } else {
        answer_stoppers(c, actor, forced);
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
    trpi_wants_release(&actor->wants);
    trpi_texts_release(&actor->retry_on);
    trpi_life_release(&actor->life);
    trpi_saved_drop(c, actor);
    free(actor->end_reason);
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
    trpi_actor_name_drop(c, actor);
    leave_owner(c, actor);
    trpi_job_rec *job = trpi_table_get(&c->jobs, actor->job);
    job->actors--;
    c->living_actors--;
    trpi_actor_push(c, actor);
    while ((client = trpi_table_next(&actor->subscribers, &id)) != NULL) {
        trpi_actor_unsubscribe(c, client, actor);
    }
    trpi_answer_all(c, &actor->killers, NULL);
    trpi_links_cut(c, actor);
    trpi_gang_leave(c, actor);
    drop_start_data(c, actor);
    actor->dead_number = ++c->last_dead;
    trpi_table_put(&c->dead, actor->dead_number, actor);
    trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    if (group) {
        trpi_group_left(c, group, actor, -1);
    }
    forget_old(c);
}
