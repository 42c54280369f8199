/* pool.c: a pool of supervised workers. Each gets its next task as soon as it is done with the
 * last; one that dies is restarted, and its task is tried again, without a line of code here. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <troupe/runtime.h>
#include <troupe/value.h>

enum { WORKERS = 3, TASKS = 12, RANGE = 20000, TASK_MS = 60000 };

/* Counts the primes in [first, first + RANGE). */
static trp_code count_primes(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    int64_t first, count = 0;
    (void)state;
    trp_code code = trp_unpack(args, err, "i", &first);
    if (code != TRP_OK) {
        return code;
    }
    if (first == 7 * RANGE && trp_context_incarnation(ctx) == 1) {
        raise(SIGSEGV); /* what happens to code */
    }
    for (int64_t n = first < 2 ? 2 : first; n < first + RANGE; n++) {
        int64_t d = 2;
        while (d * d <= n && n % d != 0) {
            d++;
        }
        count += d * d > n;
    }
    return trp_pack(reply, err, "i", count);
}

static const trp_method methods[] = {{.name = "count_primes", .run = count_primes}, {.name = NULL}};
static const trp_actor_type worker = {.name = "worker", .methods = methods};
static const trp_actor_type *const types[] = {&worker, NULL};

static trp_code start_task(trp_runtime *rt, trp_actor actor, int task, trp_ref *ret_ref,
                           trp_error *err) {
    trp_buf args = {0};
    trp_code code = trp_pack(&args, err, "i", (int64_t)task * RANGE);
    if (code == TRP_OK) {
        code = trp_call(rt, actor, "count_primes", trp_buf_bytes(&args), TASK_MS, ret_ref, err);
    }
    trp_buf_release(&args);
    return code;
}

/* Takes a result, gives the ref back. */
static trp_code take_result(trp_runtime *rt, trp_ref ref, int64_t *sum, trp_error *err) {
    trp_bytes value;
    int64_t count;
    trp_code code = trp_get(rt, ref, TRP_FOREVER, &value, err);
    if (code == TRP_OK) {
        code = trp_unpack(value, err, "i", &count);
    }
    trp_ref_release(rt, ref);
    *sum += code == TRP_OK ? count : 0;
    return code;
}

/* refs[i] is what workers[i] does; those without work are swapped behind the first `busy`. */
static trp_code run_tasks(trp_runtime *rt, trp_actor *workers, int64_t *sum, trp_error *err) {
    trp_ref refs[WORKERS];
    bool done[WORKERS];
    int next = 0, busy = 0;
    trp_code code = TRP_OK;
    while (code == TRP_OK && busy < WORKERS && next < TASKS) {
        code = start_task(rt, workers[busy], next++, &refs[busy], err);
        busy++;
    }
    while (code == TRP_OK && busy > 0) {
        code = trp_wait(rt, refs, (size_t)busy, 1, TRP_FOREVER, done, err);
        for (int i = busy - 1; i >= 0 && code == TRP_OK; i--) {
            if (!done[i]) {
                continue;
            }
            code = take_result(rt, refs[i], sum, err);
            if (code == TRP_OK && next < TASKS) {
                code = start_task(rt, workers[i], next++, &refs[i], err);
            } else {
                refs[i] = refs[--busy];
                workers[i] = workers[busy];
            }
        }
    }
    return code;
}

int main(void) {
    const trp_spawn_options options = {.cpus = 0.25, .restarts_max = -1, .call_retries_max = 2};
    trp_actor workers[WORKERS];
    trp_runtime *rt;
    trp_death death;
    trp_error err;
    int64_t sum = 0;
    trp_code code = trp_init(types, NULL, &rt, &err);
    for (int i = 0; i < WORKERS && code == TRP_OK; i++) {
        code = trp_spawn(rt, "worker", (trp_bytes){0}, &options, &workers[i], &err);
        if (code == TRP_OK) {
            code = trp_monitor(rt, workers[i], &err);
        }
    }
    if (code || run_tasks(rt, workers, &sum, &err) || trp_next_death(rt, 10000, &death, &err)) {
        return fprintf(stderr, "pool: %s\n", err.message), 1;
    }
    printf("a worker died: %s\n", death.message);
    printf("primes below %d: %" PRId64 "\n", TASKS * RANGE, sum);
    trp_shutdown(&rt);
    return 0;
}
