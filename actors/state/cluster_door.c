/* cluster_door.c: who says this, and who handles it.
 *
 * The fences are here: a message of a node or client counts only if its peer is the one that this
 * living node or client said hello from. */
#include <string.h>

#include "actors/state/cluster_parts.h"

/* Files are none of the machine's business. */
static void pass_blob(trpi_cluster *c, uint64_t peer, uint64_t client, const trpi_msg *msg) {
    trpi_cluster_action *action = trpi_act(c, TRPI_ACTION_BLOB);
    action->peer = peer;
    action->id = client;
    action->msg = *msg;
}

static void from_node(trpi_cluster *c, trpi_node_rec *node, const trpi_msg *msg) {
    (void)trpi_membership_hears(&c->node_members, node->id, node->incarnation, c->now_ns);
    switch (msg->type) {
    case TRPI_MSG_STARTED:
        trpi_actor_started(c, node, &msg->started);
        break;
    case TRPI_MSG_EXITED:
        trpi_actor_exited(c, node, &msg->exited);
        break;
    case TRPI_MSG_NODE_BYE:
        trpi_node_bye(c, node, &msg->node_bye);
        break;
    case TRPI_MSG_PID_GONE: {
        trpi_client_rec *client = trpi_table_get(&c->clients, msg->pid_gone.client);
        if (client) {
            trpi_client_end(c, client, false, "its process ended");
        }
        break;
    }
    case TRPI_MSG_NODE_STATS:
        node->stats = msg->node_stats;
        node->stats_ns = c->now_ns;
        break;
    case TRPI_MSG_SAVE:
        trpi_save(c, node, &msg->save);
        break;
    case TRPI_MSG_JOB_STARTED:
        trpi_job_started(c, node, &msg->job_started);
        break;
    case TRPI_MSG_JOB_EXITED:
        trpi_job_exited(c, node, &msg->job_exited);
        break;
    case TRPI_MSG_STORE_QUERY:
        trpi_store_query(c, node->peer, node, NULL, &msg->store_query);
        break;
    case TRPI_MSG_BLOB_GET:
        pass_blob(c, node->peer, 0, msg);
        break;
    case TRPI_MSG_LOG_LINES:
        trpi_log_lines(c, &msg->log_lines);
        break;
    case TRPI_MSG_LOGS_DATA:
        trpi_logs_data(c, node, &msg->logs_data);
        break;
    default:
        c->stale++;
    }
}

static void shutdown_asked(trpi_cluster *c, trpi_client_rec *client,
                           const trpi_msg_head_shutdown *msg) {
    trp_error error = {0};
    if (strcmp(msg->cluster, c->id) != 0) {
        (void)trpi_fail(&error, TRP_EINVALID, "this head serves cluster %s, not %.64s", c->id,
                        msg->cluster);
    }
    trpi_post_done(c, client->peer, msg->request, &error);
    if (error.code == TRP_OK) {
        trpi_nodes_shutdown(c, "troupe stop");
    }
}

static void list_asked(trpi_cluster *c, const trpi_client_rec *client,
                       const trpi_msg_list_query *msg) {
    const char *what = trpi_keep(c, msg->what);
    trpi_cluster_action *action = trpi_act(c, TRPI_ACTION_LIST);
    action->peer = client->peer;
    action->request = msg->request;
    action->text = what;
}

/* True: it is about groups, gangs and jobs, and is done. */
static bool about_many(trpi_cluster *c, trpi_client_rec *client, const trpi_msg *msg) {
    switch (msg->type) {
    case TRPI_MSG_GROUP_CREATE:
        trpi_group_create(c, client, &msg->group_create);
        return true;
    case TRPI_MSG_GROUP_WATCH:
        trpi_group_watch(c, client, &msg->group_watch);
        return true;
    case TRPI_MSG_GROUP_LOOKUP:
        trpi_group_lookup(c, client, &msg->group_lookup);
        return true;
    case TRPI_MSG_GROUP_REMOVE:
        trpi_group_remove(c, client, &msg->group_remove);
        return true;
    case TRPI_MSG_GANG_CREATE:
        trpi_gang_create(c, client, &msg->gang_create);
        return true;
    case TRPI_MSG_GANG_END:
        trpi_gang_end_asked(c, client, &msg->gang_end);
        return true;
    case TRPI_MSG_JOB_SUBMIT:
        trpi_job_submit(c, client, &msg->job_submit);
        return true;
    case TRPI_MSG_JOB_STOP:
        trpi_job_stop(c, client, &msg->job_stop);
        return true;
    default:
        return false;
    }
}

/* True: it is about actors, and is done. */
static bool about_actors(trpi_cluster *c, trpi_client_rec *client, const trpi_msg *msg) {
    switch (msg->type) {
    case TRPI_MSG_SPAWN:
        trpi_actor_spawn(c, client, &msg->spawn);
        return true;
    case TRPI_MSG_LOOKUP:
        trpi_actor_lookup(c, client, &msg->lookup);
        return true;
    case TRPI_MSG_SUBSCRIBE:
        trpi_actor_subscribe(c, client, &msg->subscribe);
        return true;
    case TRPI_MSG_KILL:
        trpi_actor_kill(c, client, &msg->kill);
        return true;
    case TRPI_MSG_SIGNAL:
        trpi_actor_signal(c, &msg->signal);
        return true;
    case TRPI_MSG_LINK:
        trpi_link(c, client, &msg->link);
        return true;
    default:
        return false;
    }
}

static void from_client(trpi_cluster *c, trpi_client_rec *client, const trpi_msg *msg) {
    (void)trpi_membership_hears(&c->client_members, client->id, 1, c->now_ns);
    if (about_actors(c, client, msg) || about_many(c, client, msg)) {
        return;
    }
    switch (msg->type) {
    case TRPI_MSG_CLIENT_BYE:
        trpi_client_bye(c, client, &msg->client_bye);
        break;
    case TRPI_MSG_DRAIN:
        trpi_drain(c, client, &msg->drain);
        break;
    case TRPI_MSG_STORE_QUERY:
        trpi_store_query(c, client->peer, NULL, client, &msg->store_query);
        break;
    case TRPI_MSG_BLOB_PUT:
    case TRPI_MSG_BLOB_GET:
        pass_blob(c, client->peer, client->id, msg);
        break;
    case TRPI_MSG_KV_PUT:
        trpi_kv_put(c, client, &msg->kv_put);
        break;
    case TRPI_MSG_KV_GET:
        trpi_kv_get(c, client, &msg->kv_get);
        break;
    case TRPI_MSG_LIST_QUERY:
        list_asked(c, client, &msg->list_query);
        break;
    case TRPI_MSG_LOGS_QUERY:
        trpi_logs_query(c, client, &msg->logs_query);
        break;
    case TRPI_MSG_HEAD_SHUTDOWN:
        shutdown_asked(c, client, &msg->head_shutdown);
        break;
    default:
        c->stale++;
    }
}

bool trpi_cluster_is_request(trpi_msg_type type) {
    switch (type) {
    case TRPI_MSG_CLIENT_BYE:
    case TRPI_MSG_SPAWN:
    case TRPI_MSG_LOOKUP:
    case TRPI_MSG_KILL:
    case TRPI_MSG_GROUP_CREATE:
    case TRPI_MSG_GROUP_WATCH:
    case TRPI_MSG_GROUP_REMOVE:
    case TRPI_MSG_KV_PUT:
    case TRPI_MSG_KV_GET:
    case TRPI_MSG_LIST_QUERY:
    case TRPI_MSG_LOGS_QUERY:
    case TRPI_MSG_HEAD_SHUTDOWN:
    case TRPI_MSG_DRAIN:
    case TRPI_MSG_GANG_CREATE:
    case TRPI_MSG_GANG_END:
    case TRPI_MSG_LINK:
    case TRPI_MSG_GROUP_LOOKUP:
    case TRPI_MSG_STORE_QUERY:
    case TRPI_MSG_JOB_SUBMIT:
    case TRPI_MSG_JOB_STOP:
    case TRPI_MSG_BLOB_PUT:
    case TRPI_MSG_BLOB_GET:
        return true;
    default:
        return false;
    }
}

/* The number of a request that has one, so that a stranger's can be refused by it. */
static uint64_t request_of(const trpi_msg *msg) {
    return trpi_cluster_is_request(msg->type) ? msg->spawn.request
                                              : 0; /* first field of them all */
}

static void from_stranger(trpi_cluster *c, uint64_t peer, const trpi_msg *msg) {
    c->stale++;
    if (request_of(msg) != 0) {
        trp_error error;
        (void)trpi_fail(&error, TRP_EDISCONNECTED,
                        "the head does not know this process (any more): it was silent for longer "
                        "than CLIENT_TIMEOUT_MS, or never said hello");
        trpi_post_done(c, peer, request_of(msg), &error);
    }
}

void trpi_door_message(trpi_cluster *c, uint64_t peer, const trpi_msg *msg) {
    trpi_node_rec *node = trpi_table_get(&c->node_peers, peer);
    trpi_client_rec *client = trpi_table_get(&c->client_peers, peer);
    if (msg->type == TRPI_MSG_HEARTBEAT) {
        if (msg->heartbeat.node) {
            trpi_node_heartbeat(c, peer, &msg->heartbeat);
        } else {
            trpi_client_heartbeat(c, peer, &msg->heartbeat);
        }
    } else if (msg->type == TRPI_MSG_NODE_HELLO && !client) {
        trpi_node_hello(c, peer, &msg->node_hello);
    } else if (msg->type == TRPI_MSG_CLIENT_HELLO && !node) {
        trpi_client_hello(c, peer, &msg->client_hello);
    } else if (node) {
        from_node(c, node, msg);
    } else if (client) {
        from_client(c, client, msg);
    } else {
        from_stranger(c, peer, msg);
    }
}
