/* restarts.c: calls whose actor is killed under them, without and with retries.
 *
 * An actor is a process: kill -9 loses what it had in memory, and the next incarnation counts from
 * one again. Whether a call that was running then is made again is for the caller to say. */
#include <signal.h>
#include <stdio.h>
#include <troupe/runtime.h>

static trp_code add(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err) {
    (void)ctx, (void)args, (void)err;
    return trp_buf_printf(reply, "%d", ++*(int *)state);
}

/* Kills its own process in the actor's first two lives. */
static trp_code add_if_lucky(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                             trp_error *err) {
    if (trp_context_incarnation(ctx) <= 2) {
        raise(SIGKILL);
    }
    return add(ctx, state, args, reply, err);
}

static const trp_method methods[] = {
    {.name = "add", .run = add}, {.name = "add_if_lucky", .run = add_if_lucky}, {.name = NULL}};
static const trp_actor_type counter = {
    .name = "counter", .state_size = sizeof(int), .methods = methods};
static const trp_actor_type *const types[] = {&counter, NULL};

/* One call, its result or its failure on a line. */
static void tell(trp_runtime *rt, trp_actor actor, const char *method, int retries) {
    trp_call_options options = {.deadline_ms = 10000, .retries_max = retries};
    trp_bytes value;
    trp_ref ref;
    trp_error err;
    trp_code code = trp_call_with(rt, actor, method, (trp_bytes){0}, &options, &ref, &err);
    if (code == TRP_OK) {
        code = trp_get(rt, ref, TRP_FOREVER, &value, &err);
        if (code == TRP_OK) {
            printf("%s: %.*s\n", method, (int)value.size, (const char *)value.data);
        }
        trp_ref_release(rt, ref);
    }
    if (code != TRP_OK) {
        printf("%s: %s (%s)\n", method, trp_code_text(code), err.message);
    }
}

int main(void) {
    trp_runtime *rt;
    trp_actor actor;
    trp_error err;
    if (trp_init(types, NULL, &rt, &err) ||
        trp_spawn(rt, "counter", (trp_bytes){0}, &(trp_spawn_options){.cpus = 1, .restarts_max = 2},
                  &actor, &err)) {
        return fprintf(stderr, "restarts: %s\n", err.message), 1;
    }
    tell(rt, actor, "add", 0);
    tell(rt, actor, "add", 0);
    tell(rt, actor, "add_if_lucky", 0); /* at most once: the caller is told, and decides */
    if (trp_actor_wait_alive(rt, actor, 10000, &err)) {
        return fprintf(stderr, "restarts: %s\n", err.message), 1;
    }
    tell(rt, actor, "add", 0);          /* a new life */
    tell(rt, actor, "add_if_lucky", 1); /* killed again, made again in the next life */
    trp_shutdown(&rt);
    return 0;
}
