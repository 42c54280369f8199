/* trouble.h: an actor that is slow, stuck, greedy or crashes on request, for tests of how a node
 * ends its workers. Register it beside the probe. */
#ifndef TEST_TROUBLE_H
#define TEST_TROUBLE_H

#include "tests/lib/probe.h"

/* Methods, each with a number as its argument:
 *   sleep MS, spin MS     does nothing, or computes, without a sign of life
 *   beat MS               the same, with trp_context_beat()
 *   eat MIB               takes memory and keeps it; the reply is its pid
 *   linger MS             its stop hook takes so long
 *   child, daemon         starts one that sleeps, in its group or out of it; the reply is the pid
 *   core                  allows core files and aborts
 *   save, drain_ms        trp_context_save(), trp_context_drain_ms(); the reply is the outcome
 * Its constructor's argument is how many ms it takes. */
extern const trp_actor_type test_trouble_type;
extern const trp_actor_type *const test_trouble_types[]; /* with the probe */

/* Starts one, waits for STARTED and connects. */
void test_start_trouble(test_head *head, const test_start *what, test_caller *caller,
                        int64_t *ret_pid);

#endif
