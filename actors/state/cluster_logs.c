/* cluster_logs.c: output of actors finds its way: lines to the job's driver, files to who asks. */
#include <inttypes.h>

#include <stdlib.h>

#include "actors/state/cluster_parts.h"

void trpi_log_lines(trpi_cluster *c, const trpi_msg_log_lines *msg) {
    const trpi_job_rec *job = trpi_table_get(&c->jobs, msg->job);
    const trpi_client_rec *driver = job ? trpi_table_get(&c->clients, job->client) : NULL;
    if (driver && driver->wants_logs) {
        trpi_post(c, driver->peer, TRPI_MSG_LOG_LINES)->log_lines = *msg;
    }
}

/* Whose output is asked for: an actor's, or that of a submitted job's driver. "" = nobody's. Which
 * node has or last had it; 0 = none yet. */
static uint64_t owner_of_logs(const trpi_cluster *c, const trpi_msg_logs_query *msg, char *who,
                              size_t size) {
    const trpi_actor_rec *actor = trpi_table_get(&c->actors, msg->actor);
    const trpi_job_rec *job = msg->actor ? NULL : trpi_table_get(&c->jobs, msg->job);
    trpi_format(who, size, "%s", "");
    if (actor) {
        trpi_format(who, size, "actor a%" PRIu64, actor->id);
        return actor->node ? actor->node : actor->last_node;
    }
    if (job && job->submitted) {
        trpi_format(who, size, "job j%" PRIu64, job->id);
        return job->ran_on;
    }
    return 0;
}

static trpi_node_rec *node_with_logs(trpi_cluster *c, const trpi_msg_logs_query *msg,
                                     trp_error *err) {
    char who[64];
    uint64_t last = owner_of_logs(c, msg, who, sizeof(who));
    uint64_t id = msg->node ? msg->node : last;
    trpi_node_rec *node = trpi_table_get(&c->nodes, id);
    if (!who[0]) {
        (void)trpi_fail(err, TRP_ENOTFOUND, "there is no %s %c%" PRIu64 " (any more)",
                        msg->actor ? "actor" : "submitted job", msg->actor ? 'a' : 'j',
                        msg->actor ? msg->actor : msg->job);
        return NULL;
    }
    if (!id) {
        (void)trpi_fail(err, TRP_ENOTFOUND, "%s has not run yet: no output", who);
        return NULL;
    }
    if (!node || !node->living) {
        (void)trpi_fail(err, TRP_ENODE_DIED,
                        "the output of %s is on node n%" PRIu64 ", which is dead", who, id);
        return NULL;
    }
    return node;
}

static void refuse(trpi_cluster *c, const trpi_client_rec *client, uint64_t request,
                   const trp_error *error) {
    const char *message = trpi_keep(c, error->message);
    trpi_msg *out = trpi_post(c, client->peer, TRPI_MSG_LOGS_DATA);
    out->logs_data.request = request;
    out->logs_data.client = client->id;
    out->logs_data.code = error->code;
    out->logs_data.message = message;
}

void trpi_logs_query(trpi_cluster *c, trpi_client_rec *client, const trpi_msg_logs_query *msg) {
    trp_error error;
    trpi_node_rec *node = node_with_logs(c, msg, &error);
    if (!node) {
        refuse(c, client, msg->request, &error);
        return;
    }
    trpi_ask(&node->log_askers, client->id, msg->request);
    trpi_msg *out = trpi_post(c, node->peer, TRPI_MSG_LOGS_QUERY);
    out->logs_query = *msg;
    out->logs_query.client = client->id;
}

/* True once for each query: what it answers beyond that is stale. */
static bool was_asked(trpi_askers *askers, uint64_t client, uint64_t request) {
    for (size_t i = 0; i < askers->count; i++) {
        if (askers->items[i].client == client && askers->items[i].request == request) {
            askers->items[i] = askers->items[--askers->count];
            return true;
        }
    }
    return false;
}

void trpi_logs_data(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_logs_data *msg) {
    if (!was_asked(&node->log_askers, msg->client, msg->request)) {
        c->stale++;
        return;
    }
    const trpi_client_rec *client = trpi_table_get(&c->clients, msg->client);
    if (client) {
        trpi_post(c, client->peer, TRPI_MSG_LOGS_DATA)->logs_data = *msg;
    }
}

void trpi_logs_node_dead(trpi_cluster *c, trpi_node_rec *node) {
    trp_error error;
    char name[128];
    trpi_text_node(c, node->id, name, sizeof(name));
    (void)trpi_fail(&error, TRP_ENODE_DIED, "the output is on %s, which died: %s", name,
                    node->reason);
    for (size_t i = 0; i < node->log_askers.count; i++) {
        const trpi_asker *asker = &node->log_askers.items[i];
        const trpi_client_rec *client = trpi_table_get(&c->clients, asker->client);
        if (client) {
            refuse(c, client, asker->request, &error);
        }
    }
    free(node->log_askers.items);
    node->log_askers = (trpi_askers){0};
}
