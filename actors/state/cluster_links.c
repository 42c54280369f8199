/* cluster_links.c: actors that do not want to live without each other.
 *
 * A link is between two actors, not between incarnations: it holds across restarts, and ends when
 * one of them is dead for good. Then it kills the other, whose own restart rules decide what
 * follows; and as a link is used up by that, a wave of deaths along links comes to its end.
 *
 * The killing waits for the end of the step: a death can be one of many that the event causes, and
 * a chain of links may be as long as the cluster is large. */
#include <inttypes.h>
#include <stdlib.h>

#include "actors/state/cluster_parts.h"

static trp_code check(const trpi_cluster *c, const trpi_client_rec *client,
                      const trpi_msg_link *msg, trp_error *err) {
    const trpi_actor_rec *other = trpi_table_get(&c->actors, msg->other);
    if (client->kind != TRPI_WORKER) {
        return trpi_fail(err, TRP_EINVALID,
                         "only actors have links; a driver owns what it spawns anyway");
    }
    if (client->actor == msg->other) {
        return trpi_fail(err, TRP_EINVALID, "actor a%" PRIu64 " cannot be linked to itself",
                         msg->other);
    }
    if (!msg->cut && (!other || other->place == TRPI_NOWHERE)) {
        return trpi_fail(err, TRP_EACTOR_DIED, "actor a%" PRIu64 " is dead%s%s", msg->other,
                         other ? ": " : "", other ? other->death->message : "");
    }
    if (!msg->cut && c->links + 2 > c->config.links_max) {
        return trpi_fail(err, TRP_EBUSY, "the cluster has %" PRIu64 " links, its limit",
                         c->links / 2);
    }
    return TRP_OK;
}

static void cut(trpi_cluster *c, trpi_actor_rec *one, trpi_actor_rec *other) {
    if (trpi_table_remove(&one->links, other->id)) {
        trpi_table_remove(&other->links, one->id);
        c->links -= 2;
    }
}

void trpi_link(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_link *msg) {
    trpi_actor_rec *one = trpi_table_get(&c->actors, client->actor);
    trpi_actor_rec *other = trpi_table_get(&c->actors, msg->other);
    trp_error error = {0};
    if (check(c, client, msg, &error) == TRP_OK) {
        if (msg->cut && other) {
            cut(c, one, other);
        } else if (other && !trpi_table_get(&one->links, other->id)) {
            trpi_table_put(&one->links, other->id, other);
            trpi_table_put(&other->links, one->id, one);
            c->links += 2;
        }
    }
    trpi_post_done(c, client->peer, msg->request, &error);
}

void trpi_links_cut(trpi_cluster *c, trpi_actor_rec *actor) {
    trpi_actor_rec *other;
    uint64_t id = 0;
    trpi_table_remove(&c->doomed, actor->id);
    free(actor->doom);
    actor->doom = NULL;
    while ((other = trpi_table_next(&actor->links, &id)) != NULL) {
        cut(c, actor, other);
        if (!other->doom) {
            char who[192], reason[400];
            trpi_text_actor(actor, who, sizeof(who));
            trpi_format(reason, sizeof(reason), "it was linked to %s, which is dead: %s", who,
                        trp_cause_text((trp_cause)actor->death->cause));
            other->doom = trpi_strdup(reason);
            trpi_table_put(&c->doomed, other->id, other);
        }
    }
}

bool trpi_links_kill(trpi_cluster *c) {
    trpi_actor_rec *actor;
    uint64_t id = 0;
    bool any = false;
    while ((actor = trpi_table_next(&c->doomed, &id)) != NULL) {
        char *reason = actor->doom;
        actor->doom = NULL;
        trpi_table_remove(&c->doomed, id);
        trpi_actor_end(c, actor, TRP_CAUSE_LINKED, reason, true, 0);
        free(reason);
        any = true;
    }
    return any;
}
