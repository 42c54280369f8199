/* gang.c: actors that only make sense together. One of them is killed; all are restarted, together,
 * once the last is gone, so that none meets a partner of another generation. */
#include <inttypes.h>
#include <stdio.h>
#include <troupe/runtime.h>

enum { MEMBERS = 3 };

static trp_code generation(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                           trp_error *err) {
    (void)state, (void)args, (void)err;
    return trp_buf_printf(reply, "%" PRIu64, trp_context_incarnation(ctx));
}

static const trp_method methods[] = {{.name = "generation", .run = generation}, {.name = NULL}};
static const trp_actor_type member = {.name = "member", .methods = methods};
static const trp_actor_type *const types[] = {&member, NULL};

static trp_code tell(trp_runtime *rt, const trp_actor *members, trp_error *err) {
    trp_buf reply = {0};
    trp_code code = TRP_OK;
    printf("generations:");
    for (int i = 0; i < MEMBERS && code == TRP_OK; i++) {
        trp_buf_clear(&reply);
        code = trp_ask(rt, members[i], "generation", (trp_bytes){0}, 20000, &reply, err);
        if (code == TRP_OK) {
            printf(" %s", (const char *)reply.data);
        }
    }
    printf("\n");
    trp_buf_release(&reply);
    return code;
}

int main(void) {
    const trp_gang_options gang_options = {.policy = TRP_GANG_RESTART, .restarts_max = 1};
    trp_spawn_options options = {.call_retries_max = -1};
    trp_actor members[MEMBERS];
    trp_death death;
    trp_runtime *rt;
    trp_error err;
    trp_code code = trp_init(types, NULL, &rt, &err);
    if (code == TRP_OK) {
        code = trp_gang_create(rt, &gang_options, &options.gang, &err);
    }
    for (int i = 0; i < MEMBERS && code == TRP_OK; i++) {
        code = trp_spawn(rt, "member", (trp_bytes){0}, &options, &members[i], &err);
        if (code == TRP_OK) {
            code = trp_monitor(rt, members[i], &err);
        }
    }
    if (code || tell(rt, members, &err) || trp_kill(rt, members[1], true, &err)) {
        return fprintf(stderr, "gang: %s\n", err.message), 1;
    }
    for (int i = 0; i < MEMBERS; i++) {
        if (trp_next_death(rt, 10000, &death, &err)) {
            return fprintf(stderr, "gang: %s\n", err.message), 1;
        }
        printf("%s\n", death.message);
    }
    if (tell(rt, members, &err)) {
        return fprintf(stderr, "gang: %s\n", err.message), 1;
    }
    trp_shutdown(&rt);
    return 0;
}
