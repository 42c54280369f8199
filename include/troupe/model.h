/* model.h: a model is a list of units, and a unit is parameters with a forward and a backward.
 *
 *   tokens -> [unit 0: embedding] -> x1 -> [unit 1: block] -> x2 -> ... -> [last unit: head, loss]
 *
 * A unit owns no tensor. It says what parameters it has and how much memory it needs for a
 * micro-batch; the engine owns parameters, gradients and activations, decides where they live and
 * when they are gathered and released, and hands pointers to the unit, which calls trp_op_*
 * (device.h) on them. So a unit knows nothing of ranks, stages or memory, and a model that somebody
 * writes runs at every ZeRO stage.
 *
 * Threads: a model belongs to one thread. */
#ifndef TROUPE_MODEL_H
#define TROUPE_MODEL_H

#include <troupe/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trp_model trp_model;

#define TRP_SHAPE_MAX 4
#define TRP_IGNORE (-100) /* a target that does not count in the loss */

typedef enum trp_param_init { TRP_INIT_ZEROS, TRP_INIT_ONES, TRP_INIT_NORMAL } trp_param_init;

/* A parameter of a unit. */
typedef struct trp_param {
    const char *name; /* its name in checkpoints: unique in the model */
    int64_t shape[TRP_SHAPE_MAX];
    int dims;
    trp_param_init init;
    double std; /* of TRP_INIT_NORMAL; the mean is 0 */
    bool decay; /* weight decay applies; biases and norms have none */
    /* The name of a parameter of an earlier unit whose tensor this is (tied weights): stored once,
     * counted once, its gradient the sum of all uses. Shapes must be equal; init, std and decay are
     * the other's. NULL = a tensor of its own. */
    const char *tied_to;
} trp_param;

/* Bytes that a unit needs for a micro-batch of (rows, columns) tokens. */
typedef struct trp_unit_sizes {
    size_t output;  /* its result, the next unit's x; 0 for the last unit */
    size_t saved;   /* kept from its forward to its backward */
    size_t scratch; /* used inside one call only */
} trp_unit_sizes;

/* What a unit works on. Pointers are device memory, aligned to 64 bytes, unless said otherwise. */
typedef struct trp_unit_io {
    trp_device *device;
    trp_dtype dtype;           /* of parameters and activations: TRP_F32 or TRP_BF16 */
    int64_t rows, columns;     /* of the micro-batch */
    const int32_t *tokens;     /* (rows, columns) */
    const int32_t *targets;    /* (rows, columns), TRP_IGNORE where not counted */
    const int32_t *lengths;    /* (rows) valid tokens per row; NULL = all are */
    const void *const *params; /* one per parameter, dtype */
    float *const *grads;       /* backward: one per parameter, to be added to */
    const void *x;             /* output of the unit before; NULL in the first */
    void *y;                   /* forward: the output; NULL in the last */
    const void *dy;            /* backward: the loss's gradient by y; NULL in the last */
    void *dx;                  /* backward: to be written, by x; NULL in the first */
    void *saved, *scratch;
    float *losses;    /* last unit, forward: (rows, columns) to be written */
    float loss_scale; /* the loss is the sum of losses times this */
    bool training;    /* a backward will follow this forward */
} trp_unit_io;

typedef struct trp_unit_type {
    const char *name;
    /* dx and dy are the same memory, as a residual block wants it (x and y have one shape).
     * Otherwise they do not overlap, and dx holds garbage when backward is entered. */
    bool in_place;
    /* backward does not read params, so they need not be gathered for it. */
    bool backward_without_params;
    void (*sizes)(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                  trp_unit_sizes *ret_sizes);
    trp_code (*forward)(const void *state, const trp_unit_io *io, trp_error *err);
    trp_code (*backward)(const void *state, const trp_unit_io *io, trp_error *err);
    void (*free)(void *state); /* NULL: nothing to free */
} trp_unit_type;

/* What batches a model takes; the engine refuses others before it computes. 0 = no limit. */
typedef struct trp_model_limits {
    int64_t vocabulary; /* tokens and targets are below it */
    int64_t columns;    /* longest sequence */
} trp_model_limits;

/* An empty model. `name` and `limits` are copied. */
TRP_CHECKED trp_code trp_model_new(const char *name, const trp_model_limits *limits,
                                   trp_model **ret_model, trp_error *err);
void trp_model_free(trp_model *model); /* NULL is fine */

/* Appends a unit. `type` is borrowed (static storage); params are copied with their names. Takes
 * `state`, which type->free() gets; on failure it stays the caller's. TRP_EINVALID: a name twice, a
 * shape that is none, tied to a tensor that is not there or has another shape. */
TRP_CHECKED trp_code trp_model_add(trp_model *model, const trp_unit_type *type, void *state,
                                   const trp_param *params, int param_count, trp_error *err);

/* GPT-2 (Radford et al. 2019), with Hugging Face's names and shapes: "transformer.wte.weight", ...,
 * "transformer.h.0.attn.c_attn.weight" (in, out), ...; "lm_head.weight" is tied to the first. */
typedef struct trp_gpt2_config {  /* zero-initialize; 0 is the default given here */
    int64_t vocabulary;           /* 50257 */
    int64_t positions;            /* 1024 */
    int64_t layers, heads, width; /* 12, 12, 768 */
    double init_std;              /* 0.02; residual projections have it / sqrt(2 layers) */
    double norm_eps;              /* 1e-5 */
} trp_gpt2_config;
TRP_CHECKED trp_code trp_gpt2_new(const trp_gpt2_config *config, trp_model **ret_model,
                                  trp_error *err);

#ifdef __cplusplus
}
#endif
#endif
