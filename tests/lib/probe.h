/* probe.h: an actor that does whatever a test of the node daemon needs, and short ways to start,
 * call and end it under a fake head. */
#ifndef TEST_PROBE_H
#define TEST_PROBE_H

#include "tests/lib/fake_head.h"

/* Its constructor's argument: "fail", "crash", "slow", "hang", or nothing. */
extern const trp_actor_type test_probe_type;
extern const trp_actor_type *const test_probe_types[]; /* only that one */

#define TEST_PROBE_INCARNATION 3

typedef struct test_start {
    const char *type, *exe, *args; /* "probe", this program, nothing */
    uint64_t timeout_ms;           /* 20 s */
    const char *cwd;               /* "/" */
    uint64_t liveness_ms;          /* none */
    bool exclusive;
    int64_t restartable; /* not */
} test_start;

/* Says START for a new actor and returns its id. */
uint64_t test_say_start(test_head *head, const test_start *what);
/* Waits for the actor's STARTED; valid until the next wait. */
const trpi_msg_started *test_wait_started(test_head *head, uint64_t actor);
/* Says START, waits for STARTED and connects. ret_pid may be NULL. */
void test_start_probe(test_head *head, test_caller *caller, int64_t *ret_pid);
/* Waits for the actor's EXITED; its death, valid until the next wait. */
const trpi_death *test_wait_exit(test_head *head, uint64_t actor);
void test_say_end(test_head *head, uint64_t actor);
void test_end_probe(test_head *head, test_caller *caller); /* END, EXITED, disconnects */
/* Waits until there is no such process. */
bool test_process_gone(pid_t pid);

#endif
