/* client_corks.c: calls that are held back for a moment, to go out together.
 *
 * A message of ZeroMQ costs more than the rest of a small call. But a call that is held back must
 * not lose time by it. So calls to an actor are held only while it has AHEAD others to answer, and
 * go out when the first of these happens:
 *
 *     the batch is full
 *     a thread is about to wait for replies
 *     fewer than AHEAD are under way, and another call comes
 *     the data half's timer says so: the control thread looks then
 *
 * A lone call, and the first ones of many, never wait. All here happens entered. */
#include <stdlib.h>

#include "actors/proc/client_internal.h"
#include "core/base/log.h"
#include "core/wire/codec.h"

#define AHEAD 16

/* Calls for one connection. */
struct trpi_cork {
    uint64_t connection;
    trpi_batch batch;
    trpi_cork *next, *prev; /* among those that hold something */
};

static void cork_free(trpi_cork *cork) {
    trpi_batch_release(&cork->batch);
    free(cork);
}

void trpi_corks_close(trp_runtime *rt) {
    trpi_corks *corks = &rt->data.corks;
    uint64_t connection = 0;
    trpi_cork *cork;
    while ((cork = trpi_table_next(&corks->by_connection, &connection)) != NULL) {
        cork_free(cork);
    }
    trpi_table_release(&corks->by_connection);
}

/* ---- Which hold something ---- */

static void list_cork(trp_runtime *rt, trpi_cork *cork) {
    trpi_corks *corks = &rt->data.corks;
    if (corks->first == NULL) {
        trpi_tend_soon(rt);
    } else {
        corks->first->prev = cork;
    }
    cork->prev = NULL;
    cork->next = corks->first;
    corks->first = cork;
}

static void unlist_cork(trpi_corks *corks, trpi_cork *cork) {
    if (cork->prev != NULL) {
        cork->prev->next = cork->next;
    } else {
        corks->first = cork->next;
    }
    if (cork->next != NULL) {
        cork->next->prev = cork->prev;
    }
}

void trpi_cork_drop(trp_runtime *rt, uint64_t connection) {
    trpi_corks *corks = &rt->data.corks;
    trpi_cork *cork = trpi_table_remove(&corks->by_connection, connection);
    if (cork == NULL) {
        return;
    }
    if (cork->batch.count > 0) {
        unlist_cork(corks, cork);
    }
    cork_free(cork);
}

/* ---- Out ---- */

/* The calls in a batch that could not be sent. */
static void fail_calls(trp_runtime *rt, trp_bytes batch, const trp_error *error) {
    trp_bytes header, args;
    trpi_msg_type type;
    uint64_t call;
    while (batch.size > 0 && trpi_batch_next(&batch, &header, &args) &&
           trpi_peek(header, &type, &call)) {
        trpi_data_abandon(rt, call, error);
    }
}

static void flush(trp_runtime *rt, trpi_cork *cork) {
    unsigned char id[TRPI_PEER_SIZE];
    trp_error error = {0};
    unlist_cork(&rt->data.corks, cork);
    rt->data.is_touched = true;
    /* What was in the batch lies there until the next call is added. */
    trp_bytes sent = trp_buf_bytes(&cork->batch.bytes), calls;
    if (trpi_sock_send_batch(rt->data.sock, trpi_peer_of(cork->connection, id), &cork->batch,
                             &error) != TRP_OK &&
        trpi_batch_open(sent, &calls)) {
        fail_calls(rt, calls, &error);
    }
}

void trpi_corks_flush(trp_runtime *rt) {
    while (rt->data.corks.first != NULL) {
        flush(rt, rt->data.corks.first);
    }
}

/* ---- In ---- */

static trpi_cork *get_cork(trpi_corks *corks, uint64_t connection) {
    trpi_cork *cork = trpi_table_get(&corks->by_connection, connection);
    if (cork == NULL) {
        cork = trpi_alloc(sizeof(*cork));
        cork->connection = connection;
        trpi_table_put(&corks->by_connection, connection, cork);
    }
    return cork;
}

bool trpi_cork_take(trp_runtime *rt, const trpi_caller_action *call, trp_bytes header) {
    trpi_corks *corks = &rt->data.corks;
    bool may_wait = call->ahead >= AHEAD;
    if (!may_wait && corks->first == NULL) {
        return false;
    }
    trpi_cork *cork = get_cork(corks, call->connection);
    if (cork->batch.count > 0 && !trpi_batch_takes(&cork->batch, header, call->args)) {
        flush(rt, cork);
    }
    bool was_empty = cork->batch.count == 0;
    if ((was_empty && !may_wait) || !trpi_batch_takes(&cork->batch, header, call->args) ||
        trpi_batch_add(&cork->batch, header, call->args) != TRP_OK) {
        /* It goes out by itself, behind those that were made before. */
        if (!was_empty) {
            flush(rt, cork);
        }
        return false;
    }
    if (was_empty) {
        list_cork(rt, cork);
    }
    if (!may_wait) {
        flush(rt, cork);
    }
    return true;
}
