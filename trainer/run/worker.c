/* worker.c: the actor that is a rank. One process for the whole run: it enters the train function
 * once per attempt and leaves it when the attempt fails, without losing its process.
 *
 * While the function runs on the methods thread, the control thread may bring the news that the
 * attempt is over: it marks the session and breaks the communicator. `lock` makes sure that it
 * touches neither when they are gone. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "trainer/run/clock.h"
#include "trainer/run/function.h"
#include "trainer/run/session.h"

typedef struct worker {
    trp_comm_root *root; /* rank 0's, between join and train */
    pthread_mutex_t lock;
    trp_session *session;     /* the running one, or NULL */
    bool has_comm;            /* its communicator may be aborted */
    uint64_t attempt_aborted; /* the highest: its train call may still be on its way */
} worker;

static trp_code start(trp_context *ctx, void *state, trp_bytes args, trp_error *err) {
    worker *w = state;
    return pthread_mutex_init(&w->lock, NULL) == 0 ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "worker");
}

static void stop(trp_context *ctx, void *state) {
    worker *w = state;
    trp_comm_root_close(w->root);
    pthread_mutex_destroy(&w->lock);
}

/* ---- The end of an attempt, from the control thread ---- */

/* A rank that died before it took its seat at the rendezvous would be waited for until the
 * deadline. So its seat is taken, whichever it is, by somebody who is late at once: that sends all
 * others away. */
static void break_rendezvous(const trpi_run_assignment *a) {
    for (int rank = 0; rank < (int)a->world; rank++) {
        trp_comm *comm = NULL;
        trp_comm_options options = {.address = a->address,
                                    .rank = rank,
                                    .world = (int)a->world,
                                    .token = a->token,
                                    .timeout_ms = 1};
        if (rank != (int)a->rank && trp_comm_open(&options, &comm, NULL) == TRP_OK) {
            trp_comm_abort(comm);
            trp_comm_close(comm);
        }
    }
}

static void cancel_session(worker *w) {
    atomic_store(&w->session->canceled, true);
    if (w->has_comm) {
        trp_comm_abort(w->session->comm);
    } else {
        break_rendezvous(&w->session->assignment);
    }
}

static void on_signal(trp_context *ctx, void *state, trp_bytes data) {
    worker *w = state;
    trpi_arena arena = {0};
    trpi_run_abort abort;
    if (trpi_unpack_abort(data, &arena, &abort, NULL) == TRP_OK) {
        pthread_mutex_lock(&w->lock);
        w->attempt_aborted = TRPI_MAX(w->attempt_aborted, abort.attempt);
        if (w->session != NULL && w->session->assignment.attempt <= abort.attempt) {
            cancel_session(w);
        }
        pthread_mutex_unlock(&w->lock);
    }
    trpi_arena_release(&arena);
}

/* ---- join: the meeting place of an attempt ---- */

/* A port that is free now. Nobody can promise that it still is when it is used, but the kernel
 * hands out others first. */
static trp_code free_port(uint64_t *ret_port, trp_error *err) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof(address);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        int reason = errno;
        if (fd >= 0) {
            close(fd);
        }
        return trpi_fail(err, TRP_EIO, "MASTER_PORT: no free port: %s", strerror(reason));
    }
    close(fd);
    *ret_port = ntohs(address.sin_port);
    return TRP_OK;
}

static trp_code join(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    worker *w = state;
    trpi_arena arena = {0};
    trpi_run_join asked;
    trpi_run_joined joined = {.master_addr = "127.0.0.1"};
    trp_comm_root *root = NULL;
    trp_code code = trpi_unpack_join(args, &arena, &asked, err);
    if (code == TRP_OK) {
        joined.kind = asked.world > 1 ? "host" : "self";
        code = trp_comm_root_open(joined.kind, (int)asked.world, asked.token, &root, err);
    }
    if (code == TRP_OK) {
        trp_comm_root_close(w->root);
        w->root = root;
        joined.address = trp_comm_root_address(root);
        code = free_port(&joined.master_port, err);
    }
    if (code == TRP_OK) {
        code = trpi_pack_joined(&joined, reply, err);
    }
    trpi_arena_release(&arena);
    return code;
}

/* ---- train: one attempt ---- */

static trp_code set_variable(const char *name, int64_t value, trp_error *err) {
    char text[32];
    trpi_format(text, sizeof(text), "%" PRId64, value);
    return setenv(name, text, 1) == 0 ? TRP_OK : trpi_fail(err, TRP_ENOMEM, "set %s", name);
}

/* What launchers of other systems set, for libraries that look for it. */
static trp_code set_environment(const trpi_run_assignment *a, trp_error *err) {
    const struct {
        const char *name;
        int64_t value;
    } variables[] = {
        {"RANK", a->rank},
        {"WORLD_SIZE", a->world},
        {"LOCAL_RANK", a->local_rank},
        {"LOCAL_WORLD_SIZE", a->local_world},
        {"NODE_RANK", a->node_rank},
        {"MASTER_PORT", (int64_t)a->master_port},
    };
    trp_code code = TRP_OK;
    for (size_t i = 0; code == TRP_OK && i < TRPI_COUNTOF(variables); i++) {
        code = set_variable(variables[i].name, variables[i].value, err);
    }
    if (code == TRP_OK && setenv("MASTER_ADDR", a->master_addr, 1) != 0) {
        code = trpi_fail(err, TRP_ENOMEM, "set MASTER_ADDR");
    }
    return code;
}

/* From here on the control thread may cancel the session. */
static trp_code publish_session(worker *w, trp_session *session, trp_error *err) {
    trp_code code = TRP_OK;
    pthread_mutex_lock(&w->lock);
    if (session->assignment.attempt <= w->attempt_aborted) {
        code = trpi_fail(err, TRP_ECANCELED, "attempt %" PRIu64 " is over",
                         session->assignment.attempt);
    } else {
        w->session = session;
    }
    pthread_mutex_unlock(&w->lock);
    return code;
}

static trp_code open_comm(worker *w, trp_session *session, trp_error *err) {
    const trpi_run_assignment *a = &session->assignment;
    trp_comm_options options = {.address = a->address,
                                .rank = (int)a->rank,
                                .world = (int)a->world,
                                .token = a->token,
                                .join_timeout_ms = a->start_timeout_ms};
    trp_comm *comm = NULL;
    trp_code code = trp_comm_open(&options, &comm, err);
    trp_comm_root_close(w->root);
    w->root = NULL;
    pthread_mutex_lock(&w->lock);
    bool canceled = atomic_load(&session->canceled);
    session->comm = comm;
    w->has_comm = comm != NULL && !canceled;
    pthread_mutex_unlock(&w->lock);
    if (canceled && comm != NULL) {
        trp_comm_abort(comm);
    }
    if (canceled) {
        return trpi_fail(err, TRP_ECANCELED, "attempt %" PRIu64 " is over", a->attempt);
    }
    session->opened_ns = trpi_run_now_ns();
    return code == TRP_OK ? code : trpi_context(err, code, "rendezvous");
}

static void retire_session(worker *w, trp_session *session) {
    pthread_mutex_lock(&w->lock);
    w->session = NULL;
    w->has_comm = false;
    pthread_mutex_unlock(&w->lock);
    trp_comm_close(session->comm);
}

static trp_code run_function(trp_session *session, trp_error *err) {
    trp_train_fn run;
    trp_code code = trpi_function_find(session->assignment.function, &run, err);
    if (code == TRP_OK) {
        code = run(session, session->assignment.config, err);
    }
    return code == TRP_OK ? trpi_session_drain(session, err) : code;
}

/* From the rendezvous to the end of the train function. */
static trp_code attend(worker *w, trp_session *session, trp_error *err) {
    trp_code code = publish_session(w, session, err);
    if (code == TRP_OK) {
        code = open_comm(w, session, err);
    }
    if (code == TRP_OK) {
        code = set_environment(&session->assignment, err);
    }
    if (code == TRP_OK) {
        code = run_function(session, err);
    }
    retire_session(w, session);
    return code;
}

/* The train function's error is a result of this call, not its failure: so it cannot be taken for a
 * loss of the worker, whatever its code is. What a function returns without a text still has to say
 * something. */
static trp_code train(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    trp_session session = {.entered_ns = trpi_run_now_ns()};
    trp_error inner = {0};
    trp_code code = trpi_unpack_assignment(args, &session.arena, &session.assignment, err);
    if (code == TRP_OK) {
        session.rt = trp_context_runtime(ctx, err);
        code = session.rt != NULL ? TRP_OK : err->code;
    }
    if (code == TRP_OK) {
        trpi_session_begin(&session);
        trp_code outcome = attend(state, &session, &inner);
        const char *message = inner.message[0] != '\0' ? inner.message : trp_code_text(outcome);
        code = trpi_pack_left(&(trpi_run_left){outcome, message, session.step}, reply, err);
    }
    trpi_session_release(&session);
    return code;
}

static const trp_method methods[] = {{"join", join}, {"train", train}, {NULL, NULL}};

const trp_actor_type trp_worker_type = {
    .name = "troupe.worker",
    .state_size = sizeof(worker),
    .methods = methods,
    .start = start,
    .stop = stop,
    .signal = on_signal,
};
