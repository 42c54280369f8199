/* account.c: an actor whose state outlives its process.
 *
 * save() appends what the next incarnation needs; with save_each_call it runs after each method
 * that succeeded, before the reply goes out: what a caller was told is never forgotten. */
#include <inttypes.h>
#include <stdio.h>
#include <troupe/runtime.h>
#include <troupe/value.h>

typedef struct account {
    int64_t balance, entries;
} account;

static trp_code enter(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    account *a = state;
    int64_t amount;
    (void)ctx;
    trp_code code = trp_unpack(args, err, "{s:i}", "amount", &amount);
    if (code != TRP_OK) {
        return code;
    }
    if (a->balance + amount < 0) {
        return trp_raise(err, "Overdrawn", "%" PRId64 " is all there is", a->balance);
    }
    a->balance += amount;
    a->entries++;
    return trp_pack(reply, err, "{s:i,s:i}", "balance", a->balance, "entries", a->entries);
}

static trp_code save(trp_context *ctx, void *state, trp_buf *saved, trp_error *err) {
    const account *a = state;
    (void)ctx;
    return trp_pack(saved, err, "[ii]", a->balance, a->entries);
}

static trp_code load(trp_context *ctx, void *state, trp_bytes saved, trp_error *err) {
    account *a = state;
    (void)ctx;
    return trp_unpack(saved, err, "[ii]", &a->balance, &a->entries);
}

static const trp_method methods[] = {{.name = "enter", .run = enter}, {.name = NULL}};
static const trp_actor_type type = {.name = "account",
                                    .state_size = sizeof(account),
                                    .methods = methods,
                                    .save = save,
                                    .load = load};
static const trp_actor_type *const types[] = {&type, NULL};

static trp_code tell(trp_runtime *rt, trp_actor actor, int64_t amount, trp_error *err) {
    trp_buf args = {0}, reply = {0}, text = {0};
    trp_code code = trp_pack(&args, err, "{s:i}", "amount", amount);
    if (code == TRP_OK) {
        code = trp_ask(rt, actor, "enter", trp_buf_bytes(&args), 10000, &reply, err);
    }
    if (code == TRP_OK) {
        code = trp_value_print(trp_buf_bytes(&reply), 200, &text, err);
    }
    if (code == TRP_OK) {
        printf("%+" PRId64 ": %s\n", amount, (const char *)text.data);
    } else if (code == TRP_EUSER) { /* the actor's own "no", which is an answer */
        printf("%+" PRId64 ": %s: %s\n", amount, err->type, err->message);
        code = TRP_OK;
    }
    trp_buf_release(&args);
    trp_buf_release(&reply);
    trp_buf_release(&text);
    return code;
}

int main(void) {
    const trp_spawn_options options = {
        .cpus = 1, .restarts_max = -1, .call_retries_max = -1, .save_each_call = true};
    trp_runtime *rt;
    trp_actor actor;
    trp_death death;
    trp_error err;
    if (trp_init(types, NULL, &rt, &err) ||
        trp_spawn(rt, "account", (trp_bytes){0}, &options, &actor, &err) ||
        trp_monitor(rt, actor, &err) || tell(rt, actor, 100, &err) || tell(rt, actor, -30, &err) ||
        trp_kill(rt, actor, true, &err) || trp_next_death(rt, 10000, &death, &err)) {
        return fprintf(stderr, "account: %s\n", err.message), 1;
    }
    printf("%s\n", death.message);
    if (tell(rt, actor, -60, &err) || tell(rt, actor, -60, &err)) {
        return fprintf(stderr, "account: %s\n", err.message), 1;
    }
    trp_shutdown(&rt);
    return 0;
}
