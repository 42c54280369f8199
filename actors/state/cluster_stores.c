/* cluster_stores.c: what the object stores of nodes must know: where others are, and who is gone.
 * What the head only passes on: it knows no objects. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

/* ---- Where ---- */

/* A worker's store is its node's; a driver's, that of the first node on its host. */
static const trpi_node_rec *node_near(const trpi_cluster *c, const trpi_client_rec *client) {
    const trpi_actor_rec *actor = trpi_table_get(&c->actors, client->actor);
    const trpi_node_rec *node;
    uint64_t id = 0;
    if (actor) {
        return trpi_table_get(&c->nodes, actor->node);
    }
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        if (node->living && node->store_path[0] && strcmp(node->host_id, client->host_id) == 0) {
            return node;
        }
    }
    return NULL;
}

static trp_code check(const trpi_node_rec *node, uint64_t asked, trp_error *err) {
    if (!node && !asked) {
        return trpi_fail(err, TRP_ENOTFOUND, "no node runs on this host: objects need its store");
    }
    if (!node || !node->living) {
        return trpi_fail(err, TRP_ENOTFOUND, "node n%" PRIu64 " is not there (any more)",
                         node ? node->id : asked);
    }
    return node->store_path[0]
               ? TRP_OK
               : trpi_fail(err, TRP_ENOTFOUND, "node n%" PRIu64 " has no store", node->id);
}

void trpi_store_query(trpi_cluster *c, uint64_t peer, const trpi_node_rec *asking_node,
                      const trpi_client_rec *asking_client, const trpi_msg_store_query *msg) {
    const trpi_node_rec *node = msg->node     ? trpi_table_get(&c->nodes, msg->node)
                                : asking_node ? asking_node
                                              : node_near(c, asking_client);
    trp_error error = {0};
    trpi_msg_store_at at = {.request = msg->request, .path = "", .endpoint = ""};
    if (check(node, msg->node, &error) == TRP_OK) {
        at.node = node->id;
        at.path = trpi_keep(c, node->store_path);
        at.endpoint = trpi_keep(c, node->store_endpoint);
    }
    at.code = error.code;
    at.message = trpi_keep(c, error.message);
    trpi_post(c, peer, TRPI_MSG_STORE_AT)->store_at = at;
}

/* ---- Who is gone ---- */

void trpi_stores_client_gone(trpi_cluster *c, uint64_t client) {
    if (c->gone_count == c->gone_capacity) {
        c->gone_capacity = TRPI_MAX(2 * c->gone_capacity, (size_t)16);
        c->gone = trpi_realloc(c->gone, c->gone_capacity * sizeof(*c->gone));
    }
    c->gone[c->gone_count++].client = client;
}

void trpi_stores_tell(trpi_cluster *c) {
    if (c->gone_count == 0) {
        return;
    }
    trpi_client_ref *clients = trpi_keep_array(c, c->gone_count, sizeof(*clients));
    memcpy(clients, c->gone, c->gone_count * sizeof(*clients));
    const trpi_node_rec *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        if (node->living) {
            trpi_msg_client_gone *msg =
                &trpi_post(c, node->peer, TRPI_MSG_CLIENT_GONE)->client_gone;
            msg->clients = clients;
            msg->clients_count = c->gone_count;
        }
    }
    free(c->gone);
    c->gone = NULL;
    c->gone_count = c->gone_capacity = 0;
}

void trpi_stores_tell_all(trpi_cluster *c, const trpi_node_rec *node) {
    trpi_client_ref *clients = trpi_keep_array(c, c->clients.count, sizeof(*clients));
    size_t count = 0;
    uint64_t id = 0;
    while (trpi_table_next(&c->clients, &id) != NULL) {
        clients[count++].client = id;
    }
    trpi_msg_client_gone *msg = &trpi_post(c, node->peer, TRPI_MSG_CLIENT_GONE)->client_gone;
    msg->clients = clients;
    msg->clients_count = count;
    msg->all_but_until = c->last_client;
}

void trpi_stores_node_gone(trpi_cluster *c, const trpi_node_rec *gone) {
    const trpi_node_rec *node;
    uint64_t id = 0;
    while ((node = trpi_table_next(&c->nodes, &id)) != NULL) {
        if (node->living) {
            trpi_msg_node_gone *msg = &trpi_post(c, node->peer, TRPI_MSG_NODE_GONE)->node_gone;
            msg->node = gone->id;
            msg->incarnation = gone->incarnation;
        }
    }
}
