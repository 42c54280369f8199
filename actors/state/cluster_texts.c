/* cluster_texts.c: what users read: who, where, why, the numbers, and what to change. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

#define NAME_SHOWN 64 /* bytes of a user's name within a sentence, so that the rest has room */

/* Copies a text, cut between two characters of UTF-8 where it does not fit, and shows that. */
static void cut(const char *text, char *out, size_t size) {
    size_t length = strlen(text), end = size - sizeof("...");
    if (length < size) {
        end = length;
    }
    while (end < length && end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) {
        end--;
    }
    trpi_format(out, size, "%.*s%s", (int)end, text, end < length ? "..." : "");
}

void trpi_text_actor(const trpi_actor_rec *actor, char *out, size_t size) {
    char type[NAME_SHOWN], name[NAME_SHOWN];
    cut(actor->type, type, sizeof(type));
    cut(actor->name, name, sizeof(name));
    trpi_format(out, size, "actor a%" PRIu64 " (%s%s%s%s)", actor->id, type, name[0] ? " \"" : "",
                name, name[0] ? "\"" : "");
}

void trpi_text_gang(const trpi_gang_rec *gang, char *out, size_t size) {
    char name[NAME_SHOWN];
    cut(gang->name, name, sizeof(name));
    trpi_format(out, size, "gang x%" PRIu64 "%s%s%s", gang->id, name[0] ? " (\"" : "", name,
                name[0] ? "\")" : "");
}

void trpi_text_node(const trpi_cluster *c, uint64_t node, char *out, size_t size) {
    const trpi_node_rec *of = trpi_table_get(&c->nodes, node);
    if (of) {
        char name[NAME_SHOWN];
        cut(of->name, name, sizeof(name));
        trpi_format(out, size, "node n%" PRIu64 " (%s)", node, name);
    } else {
        trpi_format(out, size, "node n%" PRIu64, node);
    }
}

void trpi_text_client(const trpi_cluster *c, const trpi_client_rec *client, char *out,
                      size_t size) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, client->job);
    char name[NAME_SHOWN];
    switch (client->kind) {
    case TRPI_DRIVER:
        cut(job ? job->name : "?", name, sizeof(name));
        trpi_format(out, size, "driver %s (job j%" PRIu64 ", pid %" PRId64 ")", name, client->job,
                    client->pid);
        break;
    case TRPI_WORKER:
        trpi_format(out, size, "actor a%" PRIu64 " (incarnation %" PRIu64 ", pid %" PRId64 ")",
                    client->actor, client->incarnation, client->pid);
        break;
    case TRPI_TOOL:
        trpi_format(out, size, "troupe command (pid %" PRId64 ")", client->pid);
        break;
    }
}

void trpi_text_seconds(uint64_t ns, char *out, size_t size) {
    uint64_t tenths = ns / (TRPI_NS_PER_MS * 100);
    trpi_format(out, size, "%" PRIu64 ".%" PRIu64 " s", tenths / 10, tenths % 10);
}

/* "restart 2 of 3 follows" */
static void text_restart(const trpi_life *life, bool uncounted, char *out, size_t size) {
    int64_t max = life->rules.restarts_max;
    if (max < 0) {
        trpi_format(out, size, "restart %" PRId64 " follows", life->restarts);
    } else if (uncounted) {
        trpi_format(out, size, "a restart follows, which is not counted");
    } else {
        trpi_format(out, size, "restart %" PRId64 " of %" PRId64 " follows%s", life->counted, max,
                    life->rules.window_ns ? " (within restart_window_ms)" : "");
    }
}

/* Why no restart follows. */
static void text_last(const trpi_life *life, const trpi_life_end *end, char *out, size_t size) {
    int64_t max = life->rules.restarts_max;
    char window[32];
    if (!trpi_life_restartable(TRP_RESTART_ALWAYS, end)) {
        trpi_format(out, size, "final: this is never restarted");
    } else if (life->rules.restart == TRP_RESTART_NEVER) {
        trpi_format(out, size, "final: its restart type is NEVER");
    } else if (!trpi_life_restartable(life->rules.restart, end)) {
        trpi_format(out, size, "final: only restart type ALWAYS restarts an orderly end");
    } else if (max == 0) {
        trpi_format(out, size, "final: restarts_max is 0");
    } else if (life->rules.window_ns) {
        trpi_text_seconds(life->rules.window_ns, window, sizeof(window));
        trpi_format(out, size, "final: more than restarts_max (%" PRId64 ") in %s", max, window);
    } else {
        trpi_format(out, size, "final: all %" PRId64 " restarts of restarts_max are used up", max);
    }
}

/* What follows from this death, and why no restart does. */
static void text_sequel(const trpi_cluster *c, const trpi_actor_rec *actor, const trpi_death *death,
                        const trpi_life_end *end, char *out, size_t size) {
    const trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    char name[128] = "", what[128];
    if (trpi_gang_mourns(c, actor, end)) {
        trpi_text_gang(gang, name, sizeof(name));
    }
    if (!death->is_final) {
        text_restart(name[0] ? &gang->life : &actor->life, end->uncounted, what, sizeof(what));
        trpi_format(out, size, "; %s%s%s", name[0] ? "with " : "", name, name[0] ? ": " : "");
        trpi_format(out + strlen(out), size - strlen(out), "%s", what);
    } else if (name[0] && gang->policy == TRP_GANG_END) {
        trpi_format(out, size, "; final: %s ends with it", name);
    } else {
        text_last(name[0] ? &gang->life : &actor->life, end, what, sizeof(what));
        trpi_format(out, size, "; %s%s%s", what, name[0] ? " in " : "", name);
    }
}

void trpi_text_death(const trpi_cluster *c, const trpi_actor_rec *actor, const trpi_death *death,
                     const trpi_life_end *end, const char *detail, char *out, size_t size) {
    char who[192], where[160] = "", sequel[256], why[512];
    trpi_text_actor(actor, who, sizeof(who));
    if (death->cause == TRP_CAUSE_NODE_DIED && detail[0]) { /* which tells of the node itself */
        if (death->pid) {
            trpi_format(where, sizeof(where), ", pid %" PRId64, death->pid);
        }
    } else if (death->node && death->pid) {
        char node[128];
        trpi_text_node(c, death->node, node, sizeof(node));
        trpi_format(where, sizeof(where), " on %s, pid %" PRId64, node, death->pid);
    } else if (death->node) {
        char node[128];
        trpi_text_node(c, death->node, node, sizeof(node));
        trpi_format(where, sizeof(where), " on %s", node);
    }
    text_sequel(c, actor, death, end, sequel, sizeof(sequel));
    /* What does not fit is at the end of the detail: who, where and what follows are told whole. */
    size_t others = strlen(who) + strlen(where) + strlen(": ") + strlen(sequel);
    cut(detail[0] ? detail : trp_cause_text((trp_cause)death->cause), why,
        TRPI_MIN(sizeof(why), size - others));
    trpi_format(out, size, "%s%s: %s%s", who, where, why, sequel);
}

static void text_group_wait(const trpi_cluster *c, const trpi_actor_rec *actor, char *out,
                            size_t size) {
    const trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    int64_t asked = actor->wants.bundle;
    char why[400];
    if (group->phase != TRPI_GROUP_PLACED) {
        (void)trpi_group_explain(c, group, why, sizeof(why));
        trpi_format(out, size, "group g%" PRIu64 " is not placed: %s", group->id, why);
        return;
    }
    trpi_request_text(&actor->request, &c->resource_names, why, sizeof(why));
    const trpi_node_rec *node =
        asked >= 0 ? trpi_table_get(&c->nodes, group->seats[asked].node) : NULL;
    if (node && node->draining) {
        trpi_format(out, size,
                    "bundle %" PRId64 " of group g%" PRIu64
                    " moves when nobody uses it: node n%" PRIu64 " is being drained",
                    asked, group->id, node->id);
    } else if (asked >= 0) {
        trpi_format(out, size, "busy: bundle %" PRId64 " of group g%" PRIu64 " has not %s free",
                    asked, group->id, why);
    } else {
        trpi_format(out, size, "busy: no bundle of group g%" PRIu64 " has %s free", group->id, why);
    }
}

static void text_queue_wait(const trpi_cluster *c, const trpi_actor_rec *actor, char *out,
                            size_t size) {
    char why[400];
    trpi_wish wish = trpi_actor_wish(c, actor);
    const trpi_turn *turn = trpi_table_get(&c->turns.items, wish.who);
    trpi_verdict verdict =
        trpi_sched_explain(&c->sched, &wish, &c->resource_names, why, sizeof(why));
    trpi_format(out, size, "%s: %s", verdict == TRPI_INFEASIBLE ? "infeasible" : "busy", why);
    if (turn) {
        size_t used = strlen(out);
        trpi_format(out + used, size - used, "; room is kept free for it on node n%" PRIu64,
                    turn->rooms[0].node);
    }
}

static void text_gathering(const trpi_cluster *c, const trpi_actor_rec *actor, char *out,
                           size_t size) {
    const trpi_gang_rec *gang = trpi_table_get(&c->gangs, actor->gang);
    const trpi_actor_rec *member;
    uint64_t id = 0, left = 0;
    char name[128];
    while ((member = trpi_table_next(&gang->members, &id)) != NULL) {
        left += trpi_actor_has_process(member);
    }
    trpi_text_gang(gang, name, sizeof(name));
    trpi_format(out, size, "%s restarts when %" PRIu64 " more of its processes are gone", name,
                left);
}

static void text_backoff(const trpi_cluster *c, const trpi_actor_rec *actor, char *out,
                         size_t size) {
    uint64_t due = TRPI_MAX(actor->timer_ns, c->now_ns);
    char left[32];
    trpi_text_seconds(due - c->now_ns, left, sizeof(left));
    if (actor->lease_ns > c->now_ns) {
        trpi_format(out, size,
                    "exclusive: starts in %s, when the one before must have ended on the node that "
                    "was lost",
                    left);
    } else {
        trpi_format(out, size, "restart %" PRIu64 " in a row: starts in %s", actor->life.row, left);
    }
}

void trpi_text_waiting(const trpi_cluster *c, const trpi_actor_rec *actor, char *out, size_t size) {
    char node[128];
    trpi_format(out, size, "%s", "");
    switch (actor->place) {
    case TRPI_QUEUED:
        text_queue_wait(c, actor, out, size);
        break;
    case TRPI_IN_GROUP:
        text_group_wait(c, actor, out, size);
        break;
    case TRPI_BACKOFF:
        text_backoff(c, actor, out, size);
        break;
    case TRPI_GATHERING:
        text_gathering(c, actor, out, size);
        break;
    case TRPI_STARTING:
        trpi_text_node(c, actor->node, node, sizeof(node));
        trpi_format(out, size, "starts on %s", node);
        break;
    default:
        break;
    }
}
