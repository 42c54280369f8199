/* hello.c: an actor that counts, dies by SIGKILL, comes back, and tells why it died. */
#include <stdio.h>
#include <troupe/runtime.h>

static trp_code add(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply, trp_error *err) {
    (void)ctx, (void)args, (void)err;
    return trp_buf_printf(reply, "%d", ++*(int *)state);
}

static const trp_method methods[] = {{.name = "add", .run = add}, {.name = NULL}};
static const trp_actor_type counter = {
    .name = "counter", .state_size = sizeof(int), .methods = methods};
static const trp_actor_type *const types[] = {&counter, NULL};

int main(void) {
    trp_runtime *rt;
    trp_actor actor;
    trp_buf reply = {0};
    trp_death death;
    trp_error err;
    if (trp_init(types, NULL, &rt, &err) || /* in a worker, serves calls and never returns */
        trp_spawn(rt, "counter", (trp_bytes){0}, &(trp_spawn_options){.cpus = 1, .restarts_max = 1},
                  &actor, &err) ||
        trp_ask(rt, actor, "add", (trp_bytes){0}, 5000, &reply, &err) ||
        trp_monitor(rt, actor, &err) || trp_kill(rt, actor, true, &err) ||
        trp_next_death(rt, 5000, &death, &err) || trp_actor_wait_alive(rt, actor, 5000, &err)) {
        return fprintf(stderr, "hello: %s\n", err.message), 1;
    }
    printf("counted to %s, then: %s\n", reply.data, death.message);
    trp_buf_release(&reply);
    trp_shutdown(&rt);
    return 0;
}
