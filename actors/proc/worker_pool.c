/* The threads of concurrency groups. One is made when a call waits that no thread of its group is
 * free for, and stays: it may hold what its methods keep per thread. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "actors/proc/worker_parts.h"
#include "core/base/log.h"
#include "core/net/clock.h"

typedef struct trpi_worker_group {
    trpi_worker *worker;
    uint32_t index;
    const char *name;
    pthread_cond_t wanted; /* a call waits */
} trpi_worker_group;

void trpi_worker_pool_init(trpi_worker *worker, size_t group_count) {
    worker->pool = trpi_alloc(group_count * sizeof *worker->pool);
    for (size_t i = 0; i < group_count; i++) {
        trpi_worker_group *group = &worker->pool[i];
        group->worker = worker;
        group->index = (uint32_t)i;
        group->name = i == 0 ? "calls" : worker->type->concurrency[i - 1].name;
        trpi_condition_init(&group->wanted);
    }
}

/* With the lock, also at the end; not while the method runs. */
static void run_one(trp_context *ctx, trpi_task *task, trp_error *err) {
    trpi_desk *desk = &ctx->worker->desk;
    trpi_answer answer;
    ctx->task = task;
    pthread_mutex_unlock(&desk->lock);
    bool is_answered = trpi_run_task(ctx, task, trpi_now_ns(), &answer, err);
    trpi_queued_answer *queued =
        is_answered ? trpi_answer_copy(task->work.peer, task->work.call, &answer) : NULL;
    trpi_run_ended(ctx);
    pthread_mutex_lock(&desk->lock);
    ctx->task = NULL;
    trpi_desk_leave_answer(desk, queued);
    trpi_works_end(&desk->works, &task->work);
    trpi_desk_give_back(desk, task);
    if (atomic_load(&ctx->worker->exiting) || atomic_load(&ctx->worker->stopping)) {
        trpi_desk_ring(desk); /* this may have been the last */
    }
}

static void *pool_thread(void *arg) {
    trp_context *ctx = arg;
    trpi_worker_group *group = ctx->group;
    trpi_desk *desk = &ctx->worker->desk;
    trp_error *err = trpi_alloc(sizeof *err);
    char name[16];
    TRPI_SET(name, group->name);
    (void)pthread_setname_np(pthread_self(), name);
    pthread_mutex_lock(&desk->lock);
    while (!atomic_load(&ctx->worker->exiting)) { /* calls that wait then do not run */
        trpi_task *task = (trpi_task *)trpi_works_next(&desk->works, group->index);
        if (task != NULL) {
            run_one(ctx, task, err);
        } else {
            /* No deadline: it waits for calls as long as the actor lives. */
            pthread_cond_wait(&group->wanted, &desk->lock);
        }
    }
    pthread_mutex_unlock(&desk->lock);
    free(err);
    return NULL; /* its context stays: the actor's code may have kept it */
}

static int make_thread(trpi_worker *worker, trpi_worker_group *group) {
    pthread_t thread;
    trp_context *ctx = trpi_alloc(sizeof *ctx);
    ctx->group = group;
    ctx->worker = worker;
    int failed = pthread_create(&thread, NULL, pool_thread, ctx);
    if (failed) {
        free(ctx);
        return failed;
    }
    (void)pthread_detach(thread);
    trpi_context_list(ctx);
    trpi_works_thread_made(&worker->desk.works, group->index);
    return 0;
}

void trpi_worker_pool_wake(trpi_worker *worker, trpi_task *task, bool needs_thread) {
    trpi_desk *desk = &worker->desk;
    trpi_worker_group *group = &worker->pool[task->work.group];
    int failed = needs_thread ? make_thread(worker, group) : 0;
    if (!failed) {
        pthread_cond_signal(&group->wanted);
        return;
    }
    /* The call's failure and not the actor's: those that run end some time, or the limit that was
     * met is raised. */
    char message[256];
    trpi_format(message, sizeof message,
                "no thread could be made for method %s (%s); %u of at most %u of its group run",
                task->method->name, strerror(failed),
                (unsigned)desk->works.groups[group->index].threads,
                (unsigned)desk->works.groups[group->index].threads_max);
    trpi_desk_send(desk, task->work.peer, task->work.call,
                   &(trpi_answer){.code = TRP_EBUSY, .message = message});
    trpi_works_end(&desk->works, &task->work);
    trpi_desk_give_back(desk, task);
}
