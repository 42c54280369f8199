/* porter.h: an actor for tests of what a worker does with its calls and its life. */
#ifndef TEST_PORTER_H
#define TEST_PORTER_H

#include <troupe/actor.h>

/* Constructor's argument: a path, and behind a blank what to do there: "fail", "slow" (300 ms).
 * Hooks and some methods add a line to that file. Methods (arguments are text):
 *
 *   add               the next number
 *   count             the last number
 *   sleep MS          -> "slept"
 *   meet N            waits until N are in here at once, 5 s at most -> "met" or "alone"
 *   busy MS
 *   many              -> how many "busy" ran at once at most, so far
 *   until_canceled    looks every ms, 5 s at most -> "canceled" or "not"
 *   defer             another thread answers "late" after 200 ms
 *   defer_canceled    ... as soon as the call is canceled, 5 s at most
 *   abandon           deferred, and never answered
 *   save [MS]         trp_context_save() -> "saved"
 *   caller, drain_ms  what the context says
 *   raise             fails by trp_raise()
 *   pass_on           fails with the error of an actor that it has asked
 *   exit              trp_context_exit()
 *   beat              runs for 600 ms with a beat after 300
 *   narrow [1]        makes it impossible to start threads; possible again
 *   stamp PATH        writes the time there (8 bytes, trpi_boot_ns()), again and again
 *
 * Group io (2 threads): some of them with io_ before their names; wide (8 threads): with wide_. */
extern const trp_actor_type test_porter_type;  /* groups */
extern const trp_actor_type test_serial_type;  /* "serial": the same methods, one thread */
extern const trp_actor_type test_unsaved_type; /* "unsaved": nothing to save or load */
extern const trp_actor_type test_blocker_type; /* "blocker": its stop hook blocks */
extern const trp_actor_type *const test_porter_types[];

#endif
