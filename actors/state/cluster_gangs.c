/* cluster_gangs.c: actors that live and die together.
 *
 *              a member dies (1)                        the last process is gone (3)
 *   together ---------------------> restarting, telling (2) ----------------> together, anew
 *      |                                |
 *      |  (1) policy END, no restarts left, a member that can never come back
 *      |  trp_gang_end(), its owner is gone (4)
 *      +--------------------------------+--------> over, telling (2) --> gone, with its last member
 *
 * (1) trpi_gang_death  (2) trpi_gangs_tell  (3) gathered  (4) trpi_gang_end
 *
 * What holds: of a gang that restarts no member waits for a place: those without a process gather,
 * and those with one are being ended. Its own life (restarts, window, backoff) counts instead of
 * its members', whose incarnations go up by one all the same. A member that died never comes back
 * alone: either all are started anew, or all end.
 *
 * Members are told at the end of the step: one event (the death of a node) may take several of
 * them, and that is one death of the gang. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

void trpi_gang_free(trpi_gang_rec *gang) {
    free(gang->name);
    free(gang->reason);
    free(gang->enders.items);
    trpi_life_release(&gang->life);
    trpi_table_release(&gang->members);
    free(gang);
}

/* ---- Create ---- */

static trp_code check_create(const trpi_cluster *c, const trpi_client_rec *client,
                             const trpi_msg_gang_create *msg, trp_error *err) {
    if (client->kind == TRPI_TOOL) {
        return trpi_fail(err, TRP_EINVALID, "only drivers and actors create gangs");
    }
    if (c->stopping) {
        return trpi_fail(err, TRP_EUNAVAILABLE, "the cluster is stopping");
    }
    if (strlen(msg->name) > TRPI_TEXT_MAX) {
        return trpi_fail(err, TRP_EINVALID, "a name has at most %d bytes", TRPI_TEXT_MAX);
    }
    if (msg->restarts_max < -1 ||
        (msg->restart_window_ms && msg->restarts_max > TRPI_WINDOW_RESTARTS_MAX)) {
        return trpi_fail(err, TRP_EINVALID,
                         "restarts_max %" PRId64 ": -1 (for ever), 0 or more; at most %d with "
                         "restart_window_ms",
                         msg->restarts_max, TRPI_WINDOW_RESTARTS_MAX);
    }
    if (c->gangs.count >= c->config.gangs_max) {
        return trpi_fail(err, TRP_EBUSY, "the cluster has %zu gangs, its limit", c->gangs.count);
    }
    return TRP_OK;
}

static trpi_life_rules rules_of(const trpi_cluster *c, const trpi_msg_gang_create *msg) {
    uint64_t max_ms = c->config.restart_backoff_max_ms;
    uint64_t backoff_ms =
        msg->restart_backoff_ms ? msg->restart_backoff_ms : c->config.restart_backoff_ms;
    return (trpi_life_rules){
        .restart = msg->policy == TRP_GANG_RESTART ? TRP_RESTART_ALWAYS : TRP_RESTART_NEVER,
        .restarts_max = msg->restarts_max,
        .window_ns = TRPI_MIN(msg->restart_window_ms, TRPI_LONG_MS) * TRPI_NS_PER_MS,
        .backoff_ns = TRPI_MIN(backoff_ms, max_ms) * TRPI_NS_PER_MS,
        .backoff_max_ns = max_ms * TRPI_NS_PER_MS,
        .forget_ns = c->config.restart_forget_ms * TRPI_NS_PER_MS,
    };
}

static trpi_gang_rec *new_gang(trpi_cluster *c, trpi_client_rec *client,
                               const trpi_msg_gang_create *msg) {
    trpi_gang_rec *gang = trpi_alloc(sizeof(*gang));
    trpi_life_rules rules = rules_of(c, msg);
    gang->id = ++c->last_gang;
    gang->job = client->job;
    gang->name = trpi_strdup(msg->name);
    gang->reason = trpi_strdup("");
    gang->policy = (trp_gang_policy)msg->policy;
    gang->detached = msg->detached;
    trpi_life_init(&gang->life, &rules);
    trpi_table_put(&c->gangs, gang->id, gang);
    if (!gang->detached) {
        gang->owner = client->id;
        trpi_table_put(&client->gangs, gang->id, gang);
    }
    trpi_job_rec *job = trpi_table_get(&c->jobs, gang->job);
    job->gangs++;
    return gang;
}

void trpi_gang_create(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_gang_create *msg) {
    trp_error error = {0};
    uint64_t id = 0;
    if (check_create(c, client, msg, &error) == TRP_OK) {
        id = new_gang(c, client, msg)->id;
    } else {
        (void)trpi_context(&error, error.code, "gang");
    }
    const char *message = trpi_keep(c, error.message);
    trpi_msg_ganged *answer = &trpi_post(c, client->peer, TRPI_MSG_GANGED)->ganged;
    answer->request = msg->request;
    answer->code = error.code;
    answer->message = message;
    answer->gang = id;
}

/* ---- Members ---- */

trp_code trpi_gang_check_member(const trpi_cluster *c, const trpi_client_rec *client, uint64_t id,
                                trp_error *err) {
    const trpi_gang_rec *gang = trpi_table_get(&c->gangs, id);
    if (!gang || gang->over) {
        return trpi_fail(err, TRP_ENOTFOUND, "gang x%" PRIu64 " does not exist (any more)%s%s", id,
                         gang ? ": " : "", gang ? gang->reason : "");
    }
    if (gang->job != client->job && !gang->detached) {
        return trpi_fail(err, TRP_EINVALID, "gang x%" PRIu64 " is another job's (j%" PRIu64 ")", id,
                         gang->job);
    }
    return TRP_OK;
}

void trpi_gang_join(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    trpi_table_put(&gang->members, actor->id, actor);
}

void trpi_gang_leave(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    if (gang) {
        trpi_table_remove(&gang->members, actor->id);
    }
}

static bool all_alive(const trpi_gang_rec *gang) {
    const trpi_actor_rec *actor;
    uint64_t id = 0;
    while ((actor = trpi_table_next(&gang->members, &id)) != NULL) {
        if (actor->place != TRPI_RUNNING) {
            return false;
        }
    }
    return true;
}

void trpi_gang_started(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    if (gang && !gang->restarting && !gang->over && gang->life.phase != TRP_ACTOR_ALIVE &&
        all_alive(gang)) {
        trpi_life_started(&gang->life, c->now_ns);
    }
}

/* ---- Deaths ---- */

bool trpi_gang_mourns(const trpi_cluster *c, const trpi_actor_rec *actor,
                      const trpi_life_end *end) {
    bool alone = end->cause == TRP_CAUSE_STOPPED || end->cause == TRP_CAUSE_FINISHED;
    return trpi_table_get(&c->gangs, actor->gang) && !alone;
}

static void set_reason(trpi_gang_rec *gang, const trpi_actor_rec *actor, trp_cause cause,
                       const char *what) {
    char who[192], name[128], reason[480];
    trpi_text_actor(actor, who, sizeof(who));
    trpi_text_gang(gang, name, sizeof(name));
    trpi_format(reason, sizeof(reason), "%s %s: %s died: %s", name, what, who,
                trp_cause_text(cause));
    trpi_replace(&gang->reason, reason);
}

void trpi_gang_touch(trpi_cluster *c, const trpi_actor_rec *actor) {
    trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    if (gang && (gang->over || gang->restarting)) {
        trpi_table_put(&c->gangs_due, gang->id, gang);
    }
}

/* A death that no restart can follow leaves the gang without one of its own, for good. */
bool trpi_gang_death(trpi_cluster *c, trpi_actor_rec *actor, const trpi_life_end *end) {
    trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    bool comes_back = trpi_life_restartable(TRP_RESTART_ALWAYS, end) ||
                      (end->cause == TRP_CAUSE_GANG && end->may_restart);
    if (gang->over) {
        return false;
    }
    if (gang->restarting && comes_back) {
        return true; /* of the same death of the gang */
    }
    if (comes_back && trpi_life_goes_on(&gang->life, end, c->now_ns)) {
        gang->again_ns = trpi_life_restart(&gang->life, end->uncounted, c->now_ns, &c->random);
        gang->restarting = true;
        set_reason(gang, actor, end->cause, "restarts");
        return true;
    }
    gang->over = true;
    gang->restarting = false;
    gang->cause = TRP_CAUSE_GANG;
    set_reason(gang, actor, end->cause, "has ended");
    trpi_life_end_now(&gang->life);
    return false;
}

/* ---- Telling ---- */

/* Who has a process is ended, softly; who waits leaves its line: it did not die, and joins in. */
static bool gather(trpi_cluster *c, trpi_gang_rec *gang) {
    trpi_actor_rec *actor;
    uint64_t id = 0;
    bool all = true;
    while ((actor = trpi_table_next(&gang->members, &id)) != NULL) {
        if (trpi_actor_has_process(actor)) {
            all = false;
            if (!actor->end_cause) {
                trpi_actor_end(c, actor, TRP_CAUSE_GANG, gang->reason, true, 0);
            }
        } else if (actor->place != TRPI_GATHERING) {
            trpi_actor_leave_line(c, actor);
            actor->place = TRPI_GATHERING;
        }
    }
    return all;
}

static void start_anew(trpi_cluster *c, trpi_gang_rec *gang) {
    trpi_actor_rec *actor;
    uint64_t id = 0;
    gang->restarting = false;
    /* One that can have no place any more ends the gang. */
    while (!gang->over && (actor = trpi_table_next(&gang->members, &id)) != NULL) {
        actor->place = TRPI_BACKOFF;
        if (gang->again_ns > c->now_ns) {
            trpi_timer_set(c, actor, gang->again_ns);
        } else {
            trpi_actor_seek(c, actor);
        }
    }
}

static void end_members(trpi_cluster *c, trpi_gang_rec *gang) {
    trpi_actor_rec *actor;
    uint64_t id = 0;
    while ((actor = trpi_table_next(&gang->members, &id)) != NULL) {
        trpi_actor_end(c, actor, gang->cause, gang->reason, false, 0);
    }
}

static void disappear(trpi_cluster *c, trpi_gang_rec *gang) {
    trpi_client_rec *owner = trpi_table_get(&c->clients, gang->owner);
    if (owner) {
        trpi_table_remove(&owner->gangs, gang->id);
    }
    trpi_job_rec *job = trpi_table_get(&c->jobs, gang->job);
    job->gangs--;
    trpi_answer_all(c, &gang->enders, NULL);
    trpi_table_remove(&c->gangs, gang->id);
    trpi_table_remove(&c->gangs_due, gang->id);
    trpi_gang_free(gang);
}

static void tell(trpi_cluster *c, trpi_gang_rec *gang) {
    if (gang->over) {
        end_members(c, gang);
        if (gang->members.count == 0) {
            disappear(c, gang);
        }
    } else if (gang->restarting && gather(c, gang)) {
        start_anew(c, gang);
    }
}

bool trpi_gangs_tell(trpi_cluster *c) {
    trpi_gang_rec *gang;
    uint64_t id = 0;
    bool any = false;
    while ((gang = trpi_table_next(&c->gangs_due, &id)) != NULL) {
        trpi_table_remove(&c->gangs_due, id);
        tell(c, gang);
        any = true;
    }
    return any;
}

/* ---- End ---- */

void trpi_gang_end(trpi_cluster *c, trpi_gang_rec *gang, trp_cause cause, const char *reason) {
    if (!gang->over) {
        gang->over = true;
        gang->restarting = false;
        gang->cause = cause;
        trpi_replace(&gang->reason, reason);
        trpi_life_end_now(&gang->life);
    }
    trpi_table_put(&c->gangs_due, gang->id, gang);
}

/* One that is over and gone already is as it was asked to be. */
void trpi_gang_end_asked(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_gang_end *msg) {
    trpi_gang_rec *gang = trpi_table_get(&c->gangs, msg->gang);
    char who[400], reason[500];
    if (!gang) {
        trp_error error = {0};
        if (msg->gang == 0 || msg->gang > c->last_gang) {
            (void)trpi_fail(&error, TRP_ENOTFOUND, "there is no gang x%" PRIu64, msg->gang);
        }
        trpi_post_done(c, client->peer, msg->request, &error);
        return;
    }
    trpi_ask(&gang->enders, client->id, msg->request);
    trpi_text_client(c, client, who, sizeof(who));
    trpi_format(reason, sizeof(reason), "gang x%" PRIu64 " was ended by %s", gang->id, who);
    trpi_gang_end(c, gang, TRP_CAUSE_GANG, reason);
}
