/* cluster_saves.c: states that actors save for their next incarnation. Only the incarnation that
 * lives may save; what it saved last is what the next one gets. Bounded: each, and all together. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "actors/state/cluster_parts.h"

void trpi_saved_drop(trpi_cluster *c, trpi_actor_rec *actor) {
    c->saved_bytes -= actor->saved.size;
    free((void *)actor->saved.data);
    actor->saved = (trp_bytes){0};
    actor->has_saved = false;
}

static trp_code check(const trpi_cluster *c, const trpi_actor_rec *actor, const trpi_msg_save *msg,
                      trp_error *err) {
    if (!actor) {
        return trpi_fail(err, TRP_EACTOR_DIED,
                         "actor a%" PRIu64 ", incarnation %" PRIu64
                         ": the head knows no such living one",
                         msg->actor, msg->incarnation);
    }
    if (msg->state.size > TRPI_ARGS_MAX) {
        return trpi_fail(err, TRP_EINVALID, "a saved state of %zu bytes: at most %zu",
                         msg->state.size, TRPI_ARGS_MAX);
    }
    uint64_t others = c->saved_bytes - actor->saved.size;
    if (msg->state.size > c->config.saved_bytes_max - others) {
        return trpi_fail(err, TRP_EBUSY,
                         "the head keeps %" PRIu64 " bytes of saved states, of at most %" PRIu64
                         " (SAVED_BYTES_MAX)",
                         c->saved_bytes, c->config.saved_bytes_max);
    }
    return TRP_OK;
}

void trpi_save(trpi_cluster *c, trpi_node_rec *node, const trpi_msg_save *msg) {
    trp_error error = {0};
    trpi_actor_rec *actor = trpi_actor_on(c, node, msg->actor, msg->incarnation);
    if (check(c, actor, msg, &error) == TRP_OK) {
        trpi_saved_drop(c, actor);
        actor->saved = trpi_copy_bytes(msg->state);
        actor->has_saved = true;
        c->saved_bytes += actor->saved.size;
    }
    const char *message = trpi_keep(c, error.message);
    trpi_msg_saved *saved = &trpi_post(c, node->peer, TRPI_MSG_SAVED)->saved;
    saved->actor = msg->actor;
    saved->incarnation = msg->incarnation;
    saved->request = msg->request;
    saved->code = error.code;
    saved->message = message;
}
