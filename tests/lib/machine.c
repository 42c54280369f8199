#include "tests/lib/machine.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/wire/codec.h"

test_machine machine;

void machine_event(trpi_cluster_event what) {
    what.now_ns = machine.now_ns;
    trpi_cluster_step(machine.cluster, &what, &machine.actions);
    const char *broken = trpi_cluster_check(machine.cluster);
    if (broken) {
        fail_msg("%s", broken);
    }
}

/* As it comes out of the decoder: no string is NULL. Lives until the next one. */
const trpi_msg *machine_decoded(const trpi_msg *msg) {
    trp_error err = {0};
    trp_buf_clear(&machine.frame);
    trpi_arena_reset(&machine.arena);
    if (trpi_encode(msg, &machine.frame, &err) != TRP_OK ||
        trpi_decode(trp_buf_bytes(&machine.frame), &machine.arena, &machine.msg, &err) != TRP_OK) {
        fail_msg("%s", err.message);
    }
    return &machine.msg;
}

void machine_tell(uint64_t peer, const trpi_msg *msg) {
    machine_event((trpi_cluster_event){
        .kind = TRPI_EVENT_MESSAGE, .peer = peer, .msg = machine_decoded(msg)});
}

void machine_pass(uint64_t ms) { /* as the shell does: a tick often enough that it is no stall */
    for (uint64_t end = machine.now_ns + ms * MS; machine.now_ns < end;) {
        machine.now_ns = TRPI_MIN(machine.now_ns + 50 * MS, end);
        machine_event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    }
}

const trpi_msg *machine_heard(uint64_t peer, trpi_msg_type type) {
    const trpi_msg *found = NULL;
    for (size_t i = 0; i < machine.actions.count; i++) {
        const trpi_cluster_action *action = &machine.actions.items[i];
        if (action->kind == TRPI_ACTION_SEND && action->peer == peer && action->msg.type == type) {
            found = &action->msg;
        }
    }
    return found;
}

const trpi_msg *machine_must_hear(uint64_t peer, trpi_msg_type type) {
    const trpi_msg *msg = machine_heard(peer, type);
    if (!msg) {
        fail_msg("peer %" PRIu64 " does not hear %s", peer, trpi_msg_name(type));
    }
    return msg;
}

uint64_t machine_node(uint64_t peer, int64_t cpus, int64_t gpus) {
    char uuid[16];
    trpi_resource resources[] = {{"cpu", cpus * 10000}, {"gpu", gpus * 10000}};
    trpi_text devices[] = {{"0"}, {"1"}, {"2"}, {"3"}};
    trpi_format(uuid, sizeof(uuid), "uuid-%" PRIu64, peer);
    trpi_msg msg = {.type = TRPI_MSG_NODE_HELLO,
                    .node_hello = {.version = TROUPE_VERSION,
                                   .uuid = uuid,
                                   .host = "",
                                   .host_id = "here",
                                   .pid = 100,
                                   .name = uuid,
                                   .resources = resources,
                                   .resources_count = 2,
                                   .devices = devices,
                                   .devices_count = (size_t)gpus}};
    machine_tell(peer, &msg);
    return machine_must_hear(peer, TRPI_MSG_NODE_WELCOME)->node_welcome.node;
}

uint64_t machine_client(uint64_t peer, const char *kind, uint64_t actor, uint64_t incarnation) {
    trpi_msg msg = {.type = TRPI_MSG_CLIENT_HELLO,
                    .client_hello = {.version = TROUPE_VERSION,
                                     .kind = kind,
                                     .host_id = "here",
                                     .pid = 200 + (int64_t)peer,
                                     .actor = actor,
                                     .incarnation = incarnation,
                                     .job = "program",
                                     .namespace_name = strcmp(kind, "driver") == 0 ? "space" : "",
                                     .exe = "/bin/program",
                                     .cwd = "/"}};
    machine_tell(peer, &msg);
    return machine_must_hear(peer, TRPI_MSG_CLIENT_WELCOME)->client_welcome.client;
}

trpi_msg machine_spawn(int64_t cpus, int64_t gpus, int64_t restarts_max) {
    static trpi_resource resources[2];
    resources[0] = (trpi_resource){"cpu", cpus * 10000};
    resources[1] = (trpi_resource){"gpu", gpus * 10000};
    return (trpi_msg){.type = TRPI_MSG_SPAWN,
                      .spawn = {.request = ++machine.last_request,
                                .type = "counter",
                                .name = "",
                                .resources = resources,
                                .resources_count = 2,
                                .bundle = -1,
                                .restarts_max = restarts_max}};
}

uint64_t machine_spawned(uint64_t peer, const trpi_msg *msg) {
    machine_tell(peer, msg);
    const trpi_msg *answer = machine_must_hear(peer, TRPI_MSG_SPAWNED);
    assert_int_equal(answer->spawned.request, msg->spawn.request);
    assert_int_equal(answer->spawned.code, TRP_OK);
    return answer->spawned.actor;
}

void machine_refused(uint64_t peer, const trpi_msg *msg, trp_code code, const char *words) {
    machine_tell(peer, msg);
    const trpi_msg *answer = machine_must_hear(peer, TRPI_MSG_SPAWNED);
    assert_int_equal(answer->spawned.code, code);
    if (!strstr(answer->spawned.message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", answer->spawned.message, words);
    }
}

void machine_started(uint64_t peer, uint64_t actor, uint64_t incarnation) {
    trpi_msg msg = {.type = TRPI_MSG_STARTED,
                    .started = {actor, incarnation, 1000 + (int64_t)actor, "ipc", ""}};
    machine_tell(peer, &msg);
}

void machine_exited(uint64_t peer, uint64_t actor, trpi_death death) {
    death.message = death.message ? death.message : "";
    death.stderr_tail = "oops";
    trpi_msg msg = {.type = TRPI_MSG_EXITED, .exited = {actor, &death, 1}};
    machine_tell(peer, &msg);
}

void machine_crash(uint64_t peer, uint64_t actor, uint64_t incarnation) {
    machine_exited(peer, actor,
                   (trpi_death){.incarnation = incarnation,
                                .pid = 1000 + (int64_t)actor,
                                .cause = TRP_CAUSE_SIGNALED,
                                .signal = 11,
                                .message = "signal 11 (SIGSEGV)"});
}

void machine_kill(uint64_t peer, uint64_t actor, bool may_restart) {
    trpi_msg msg = {.type = TRPI_MSG_KILL, .kill = {++machine.last_request, actor, may_restart}};
    machine_tell(peer, &msg);
}

void machine_subscribe(uint64_t peer, uint64_t actor) {
    trpi_msg msg = {.type = TRPI_MSG_SUBSCRIBE, .subscribe = {actor}};
    machine_tell(peer, &msg);
}

trpi_actor_view machine_view(uint64_t actor) {
    trpi_actor_view found;
    assert_true(trpi_cluster_actor(machine.cluster, actor, &found));
    return found;
}

void machine_says(const trpi_actor_view *actor, trp_cause cause, const char *words) {
    assert_non_null(actor->death);
    assert_int_equal(actor->death->cause, cause);
    if (!strstr(actor->death->message, words)) {
        fail_msg("\"%s\" does not say \"%s\"", actor->death->message, words);
    }
}

int64_t machine_used(const char *resource) {
    trpi_resource_view found;
    for (size_t i = 0; trpi_cluster_resource_at(machine.cluster, 0, i, &found); i++) {
        if (strcmp(found.name, resource) == 0) {
            return found.used;
        }
    }
    return 0;
}

int machine_set_up(void **state) {
    trpi_cluster_config config = trpi_cluster_config_default();
    config.cluster = "test";
    machine.now_ns = 1000 * MS;
    machine.last_request = 0;
    machine.cluster = trpi_cluster_new(&config);
    machine_event((trpi_cluster_event){.kind = TRPI_EVENT_TICK});
    return 0;
}

int machine_tear_down(void **state) {
    trpi_cluster_free(machine.cluster);
    trpi_actions_release(&machine.actions);
    trpi_arena_release(&machine.arena);
    trp_buf_release(&machine.frame);
    return 0;
}
