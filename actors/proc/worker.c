/* The main thread of a worker: becomes the actor that START names, serves its calls, ends it. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "actors/proc/worker_name.h"
#include "actors/proc/worker_parts.h"
#include "core/base/config.h"
#include "core/base/log.h"
#include "core/net/clock.h"

#define LOOK_NS 1000000   /* all that has come is read this often, for the cancels in it */
#define WAITING_MAX 65536 /* calls in memory; the others stay in the socket */
#define QUICK_LOOK_MOST 1024
#define LAST_LOOK_MOST 1000000

/* ---- Becoming the actor ---- */

static trp_code become_actor(trpi_worker *worker, trp_error *err) {
    trpi_msg msg;
    char who[32];
    trp_error trouble = {0};
    /* Before anybody waits for it: it takes a tenth of the time of a start. */
    trp_code opened = trpi_desk_bind(&worker->desk, &trouble);
    trpi_control_wait_start(worker);
    trp_code code = trpi_decode(trp_buf_bytes(&worker->control.start), &worker->arena, &msg, err);
    if (code == TRP_OK) {
        worker->start = msg.start;
        trpi_format(who, sizeof who, "actor a%llu", (unsigned long long)worker->start.actor);
        trpi_log_set_who(who);
        trpi_worker_name_take(worker->start.actor, worker->start.type);
        code = trpi_worker_apply_start(worker, err);
    }
    if (code == TRP_OK && worker->start.exclusive) {
        code = trpi_lease_open(trpi_config(TRPI_CONFIG_NODE_TIMEOUT_MS), err);
    }
    if (trpi_control_run(worker, &trouble) != TRP_OK) {
        trpi_log(TRPI_ERROR, "worker_failed", "error=\"%s\"", trouble.message);
        _exit(1); /* there is nobody to tell the node */
    }
    if (code == TRP_OK && opened != TRP_OK) {
        code = trpi_fail(err, opened, "%s", trouble.message);
    }
    return code == TRP_OK ? trpi_worker_construct(worker, err) : code;
}

/* ---- Calls ---- */

static void lock_pooled(trpi_desk *desk) {
    if (desk->is_pooled) {
        pthread_mutex_lock(&desk->lock);
    }
}

static void unlock_pooled(trpi_desk *desk) {
    if (desk->is_pooled) {
        pthread_mutex_unlock(&desk->lock);
    }
}

/* Asked to exit: when nothing runs. Asked to stop: when all that has come by now is answered. */
static bool is_over(trpi_worker *worker) {
    trpi_desk *desk = &worker->desk;
    const size_t *counts = desk->works.counts;
    bool is_exiting = atomic_load(&worker->exiting);
    if (!is_exiting && !atomic_load(&worker->stopping)) {
        return false;
    }
    lock_pooled(desk);
    if (!is_exiting && !desk->is_closed) {
        trpi_desk_look(desk, LAST_LOOK_MOST);
        desk->is_closed = true;
    }
    bool over = counts[TRPI_WORK_RUNNING] == 0;
    if (!is_exiting) {
        bool has_time = trpi_now_ns() < atomic_load(&worker->answers_until_ns);
        over = over && counts[TRPI_WORK_WAITING] == 0 &&
               (counts[TRPI_WORK_DEFERRED] == 0 || !has_time);
    }
    unlock_pooled(desk);
    return over;
}

/* Until when there is nothing to do unless something comes. */
static uint64_t wake_ns(trpi_worker *worker) {
    uint64_t until_ns = atomic_load(&worker->answers_until_ns);
    return atomic_load(&worker->stopping) && trpi_now_ns() < until_ns ? until_ns : UINT64_MAX;
}

static void run_alone(trpi_worker *worker, trpi_task *task, uint64_t now_ns, trp_error *err) {
    trpi_desk *desk = &worker->desk;
    trp_context *ctx = &worker->main;
    trpi_answer answer;
    trpi_desk_lend(desk, ctx, task);
    bool is_answered = trpi_run_task(ctx, task, now_ns, &answer, err);
    trpi_desk_own(desk, ctx);
    if (is_answered) {
        desk->has_more =
            desk->works.counts[TRPI_WORK_WAITING] > 0 || trpi_sock_has_more(desk->sock);
        trpi_desk_send(desk, task->work.peer, task->work.call, &answer);
    }
    trpi_run_ended(ctx);
    trpi_works_end(&desk->works, &task->work);
    trpi_desk_give_back(desk, task);
}

/* Takes in what has come, of calls that run one after the other without a pause not too many at a
 * time, or the first would wait for the reading of the last. */
static void look_alone(trpi_desk *desk, uint64_t now_ns) {
    size_t waiting = desk->works.counts[TRPI_WORK_WAITING];
    bool is_due = now_ns - desk->looked_ns >= LOOK_NS;
    if (waiting > 0 && (!is_due || waiting >= WAITING_MAX)) {
        return;
    }
    desk->has_more = waiting > 0;
    trpi_desk_look(desk, is_due ? WAITING_MAX : QUICK_LOOK_MOST);
}

/* An idle worker takes one call from its socket and runs it; only then it looks what else there is:
 * nobody waits for that look. */
static void serve_alone(trpi_worker *worker, trp_error *err) {
    trpi_desk *desk = &worker->desk;
    const size_t *waiting = &desk->works.counts[TRPI_WORK_WAITING];
    while (!is_over(worker)) {
        uint64_t now_ns = trpi_now_ns();
        look_alone(desk, now_ns);
        if (*waiting == 0) {
            trpi_desk_wait(desk, wake_ns(worker));
            trpi_desk_look(desk, 1);
            now_ns = desk->looked_ns;
        }
        trpi_task *task =
            atomic_load(&worker->exiting) ? NULL : (trpi_task *)trpi_works_next(&desk->works, 0);
        if (task != NULL) {
            run_alone(worker, task, now_ns, err);
        }
    }
}

static void serve_pool(trpi_worker *worker) {
    trpi_desk *desk = &worker->desk;
    while (!is_over(worker)) {
        trpi_desk_wait(desk, wake_ns(worker));
        lock_pooled(desk);
        trpi_desk_look(desk, QUICK_LOOK_MOST);
        unlock_pooled(desk);
    }
}

static void serve(trpi_worker *worker) {
    trp_error *err = trpi_alloc(sizeof *err);
    if (worker->desk.is_pooled) {
        serve_pool(worker);
    } else {
        serve_alone(worker, err);
    }
    free(err);
}

/* ---- The end ---- */

static void run_stop_hook(trpi_worker *worker) {
    if (!worker->type->stop) {
        return;
    }
    /* Deferred calls that are answered meanwhile go out. */
    trpi_desk_send_batch(&worker->desk);
    trpi_desk_lend(&worker->desk, &worker->main, NULL);
    trpi_context_enter(&worker->main, "stop", trpi_now_ns());
    worker->type->stop(&worker->main, worker->state);
    trpi_context_enter(&worker->main, NULL, 0);
    trpi_desk_own(&worker->desk, &worker->main);
}

static void stop_in_order(trpi_worker *worker) {
    size_t owed = worker->desk.works.counts[TRPI_WORK_DEFERRED];
    if (owed > 0) {
        trpi_log(TRPI_WARN, "calls_unanswered", "count=%zu reason=\"deferred, and stopped\"", owed);
    }
    run_stop_hook(worker);
    /* What has come meanwhile is refused. The node has a deadline of its own for all this, so it is
     * told last. */
    lock_pooled(&worker->desk);
    trpi_desk_look(&worker->desk, LAST_LOOK_MOST);
    unlock_pooled(&worker->desk);
    trpi_control_failed(worker, TRP_CAUSE_STOPPED, "stopped in good order");
}

/* All that was promised must be out before the process is: replies to callers, the word to the
 * node. */
_Noreturn static void leave(trpi_worker *worker, int exit_code) {
    int flush_ms = (int)(trpi_config(TRPI_CONFIG_STOP_TIMEOUT_MS) / 2);
    trpi_sock *sock = trpi_desk_close(&worker->desk);
    trpi_sock_close_after(sock, flush_ms);
    trpi_worker_close_runtime(worker);
    trpi_control_close(worker);
    trpi_net_close(worker->net);
    exit(exit_code);
}

static trp_code open_worker(trpi_worker *worker, trp_error *err) {
    pthread_mutex_init(&worker->runtime_lock, NULL);
    atomic_store(&worker->drain_ns, UINT64_MAX);
    worker->main.worker = worker->hooks.worker = worker;
    trpi_context_list(&worker->main);
    if (!trpi_worker_read_environment(worker)) {
        return trpi_fail(err, TRP_EINVALID, "environment of the node is missing");
    }
    trp_code code = trpi_net_open(&worker->net, err);
    if (code == TRP_OK) {
        code = trpi_desk_init(&worker->desk, worker, err);
    }
    return code == TRP_OK ? trpi_control_open(worker, err) : code;
}

_Noreturn void trpi_worker_main(const trp_actor_type *const *types, uint64_t token) {
    static trpi_worker worker; /* one per process, found by any debugger */
    trp_error err = {0};
    worker.types = types;
    worker.token = token;
    trpi_dump_open();
    if (open_worker(&worker, &err) != TRP_OK) {
        trpi_log(TRPI_ERROR, "worker_failed", "error=\"%s\"", err.message);
        _exit(1);
    }
    if (become_actor(&worker, &err) != TRP_OK) {
        trpi_control_failed(&worker, TRP_CAUSE_NEVER_STARTED, err.message);
        leave(&worker, 1);
    }
    trpi_control_started(&worker);
    serve(&worker);
    if (atomic_load(&worker.exiting)) {
        trpi_control_failed(&worker, TRP_CAUSE_FINISHED, "ended itself");
        run_stop_hook(&worker);
    } else {
        stop_in_order(&worker);
    }
    leave(&worker, 0);
}
