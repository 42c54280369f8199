/* client_done.h: refs that tell when they are done, instead of being waited for: a queue with a
 * descriptor, and callbacks. All of it under the data lock, but where it says otherwise. */
#ifndef TRPI_CLIENT_DONE_H
#define TRPI_CLIENT_DONE_H

#include "actors/proc/client_refs.h"

typedef struct trpi_done_waiter trpi_done_waiter; /* a thread in trp_next_done() */

typedef struct trpi_done {
    unsigned awaited;       /* refs that will tell, and are not done: somebody must read for them */
    trpi_ref *first, *last; /* the queue */
    int fd;                 /* readable while there is something in it */
    trpi_done_waiter *waiters;
    trpi_callback *first_call, *last_call; /* to be made by the control thread */
} trpi_done;

TRP_CHECKED trp_code trpi_done_open(trp_runtime *rt, trp_error *err);
void trpi_done_close(trp_runtime *rt);

void trpi_done_note(trp_runtime *rt, trpi_ref *ref);   /* it is done now */
void trpi_done_forget(trp_runtime *rt, trpi_ref *ref); /* it is being given back */

/* Control thread, without any lock: makes the calls that were due when it began. */
void trpi_done_call(trp_runtime *rt);

#endif
