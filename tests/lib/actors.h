/* actors.h: the actor types that tests spawn, and short ways to call them. */
#ifndef TEST_ACTORS_H
#define TEST_ACTORS_H

#include <troupe/runtime.h>

/* "subject": counts, sleeps, dies in every way and tells what it sees. Its constructor's argument,
 * if any, is what to do there: "fail", "crash" or "sleep". Methods (arguments are text):
 *
 *   add             -> the next number, as text, from 1
 *   crash_at N      like add, but SIGKILLs itself instead of answering when it would reach N
 *   pid             -> process id
 *   sleep MS        -> "slept"
 *   exit CODE       exits in the middle of the method
 *   raise SIGNAL    raises it
 *   leave           trp_context_exit()
 *   fail            -> TRP_EUSER "asked to fail"
 *   devices         -> CUDA_VISIBLE_DEVICES as the process sees it
 *   getenv NAME     -> value
 *   print TEXT      on stdout and stderr
 *   spawn           a child subject that this actor owns -> its actor id
 *   fork            a child process that sleeps for ever -> its pid
 *   echo BYTES      -> BYTES */
extern const trp_actor_type test_subject_type;

/* A table with just that, for trp_init(). */
extern const trp_actor_type *const test_types[];

trp_actor test_spawn(trp_runtime *rt, const trp_spawn_options *options, const char *start);

/* Starts a call without a deadline. */
trp_ref test_call(trp_runtime *rt, trp_actor actor, const char *method, const char *argument);

/* Call, wait at most 30 s, answer as text in a static buffer ("" after an error); the code and the
 * error go to ret_code and err, or must be TRP_OK when ret_code is NULL. */
const char *test_ask(trp_runtime *rt, trp_actor actor, const char *method, const char *argument,
                     trp_code *ret_code, trp_error *err);
long test_ask_number(trp_runtime *rt, trp_actor actor, const char *method, const char *argument);

/* Waits for the next death notice of that actor, at most 30 s. */
trp_death test_wait_death(trp_runtime *rt, trp_actor actor);

#endif
