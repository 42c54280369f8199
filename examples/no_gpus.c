/* no_gpus.c: what no node could ever give is told apart from what is only taken right now; an actor
 * that nobody could hold may be refused at once. Run it on a cluster without GPUs. */
#include <stdio.h>
#include <troupe/runtime.h>

enum { GROUPS_MAX = 1024, WAIT_MS = 300 };

static const trp_method methods[] = {{.name = NULL}};
static const trp_actor_type thinker = {.name = "thinker", .methods = methods};
static const trp_actor_type *const types[] = {&thinker, NULL};

/* A group waits: a node that has what it needs may join. What it waits for is told at the end. */
static trp_code reserve(trp_runtime *rt, double gpus, trp_group *ret_group, trp_error *err) {
    const trp_bundle bundles[] = {{.cpus = 1, .gpus = gpus}};
    const trp_group_options options = {.bundles = bundles, .bundle_count = 1};
    trp_code code = trp_group_create(rt, &options, ret_group, err);
    return code == TRP_OK ? trp_group_wait(rt, *ret_group, WAIT_MS, NULL, 0, err) : code;
}

int main(void) {
    const trp_spawn_options one_gpu = {.gpus = 1, .fail_if_infeasible = true};
    trp_group group;
    trp_actor actor;
    trp_runtime *rt;
    trp_error err;
    if (trp_init(types, NULL, &rt, &err)) {
        return fprintf(stderr, "no_gpus: %s\n", err.message), 1;
    }
    if (reserve(rt, 1, &group, &err) == TRP_OK) {
        return fprintf(stderr, "no_gpus: this cluster has GPUs\n"), 1;
    }
    printf("a bundle with a GPU: %s\n  %s\n", trp_code_text(err.code), err.message);
    trp_code code = trp_spawn(rt, "thinker", (trp_bytes){0}, &one_gpu, &actor, &err);
    printf("an actor with a GPU: %s\n  %s\n", trp_code_text(code), err.message);

    int held = 0;
    do { /* until all CPUs are taken */
        code = reserve(rt, 0, &group, &err);
        held += code == TRP_OK;
    } while (code == TRP_OK && held < GROUPS_MAX);
    printf("a CPU when all %d are taken: %s\n  %s\n", held, trp_code_text(code), err.message);
    trp_shutdown(&rt); /* gives all of it back */
    return code == TRP_ETIMEOUT ? 0 : 1;
}
