/* client_groups.c: placement groups: asking for them, and the head's last word on each. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/proc/client_internal.h"
#include "actors/proc/client_resources.h"
#include "core/base/config.h"
#include "core/net/clock.h"

typedef struct group_word {
    bool is_placed, is_infeasible;
    trp_code code; /* why it will never be */
    char *message; /* that, or what is missing */
    uint64_t *nodes;
    size_t node_count;
} group_word;

/* ---- The head's word ---- */

static void drop_content(group_word *view) {
    free(view->message);
    free(view->nodes);
}

/* Locked. */
static void take_word(trp_runtime *rt, const trpi_msg_group_state *state) {
    group_word *view = trpi_table_get(&rt->data.groups, state->group);
    if (view == NULL) {
        view = trpi_alloc(sizeof(*view));
        trpi_table_put(&rt->data.groups, state->group, view);
    }
    drop_content(view);
    *view = (group_word){.is_placed = state->placed,
                         .is_infeasible = state->infeasible,
                         .code = (trp_code)state->code,
                         .message = trpi_strdup(state->message),
                         .nodes = trpi_alloc((state->nodes_count + 1) * sizeof(uint64_t)),
                         .node_count = state->nodes_count};
    for (size_t i = 0; i < state->nodes_count; i++) {
        view->nodes[i] = state->nodes[i].node;
    }
}

void trpi_groups_word(trp_runtime *rt, const trpi_msg_group_state *state) {
    if (state->group == 0) {
        return;
    }
    trpi_data_lock(rt);
    take_word(rt, state);
    pthread_cond_broadcast(&rt->data.changed);
    trpi_data_leave(rt);
}

void trpi_groups_watch_all(trp_runtime *rt) {
    uint64_t group = 0;
    trpi_data_lock(rt);
    for (group_word *view; (view = trpi_table_next(&rt->data.groups, &group)) != NULL;) {
        trpi_msg msg = {.type = TRPI_MSG_GROUP_WATCH, .group_watch = {.group = group}};
        if (view->code == TRP_OK && trpi_client_post(rt, &msg, NULL) != TRP_OK) {
            break; /* lost again: the next welcome comes here again */
        }
    }
    trpi_data_leave(rt);
}

void trpi_groups_orphan(trp_runtime *rt, const char *why) {
    uint64_t group = 0;
    for (group_word *view; (view = trpi_table_next(&rt->data.groups, &group)) != NULL;) {
        if (view->code == TRP_OK) {
            free(view->message);
            view->message = trpi_strdup(why);
            view->code = TRP_EDISCONNECTED;
            view->is_placed = false;
        }
    }
}

void trpi_groups_drop(trp_runtime *rt) {
    uint64_t group = 0;
    for (group_word *view; (view = trpi_table_next(&rt->data.groups, &group)) != NULL;) {
        drop_content(view);
        free(view);
    }
    trpi_table_release(&rt->data.groups);
}

/* ---- Creating ---- */

static void free_bundles(trpi_bundle *bundles, size_t count) {
    for (size_t i = 0; i < count; i++) {
        free(bundles[i].resources);
    }
    free(bundles);
}

static trp_code make_bundles(const trp_group_options *options, trpi_bundle **ret_bundles,
                             trp_error *err) {
    trpi_bundle *bundles = trpi_alloc(options->bundle_count * sizeof(*bundles));
    for (size_t i = 0; i < options->bundle_count; i++) {
        trp_code code = trpi_resources_of(&options->bundles[i], &bundles[i].resources,
                                          &bundles[i].resources_count, err);
        if (code == TRP_OK && bundles[i].resources_count == 0) {
            code = trpi_fail(err, TRP_EINVALID, "it is empty; ask for something or leave it out");
        }
        if (code != TRP_OK) {
            free_bundles(bundles, i + 1);
            return trpi_context(err, code, "bundle %zu", i);
        }
    }
    *ret_bundles = bundles;
    return TRP_OK;
}

/* A request that is answered by GROUP_STATE. */
static trp_code request_state(trp_runtime *rt, trpi_msg *msg, trp_group *ret_group,
                              trp_error *err) {
    trpi_client_reply *storage;
    const trpi_msg *reply;
    trp_code code = trpi_client_request(rt, msg, trpi_config(TRPI_CONFIG_REQUEST_TIMEOUT_MS),
                                        &storage, &reply, err);
    if (code != TRP_OK) {
        return code;
    }
    if (reply->type != TRPI_MSG_GROUP_STATE) {
        code =
            trpi_fail(err, TRP_EPROTOCOL, "the head answered with %s", trpi_msg_name(reply->type));
    } else if (reply->group_state.code != TRP_OK) {
        code = trpi_fail(err, (trp_code)reply->group_state.code, "%s", reply->group_state.message);
    } else {
        *ret_group = (trp_group){reply->group_state.group};
    }
    trpi_client_reply_release(storage);
    return code;
}

trp_code trp_group_create(trp_runtime *rt, const trp_group_options *options, trp_group *ret_group,
                          trp_error *err) {
    trpi_bundle *bundles = NULL;
    trp_code code = TRP_OK;
    if (options == NULL || options->bundle_count == 0) {
        code = trpi_fail(err, TRP_EINVALID, "a group needs at least one bundle");
    } else if ((unsigned)options->strategy > TRP_STRICT_SPREAD) {
        code = trpi_fail(err, TRP_EINVALID, "strategy: %d is none", (int)options->strategy);
    } else {
        code = make_bundles(options, &bundles, err);
    }
    if (code == TRP_OK) {
        trpi_msg msg = {.type = TRPI_MSG_GROUP_CREATE,
                        .group_create = {.name = options->name,
                                         .strategy = options->strategy,
                                         .bundles = bundles,
                                         .bundles_count = options->bundle_count,
                                         .detached = options->detached}};
        code = request_state(rt, &msg, ret_group, err);
        free_bundles(bundles, options->bundle_count);
    }
    return code == TRP_OK ? code : trpi_context(err, code, "create group");
}

trp_code trp_group_remove(trp_runtime *rt, trp_group group, trp_error *err) {
    trpi_msg msg = {.type = TRPI_MSG_GROUP_REMOVE, .group_remove = {.group = group.id}};
    trp_code code = trpi_client_ask(rt, &msg, err);
    return code == TRP_OK ? code : trpi_context(err, code, "remove group g%" PRIu64, group.id);
}

/* ---- Waiting ---- */

static trp_code watch(trp_runtime *rt, trp_group group, trp_error *err) {
    trpi_data_lock(rt);
    bool is_known = trpi_table_get(&rt->data.groups, group.id) != NULL;
    trpi_data_leave(rt);
    if (is_known) {
        return TRP_OK;
    }
    trp_group same;
    trpi_msg msg = {.type = TRPI_MSG_GROUP_WATCH, .group_watch = {.group = group.id}};
    return request_state(rt, &msg, &same, err);
}

static trp_code hand_out_nodes(const group_word *view, uint64_t *ret_nodes, size_t node_count,
                               trp_error *err) {
    if (ret_nodes == NULL) {
        return TRP_OK;
    }
    if (node_count != view->node_count) {
        return trpi_fail(err, TRP_EINVALID, "it has %zu bundles, there is room for %zu nodes",
                         view->node_count, node_count);
    }
    memcpy(ret_nodes, view->nodes, node_count * sizeof(*ret_nodes));
    return TRP_OK;
}

trp_code trp_group_wait(trp_runtime *rt, trp_group group, uint64_t timeout_ms, uint64_t *ret_nodes,
                        size_t node_count, trp_error *err) {
    uint64_t deadline_ns = trpi_deadline_ns(timeout_ms);
    trp_code code = watch(rt, group, err);
    if (code != TRP_OK) {
        return trpi_context(err, code, "wait for group g%" PRIu64, group.id);
    }
    trpi_data_lock(rt);
    const group_word *view = trpi_table_get(&rt->data.groups, group.id);
    while (view != NULL && !view->is_placed && view->code == TRP_OK &&
           trpi_data_wait_changed(rt, deadline_ns)) {
        view = trpi_table_get(&rt->data.groups, group.id);
    }
    if (view == NULL) {
        code = trpi_fail(err, TRP_ENOTFOUND, "the head said nothing of it");
    } else if (view->code != TRP_OK) {
        code = trpi_fail(err, view->code, "%s", view->message);
    } else if (!view->is_placed) {
        code = trpi_fail(err, view->is_infeasible ? TRP_EINFEASIBLE : TRP_ETIMEOUT,
                         "not placed in time: %s", view->message);
    } else {
        code = hand_out_nodes(view, ret_nodes, node_count, err);
    }
    trpi_data_leave(rt);
    return code == TRP_OK ? code : trpi_context(err, code, "wait for group g%" PRIu64, group.id);
}

trp_code trp_group_lookup(trp_runtime *rt, const char *name, trp_group *ret_group, trp_error *err) {
    if (name == NULL || name[0] == '\0') {
        return trpi_fail(err, TRP_EINVALID, "group lookup: the name is empty");
    }
    trpi_msg msg = {.type = TRPI_MSG_GROUP_LOOKUP, .group_lookup = {.name = name}};
    trp_code code = request_state(rt, &msg, ret_group, err);
    return code == TRP_OK ? code : trpi_context(err, code, "group lookup %s", name);
}
