/* msg.c: names of messages, and the rules that types alone do not express. */
#include "core/wire/msg.h"

#include <troupe/actor.h>

/* The fields say nothing here. */
#define U64(n)
#define I64(n)
#define BOOL(n)
#define STR(n)
#define BIN(n)
#define LIST(type, n)
#define STRUCT(name)
#define END_STRUCT(name)
#define END_MESSAGE(NAME, name)

const char *trpi_msg_name(trpi_msg_type type) {
    switch (type) {
#define MESSAGE(NAME, name, number)                                                                \
    case TRPI_MSG_##NAME:                                                                          \
        return #NAME;
#include "core/wire/wire.def"
#undef MESSAGE
    }
    return "?";
}

#include "core/wire/wire_end.def"

static const char *check_code(uint64_t code) {
    return code < TRP_CODE_COUNT ? NULL : "code is no trp_code";
}

static const char *check_cause(uint64_t cause) {
    return cause < TRP_CAUSE_COUNT ? NULL : "cause is no trp_cause";
}

/* At least and at most so many deaths, each with a cause that exists. */
static const char *check_deaths(const trpi_death *deaths, size_t count, size_t min, size_t max) {
    if (count < min || count > max) {
        return min == max ? "death must be exactly one" : "death must be at most one";
    }
    for (size_t i = 0; i < count; i++) {
        const char *reason = check_cause(deaths[i].cause);
        if (reason != NULL) {
            return reason;
        }
    }
    return NULL;
}

/* A negative amount would give resources to whoever asks for it. */
static const char *check_resources(const trpi_resource *resources, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (resources[i].amount < 0) {
            return "amount of a resource is negative";
        }
        if (resources[i].name[0] == '\0') {
            return "name of a resource is empty";
        }
    }
    return NULL;
}

static const char *check_group(const trpi_msg_group_create *group) {
    if (group->strategy > TRP_STRICT_SPREAD) {
        return "strategy is no trp_strategy";
    }
    for (size_t i = 0; i < group->bundles_count; i++) {
        const trpi_bundle *bundle = &group->bundles[i];
        const char *reason = check_resources(bundle->resources, bundle->resources_count);
        if (reason != NULL) {
            return reason;
        }
    }
    return NULL;
}

static const char *check_spawn(const trpi_msg_spawn *spawn) {
    if (spawn->restart > TRP_RESTART_NEVER) {
        return "restart is no trp_restart";
    }
    if (spawn->schedule > TRP_SCHEDULE_SPREAD) {
        return "schedule is no trp_schedule";
    }
    return check_resources(spawn->resources, spawn->resources_count);
}

static const char *check_actor_state(const trpi_msg_actor_state *state) {
    if (state->phase > TRP_ACTOR_DEAD && state->phase != TRPI_PHASE_UNKNOWN) {
        return "phase is no trp_actor_phase";
    }
    return check_deaths(state->death, state->death_count, 0, 1);
}

const char *trpi_msg_invalid(const trpi_msg *msg) {
    switch (msg->type) {
    case TRPI_MSG_NODE_HELLO:
        return check_resources(msg->node_hello.resources, msg->node_hello.resources_count);
    case TRPI_MSG_SPAWN:
        return check_spawn(&msg->spawn);
    case TRPI_MSG_GROUP_CREATE:
        return check_group(&msg->group_create);
    case TRPI_MSG_GANG_CREATE:
        return msg->gang_create.policy <= TRP_GANG_RESTART ? NULL : "policy is no trp_gang_policy";
    case TRPI_MSG_EXITED:
        return check_deaths(msg->exited.death, msg->exited.death_count, 1, 1);
    case TRPI_MSG_ACTOR_STATE:
        return check_actor_state(&msg->actor_state);
    case TRPI_MSG_END:
        return check_cause(msg->end.cause);
    case TRPI_MSG_WORKER_FAILED:
        return check_cause(msg->worker_failed.cause);
    case TRPI_MSG_DONE:
        return check_code(msg->done.code);
    case TRPI_MSG_SPAWNED:
        return check_code(msg->spawned.code);
    case TRPI_MSG_GROUP_STATE:
        return check_code(msg->group_state.code);
    case TRPI_MSG_KV_VALUE:
        return check_code(msg->kv_value.code);
    case TRPI_MSG_LISTED:
        return check_code(msg->listed.code);
    case TRPI_MSG_LOGS_DATA:
        return check_code(msg->logs_data.code);
    case TRPI_MSG_SAVED:
        return check_code(msg->saved.code);
    case TRPI_MSG_GANGED:
        return check_code(msg->ganged.code);
    case TRPI_MSG_STORE_AT:
        return check_code(msg->store_at.code);
    case TRPI_MSG_JOBBED:
        return check_code(msg->jobbed.code);
    case TRPI_MSG_BLOB_DATA:
        return check_code(msg->blob_data.code);
    case TRPI_MSG_REPLY:
        return check_code(msg->reply.code);
    case TRPI_MSG_STORE_CREATED:
        return check_code(msg->store_created.code);
    case TRPI_MSG_STORE_GOT:
        return check_code(msg->store_got.code);
    case TRPI_MSG_STORE_PART:
        return check_code(msg->store_part.code);
    case TRPI_MSG_STORE_RELAYED:
        return check_code(msg->store_relayed.code);
    default:
        return NULL;
    }
}
