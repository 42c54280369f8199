/* parameter_server.c: the weights of a linear regression lie in shards, one actor each; workers
 * pull them, compute gradients from samples of their own, and push, none of them waiting for
 * another (Li et al. 2014, "Scaling distributed machine learning with the parameter server"). */
#include <math.h>
#include <stdio.h>
#include <troupe/runtime.h>
#include <troupe/value.h>

enum { SHARDS = 2, SHARD = 4, FEATURES = SHARDS * SHARD, WORKERS = 3, STEPS = 150, BATCH = 16 };
static const float RATE = 0.05F;

/* ---- A shard ---- */

static trp_code pull(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    (void)ctx, (void)args;
    return trp_pack(reply, err, "F", (const float *)state, (size_t)SHARD);
}

static trp_code push(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                     trp_error *err) {
    float *weights = state, gradient[SHARD];
    size_t count = SHARD;
    (void)ctx, (void)reply;
    trp_code code = trp_unpack(args, err, "F", gradient, &count);
    for (size_t i = 0; i < SHARD && code == TRP_OK; i++) {
        weights[i] -= RATE * gradient[i];
    }
    return code;
}

/* ---- A worker ---- */

static float draw(uint64_t *seed) { /* uniform in [-1, 1) */
    *seed = *seed * 6364136223846793005U + 1442695040888963407U;
    return (float)(*seed >> 40) / (float)(1 << 23) - 1;
}

/* The gradient of the squared error of a batch whose true weights are 1, 2, ... */
static void compute(const float *weights, float *gradient, uint64_t *seed) {
    for (int row = 0; row < BATCH; row++) {
        float x[FEATURES], error = 0;
        for (int i = 0; i < FEATURES; i++) {
            x[i] = draw(seed);
            error += x[i] * (weights[i] - (float)(i + 1));
        }
        for (int i = 0; i < FEATURES; i++) {
            gradient[i] = (row > 0 ? gradient[i] : 0) + 2 * error * x[i] / BATCH;
        }
    }
}

/* Two calls to each shard: of the weights, and of the gradient where there is one. Nobody waits for
 * a push: calls of one caller run in order, so the next pull sees it. */
static trp_code exchange(trp_runtime *rt, const trp_actor *shards, float *weights,
                         const float *gradient, trp_error *err) {
    trp_buf args = {0}, reply = {0};
    trp_code code = TRP_OK;
    for (int s = 0; s < SHARDS && code == TRP_OK; s++) {
        size_t count = SHARD;
        trp_ref ref = {0};
        trp_buf_clear(&args);
        trp_buf_clear(&reply);
        code = trp_pack(&args, err, "F", gradient + s * SHARD, count);
        if (code == TRP_OK) {
            code = trp_call(rt, shards[s], "push", trp_buf_bytes(&args), 0, &ref, err);
        }
        if (code == TRP_OK) {
            trp_ref_release(rt, ref);
            code = trp_ask(rt, shards[s], "pull", (trp_bytes){0}, 10000, &reply, err);
        }
        if (code == TRP_OK) {
            code = trp_unpack(trp_buf_bytes(&reply), err, "F", weights + s * SHARD, &count);
        }
    }
    trp_buf_release(&args);
    trp_buf_release(&reply);
    return code;
}

static trp_code train(trp_context *ctx, void *state, trp_bytes args, trp_buf *reply,
                      trp_error *err) {
    float weights[FEATURES], gradient[FEATURES] = {0}; /* the first push moves nothing */
    trp_actor shards[SHARDS];
    uint64_t seed;
    (void)state, (void)reply;
    trp_runtime *rt = trp_context_runtime(ctx, err);
    trp_code code = rt ? trp_unpack(args, err, "[aau]", &shards[0], &shards[1], &seed) : err->code;
    for (int step = 0; step <= STEPS && code == TRP_OK; step++) {
        code = exchange(rt, shards, weights, gradient, err);
        compute(weights, gradient, &seed);
    }
    return code;
}

/* ---- The driver ---- */

static const trp_method shard_methods[] = {
    {.name = "pull", .run = pull}, {.name = "push", .run = push}, {.name = NULL}};
static const trp_method worker_methods[] = {{.name = "train", .run = train}, {.name = NULL}};
static const trp_actor_type shard = {
    .name = "shard", .state_size = SHARD * sizeof(float), .methods = shard_methods};
static const trp_actor_type worker = {.name = "worker", .methods = worker_methods};
static const trp_actor_type *const types[] = {&shard, &worker, NULL};

static trp_code start_worker(trp_runtime *rt, const trp_actor *shards, int number, trp_ref *ret_ref,
                             trp_error *err) {
    trp_actor actor;
    trp_buf args = {0};
    trp_code code = trp_spawn(rt, "worker", (trp_bytes){0}, NULL, &actor, err);
    if (code == TRP_OK) {
        code = trp_pack(&args, err, "[aau]", shards[0], shards[1], (uint64_t)number);
    }
    if (code == TRP_OK) {
        code = trp_call(rt, actor, "train", trp_buf_bytes(&args), 60000, ret_ref, err);
    }
    trp_buf_release(&args);
    return code;
}

int main(void) {
    const float none[FEATURES] = {0};
    float weights[FEATURES], worst = 0;
    trp_actor shards[SHARDS];
    trp_ref refs[WORKERS];
    trp_runtime *rt;
    trp_error err;
    trp_code code = trp_init(types, NULL, &rt, &err);
    for (int s = 0; s < SHARDS && code == TRP_OK; s++) {
        code = trp_spawn(rt, "shard", (trp_bytes){0}, NULL, &shards[s], &err);
    }
    for (int w = 0; w < WORKERS && code == TRP_OK; w++) {
        code = start_worker(rt, shards, w, &refs[w], &err);
    }
    if (code || trp_get_all(rt, refs, WORKERS, TRP_FOREVER, NULL, &err) ||
        exchange(rt, shards, weights, none, &err)) {
        return fprintf(stderr, "parameter_server: %s\n", err.message), 1;
    }
    printf("weights:");
    for (int i = 0; i < FEATURES; i++) {
        printf(" %.2f", (double)weights[i]);
        worst = fmaxf(worst, fabsf(weights[i] - (float)(i + 1)));
    }
    printf("\n%d workers, %d steps each: %s\n", WORKERS, STEPS,
           worst < 0.05F ? "converged" : "not converged");
    trp_shutdown(&rt);
    return worst < 0.05F ? 0 : 1;
}
