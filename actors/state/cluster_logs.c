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

/* The node that has or last had the actor, if it can be asked. */
static trpi_node_rec *node_with_logs(trpi_cluster *c, uint64_t actor_id, trp_error *err) {
    const trpi_actor_rec *actor = trpi_table_get(&c->actors, actor_id);
    if (!actor) {
        (void)trpi_fail(err, TRP_ENOTFOUND, "there is no actor a%" PRIu64 " (any more)", actor_id);
        return NULL;
    }
    uint64_t id = actor->node ? actor->node : actor->last_node;
    trpi_node_rec *node = trpi_table_get(&c->nodes, id);
    if (!id) {
        (void)trpi_fail(err, TRP_ENOTFOUND, "actor a%" PRIu64 " has not run yet: no output",
                        actor_id);
        return NULL;
    }
    if (!node || !node->living) {
        (void)trpi_fail(err, TRP_ENODE_DIED,
                        "the output of actor a%" PRIu64 " is on node n%" PRIu64 ", which is dead",
                        actor_id, id);
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
    trpi_node_rec *node = node_with_logs(c, msg->actor, &error);
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
