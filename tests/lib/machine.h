/* machine.h: the head's machine alone, for tests: peers by number tell it something, and what it
 * answers is looked up. Each test has a fresh one. */
#ifndef TEST_MACHINE_H
#define TEST_MACHINE_H

#include "actors/state/cluster.h"

#define MS UINT64_C(1000000)

enum { NODE_A = 1, NODE_B, NODE_C, DRIVER = 10, OTHER, THIRD, BEAT };

typedef struct test_machine {
    trpi_cluster *cluster;
    trpi_actions actions; /* of the last step */
    uint64_t now_ns, last_request;
    trpi_msg msg; /* the last that was told, and what it borrows from */
    trpi_arena arena;
    trp_buf frame;
} test_machine;

extern test_machine machine;

/* One step, after which trpi_cluster_check() must have nothing to say. */
void machine_event(trpi_cluster_event what);
const trpi_msg *machine_decoded(const trpi_msg *msg);
void machine_tell(uint64_t peer, const trpi_msg *msg);
/* Time passes as the shell lets it: a tick often enough that it is no stall. */
void machine_pass(uint64_t ms);
/* The last message of this type to this peer among the actions, or NULL. */
const trpi_msg *machine_heard(uint64_t peer, trpi_msg_type type);
const trpi_msg *machine_must_hear(uint64_t peer, trpi_msg_type type);
/* Each says hello and returns its number. */
uint64_t machine_node(uint64_t peer, int64_t cpus, int64_t gpus);
uint64_t machine_client(uint64_t peer, const char *kind, uint64_t actor, uint64_t incarnation);
/* A request of the type "counter"; lives until the next. */
trpi_msg machine_spawn(int64_t cpus, int64_t gpus, int64_t restarts_max);
/* Says it, and returns the actor's id. */
uint64_t machine_spawned(uint64_t peer, const trpi_msg *msg);
void machine_refused(uint64_t peer, const trpi_msg *msg, trp_code code, const char *words);
void machine_started(uint64_t peer, uint64_t actor, uint64_t incarnation);
void machine_exited(uint64_t peer, uint64_t actor, trpi_death death);
void machine_crash(uint64_t peer, uint64_t actor, uint64_t incarnation);
void machine_kill(uint64_t peer, uint64_t actor, bool may_restart);
void machine_subscribe(uint64_t peer, uint64_t actor);
trpi_actor_view machine_view(uint64_t actor);
/* That is how it died, and these words tell it. */
void machine_says(const trpi_actor_view *actor, trp_cause cause, const char *words);
/* Of all nodes together, fixed point. */
int64_t machine_used(const char *resource);
int machine_set_up(void **state);
int machine_tear_down(void **state);

#define MACHINE_TEST(name) cmocka_unit_test_setup_teardown(name, machine_set_up, machine_tear_down)

#endif
