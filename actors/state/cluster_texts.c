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

/* actor a7 (counter "tom") */
static void text_actor(const trpi_actor_rec *actor, char *out, size_t size) {
    char type[NAME_SHOWN], name[NAME_SHOWN];
    cut(actor->type, type, sizeof(type));
    cut(actor->name, name, sizeof(name));
    trpi_format(out, size, "actor a%" PRIu64 " (%s%s%s%s)", actor->id, type, name[0] ? " \"" : "",
                name, name[0] ? "\"" : "");
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

/* What follows from this death, and why no restart does. */
static void text_sequel(const trpi_actor_rec *actor, const trpi_death *death,
                        const trpi_life_end *end, char *out, size_t size) {
    int64_t max = actor->life.rules.restarts_max;
    if (!death->is_final) {
        if (max < 0) {
            trpi_format(out, size, "; restart %" PRId64 " follows", actor->life.restarts);
        } else {
            trpi_format(out, size, "; restart %" PRId64 " of %" PRId64 " follows",
                        actor->life.restarts, max);
        }
    } else if (!trpi_life_restartable(end)) {
        trpi_format(out, size, "; final: this is never restarted");
    } else if (max == 0) {
        trpi_format(out, size, "; final: restarts_max is 0");
    } else {
        trpi_format(out, size, "; final: all %" PRId64 " restarts of restarts_max are used up",
                    max);
    }
}

void trpi_text_death(const trpi_cluster *c, const trpi_actor_rec *actor, const trpi_death *death,
                     const trpi_life_end *end, const char *detail, char *out, size_t size) {
    char who[192], where[160] = "", sequel[96], why[512];
    text_actor(actor, who, sizeof(who));
    if (death->node && death->pid) {
        char node[128];
        trpi_text_node(c, death->node, node, sizeof(node));
        trpi_format(where, sizeof(where), " on %s, pid %" PRId64, node, death->pid);
    } else if (death->node) {
        char node[128];
        trpi_text_node(c, death->node, node, sizeof(node));
        trpi_format(where, sizeof(where), " on %s", node);
    }
    text_sequel(actor, death, end, sequel, sizeof(sequel));
    /* What does not fit is at the end of the detail: who, where and what follows are told whole. */
    size_t others = strlen(who) + strlen(where) + strlen(": ") + strlen(sequel);
    cut(detail[0] ? detail : trp_cause_text((trp_cause)death->cause), why,
        TRPI_MIN(sizeof(why), size - others));
    trpi_format(out, size, "%s%s: %s%s", who, where, why, sequel);
}

static void text_group_wait(const trpi_cluster *c, const trpi_actor_rec *actor, char *out,
                            size_t size) {
    const trpi_group_rec *group = trpi_table_get(&c->groups, actor->group);
    char why[256];
    if (group->phase != TRPI_GROUP_PLACED) {
        (void)trpi_group_explain(c, group, why, sizeof(why));
        trpi_format(out, size, "group g%" PRIu64 " is not placed: %s", group->id, why);
        return;
    }
    trpi_request_text(&actor->request, &c->resource_names, why, sizeof(why));
    if (actor->bundle_asked >= 0) {
        trpi_format(out, size, "busy: bundle %" PRId64 " of group g%" PRIu64 " has not %s free",
                    actor->bundle_asked, group->id, why);
    } else {
        trpi_format(out, size, "busy: no bundle of group g%" PRIu64 " has %s free", group->id, why);
    }
}

static void text_queue_wait(const trpi_cluster *c, const trpi_actor_rec *actor, char *out,
                            size_t size) {
    char why[256];
    trpi_wish wish = {.request = &actor->request, .only = actor->only_node};
    trpi_verdict verdict =
        trpi_sched_explain(&c->sched, &wish, &c->resource_names, why, sizeof(why));
    trpi_format(out, size, "%s: %s", verdict == TRPI_INFEASIBLE ? "infeasible" : "busy", why);
}

void trpi_text_waiting(const trpi_cluster *c, const trpi_actor_rec *actor, char *out, size_t size) {
    trpi_format(out, size, "%s", "");
    switch (actor->place) {
    case TRPI_QUEUED:
        text_queue_wait(c, actor, out, size);
        break;
    case TRPI_IN_GROUP:
        text_group_wait(c, actor, out, size);
        break;
    case TRPI_BACKOFF: {
        uint64_t due = actor->timer ? actor->timer : c->now_ns;
        char left[32];
        trpi_text_seconds(due > c->now_ns ? due - c->now_ns : 0, left, sizeof(left));
        trpi_format(out, size, "restart %" PRIu64 " in a row: starts in %s", actor->life.row, left);
        break;
    }
    case TRPI_STARTING: {
        char node[128];
        trpi_text_node(c, actor->node, node, sizeof(node));
        trpi_format(out, size, "starts on %s", node);
        break;
    }
    default:
        break;
    }
}
