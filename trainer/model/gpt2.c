/* gpt2.c: GPT-2 as a list of units: embedding, blocks, head.
 *
 * Names and shapes are Hugging Face's, whose Conv1D stores a weight as (in, out): y = x . W + b.
 * C = width, M = rows * columns, H = heads, V = vocabulary. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/model/model.h"

#define PARAMS_MAX 12
#define NAME_MAX_BYTES 64
#define ALIGN 64

/* Cuts a unit's saved and scratch memory into aligned pieces. With base NULL it only measures. */
typedef struct carver {
    char *base;
    size_t used;
} carver;

static void *carve(carver *c, int64_t elements, size_t element_bytes) {
    void *piece = c->base ? c->base + c->used : NULL;
    c->used += ((size_t)elements * element_bytes + ALIGN - 1) / ALIGN * ALIGN;
    return piece;
}

typedef struct gpt2_state {
    int64_t heads, width, vocabulary;
    float norm_eps;
} gpt2_state;

static void *state_copy(const gpt2_state *state) {
    gpt2_state *copy = malloc(sizeof *copy);
    if (copy) {
        *copy = *state;
    }
    return copy;
}

/* ---- The two shapes of a linear layer. Arguments are plain, so that calls read as formulas ----
 */

typedef struct linear {
    trp_device *device;
    trp_dtype dtype;
    int64_t rows, in, out;
} linear;

/* y (rows, out) = x (rows, in) . weight (in, out) + bias */
static trp_code linear_forward(const linear *l, const void *x, const void *weight, const void *bias,
                               void *y, trp_error *err) {
    return trp_op_matmul(l->device,
                         &(trp_matmul_args){.m = l->rows,
                                            .n = l->out,
                                            .k = l->in,
                                            .a = x,
                                            .b = weight,
                                            .c = y,
                                            .bias = bias,
                                            .dtype = l->dtype,
                                            .dtype_c = l->dtype},
                         err);
}

/* dx = dy . weight^T, dweight += x^T . dy, dbias += column sums of dy */
static trp_code linear_backward(const linear *l, const void *dy, const void *x, const void *weight,
                                void *dx, float *dweight, float *dbias, trp_error *err) {
    trp_code code = trp_op_matmul(l->device,
                                  &(trp_matmul_args){.m = l->in,
                                                     .n = l->out,
                                                     .k = l->rows,
                                                     .a = x,
                                                     .trans_a = true,
                                                     .b = dy,
                                                     .c = dweight,
                                                     .accumulate = true,
                                                     .dtype = l->dtype,
                                                     .dtype_c = TRP_F32},
                                  err);
    if (!code) {
        code = trp_op_column_sum(
            l->device,
            &(trp_column_sum_args){
                .rows = l->rows, .columns = l->out, .x = dy, .out_add = dbias, .dtype = l->dtype},
            err);
    }
    if (!code) {
        code = trp_op_matmul(l->device,
                             &(trp_matmul_args){.m = l->rows,
                                                .n = l->in,
                                                .k = l->out,
                                                .a = dy,
                                                .b = weight,
                                                .trans_b = true,
                                                .c = dx,
                                                .dtype = l->dtype,
                                                .dtype_c = l->dtype},
                             err);
    }
    return code;
}

static trp_code add(const trp_unit_io *io, const void *a, const void *b, void *y, int64_t count,
                    trp_error *err) {
    return trp_op_add(io->device,
                      &(trp_add_args){.count = count, .a = a, .b = b, .y = y, .dtype = io->dtype},
                      err);
}

typedef struct norm {
    void *y;
    float *mean, *rstd;
} norm;

static norm carve_norm(carver *c, int64_t rows, int64_t columns, size_t element_bytes) {
    norm n;
    n.y = carve(c, rows * columns, element_bytes);
    n.mean = carve(c, rows, sizeof(float));
    n.rstd = carve(c, rows, sizeof(float));
    return n;
}

static trp_code norm_forward(const gpt2_state *s, const trp_unit_io *io, const void *x,
                             const void *weight, const void *bias, const norm *n, trp_error *err) {
    return trp_op_layernorm(io->device,
                            &(trp_layernorm_args){.rows = io->rows * io->columns,
                                                  .columns = s->width,
                                                  .x = x,
                                                  .weight = weight,
                                                  .bias = bias,
                                                  .y = n->y,
                                                  .mean = n->mean,
                                                  .rstd = n->rstd,
                                                  .eps = s->norm_eps,
                                                  .dtype = io->dtype},
                            err);
}

/* dx += ...: what came along the residual stays in it. */
static trp_code norm_backward(const gpt2_state *s, const trp_unit_io *io, const void *dy,
                              const void *x, const void *weight, const norm *n, void *dx,
                              float *dweight, float *dbias, trp_error *err) {
    return trp_op_layernorm_backward(io->device,
                                     &(trp_layernorm_backward_args){.rows = io->rows * io->columns,
                                                                    .columns = s->width,
                                                                    .dy = dy,
                                                                    .x = x,
                                                                    .weight = weight,
                                                                    .mean = n->mean,
                                                                    .rstd = n->rstd,
                                                                    .dx_add = dx,
                                                                    .dweight_add = dweight,
                                                                    .dbias_add = dbias,
                                                                    .dtype = io->dtype},
                                     err);
}

/* ---- Embedding ---- */

enum { WTE, WPE };

static void embedding_sizes(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                            trp_unit_sizes *ret_sizes) {
    const gpt2_state *s = state;
    size_t output = (size_t)(rows * columns * s->width) * trp_dtype_size(dtype);
    *ret_sizes = (trp_unit_sizes){.output = output};
}

static trp_code embedding_forward(const void *state, const trp_unit_io *io, trp_error *err) {
    const gpt2_state *s = state;
    return trp_op_embedding(io->device,
                            &(trp_embedding_args){.batch = io->rows,
                                                  .time = io->columns,
                                                  .columns = s->width,
                                                  .vocabulary = s->vocabulary,
                                                  .tokens = io->tokens,
                                                  .token_table = io->params[WTE],
                                                  .position_table = io->params[WPE],
                                                  .out = io->y,
                                                  .dtype = io->dtype},
                            err);
}

static trp_code embedding_backward(const void *state, const trp_unit_io *io, trp_error *err) {
    const gpt2_state *s = state;
    return trp_op_embedding_backward(
        io->device,
        &(trp_embedding_backward_args){.batch = io->rows,
                                       .time = io->columns,
                                       .columns = s->width,
                                       .vocabulary = s->vocabulary,
                                       .tokens = io->tokens,
                                       .dout = io->dy,
                                       .dtoken_table_add = io->grads[WTE],
                                       .dposition_table_add = io->grads[WPE],
                                       .dtype = io->dtype},
        err);
}

static const trp_unit_type embedding_type = {
    .name = "gpt2_embedding",
    .backward_without_params = true,
    .sizes = embedding_sizes,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .free = free,
};

/* ---- Block: x2 = x + attention(norm(x)); y = x2 + mlp(norm(x2)) ---- */

enum { LN1_W, LN1_B, QKV_W, QKV_B, PROJ_W, PROJ_B, LN2_W, LN2_B, FC_W, FC_B, FC2_W, FC2_B };

typedef struct block_saved {
    norm ln1;
    void *qkv;    /* (M, 3, H, C / H) */
    float *lse;   /* (rows, H, columns) */
    void *attend; /* (M, C) */
    void *x2;     /* (M, C) */
    norm ln2;
    void *fc, *act; /* (M, 4 C), before and after GELU */
} block_saved;

static block_saved carve_block(carver *c, const gpt2_state *s, int64_t m, trp_dtype dtype) {
    size_t e = trp_dtype_size(dtype);
    block_saved b;
    b.ln1 = carve_norm(c, m, s->width, e);
    b.qkv = carve(c, 3 * m * s->width, e);
    b.lse = carve(c, m * s->heads, sizeof(float));
    b.attend = carve(c, m * s->width, e);
    b.x2 = carve(c, m * s->width, e);
    b.ln2 = carve_norm(c, m, s->width, e);
    b.fc = carve(c, 4 * m * s->width, e);
    b.act = carve(c, 4 * m * s->width, e);
    return b;
}

/* Backward needs room for a gradient as wide as the MLP and one as wide as the model. */
typedef struct block_scratch {
    void *wide;   /* (M, 4 C) */
    void *narrow; /* (M, C) */
} block_scratch;

static block_scratch carve_scratch(carver *c, const gpt2_state *s, int64_t m, trp_dtype dtype) {
    block_scratch b;
    b.wide = carve(c, 4 * m * s->width, trp_dtype_size(dtype));
    b.narrow = carve(c, m * s->width, trp_dtype_size(dtype));
    return b;
}

static void block_sizes(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                        trp_unit_sizes *ret_sizes) {
    const gpt2_state *s = state;
    int64_t m = rows * columns;
    carver saved = {0}, scratch = {0};
    carve_block(&saved, s, m, dtype);
    carve_scratch(&scratch, s, m, dtype);
    *ret_sizes = (trp_unit_sizes){
        .output = (size_t)(m * s->width) * trp_dtype_size(dtype),
        .saved = saved.used,
        .scratch = scratch.used,
    };
}

static trp_code attention_forward(const gpt2_state *s, const trp_unit_io *io, const block_saved *b,
                                  trp_error *err) {
    int64_t m = io->rows * io->columns, width = s->width;
    linear qkv = {io->device, io->dtype, m, width, 3 * width};
    linear proj = {io->device, io->dtype, m, width, width};

    trp_code code = norm_forward(s, io, io->x, io->params[LN1_W], io->params[LN1_B], &b->ln1, err);
    if (!code) {
        code = linear_forward(&qkv, b->ln1.y, io->params[QKV_W], io->params[QKV_B], b->qkv, err);
    }
    if (!code) {
        code = trp_op_attention(io->device,
                                &(trp_attention_args){.batch = io->rows,
                                                      .time = io->columns,
                                                      .heads = s->heads,
                                                      .head_size = width / s->heads,
                                                      .qkv = b->qkv,
                                                      .out = b->attend,
                                                      .lse = b->lse,
                                                      .causal = true,
                                                      .lengths = io->lengths,
                                                      .dtype = io->dtype},
                                err);
    }
    if (!code) {
        code = linear_forward(&proj, b->attend, io->params[PROJ_W], io->params[PROJ_B], b->x2, err);
    }
    if (!code) {
        code = add(io, b->x2, io->x, b->x2, m * width, err);
    }
    return code;
}

static trp_code mlp_forward(const gpt2_state *s, const trp_unit_io *io, const block_saved *b,
                            trp_error *err) {
    int64_t m = io->rows * io->columns, width = s->width;
    linear fc = {io->device, io->dtype, m, width, 4 * width};
    linear fc2 = {io->device, io->dtype, m, 4 * width, width};

    trp_code code = norm_forward(s, io, b->x2, io->params[LN2_W], io->params[LN2_B], &b->ln2, err);
    if (!code) {
        code = linear_forward(&fc, b->ln2.y, io->params[FC_W], io->params[FC_B], b->fc, err);
    }
    if (!code) {
        code = trp_op_gelu(
            io->device,
            &(trp_gelu_args){.count = 4 * m * width, .x = b->fc, .y = b->act, .dtype = io->dtype},
            err);
    }
    if (!code) {
        code = linear_forward(&fc2, b->act, io->params[FC2_W], io->params[FC2_B], io->y, err);
    }
    if (!code) {
        code = add(io, io->y, b->x2, io->y, m * width, err);
    }
    return code;
}

static trp_code block_forward(const void *state, const trp_unit_io *io, trp_error *err) {
    const gpt2_state *s = state;
    carver saved = {.base = io->saved};
    block_saved b = carve_block(&saved, s, io->rows * io->columns, io->dtype);

    trp_code code = attention_forward(s, io, &b, err);
    return code ? code : mlp_forward(s, io, &b, err);
}

/* dx holds the gradient by y on entry and that by x2 on return. */
static trp_code mlp_backward(const gpt2_state *s, const trp_unit_io *io, const block_saved *b,
                             const block_scratch *t, trp_error *err) {
    int64_t m = io->rows * io->columns, width = s->width;
    linear fc = {io->device, io->dtype, m, width, 4 * width};
    linear fc2 = {io->device, io->dtype, m, 4 * width, width};

    trp_code code = linear_backward(&fc2, io->dx, b->act, io->params[FC2_W], t->wide,
                                    io->grads[FC2_W], io->grads[FC2_B], err);
    if (!code) {
        code = trp_op_gelu_backward(io->device,
                                    &(trp_gelu_backward_args){.count = 4 * m * width,
                                                              .dy = t->wide,
                                                              .x = b->fc,
                                                              .dx = t->wide,
                                                              .dtype = io->dtype},
                                    err);
    }
    if (!code) {
        code = linear_backward(&fc, t->wide, b->ln2.y, io->params[FC_W], t->narrow, io->grads[FC_W],
                               io->grads[FC_B], err);
    }
    if (!code) {
        code = norm_backward(s, io, t->narrow, b->x2, io->params[LN2_W], &b->ln2, io->dx,
                             io->grads[LN2_W], io->grads[LN2_B], err);
    }
    return code;
}

/* dx holds the gradient by x2 on entry and that by x on return. */
static trp_code attention_backward(const gpt2_state *s, const trp_unit_io *io, const block_saved *b,
                                   const block_scratch *t, trp_error *err) {
    int64_t m = io->rows * io->columns, width = s->width;
    linear qkv = {io->device, io->dtype, m, width, 3 * width};
    linear proj = {io->device, io->dtype, m, width, width};

    trp_code code = linear_backward(&proj, io->dx, b->attend, io->params[PROJ_W], t->narrow,
                                    io->grads[PROJ_W], io->grads[PROJ_B], err);
    if (!code) {
        code =
            trp_op_attention_backward(io->device,
                                      &(trp_attention_backward_args){.batch = io->rows,
                                                                     .time = io->columns,
                                                                     .heads = s->heads,
                                                                     .head_size = width / s->heads,
                                                                     .dout = t->narrow,
                                                                     .qkv = b->qkv,
                                                                     .out = b->attend,
                                                                     .lse = b->lse,
                                                                     .dqkv = t->wide,
                                                                     .causal = true,
                                                                     .lengths = io->lengths,
                                                                     .dtype = io->dtype},
                                      err);
    }
    if (!code) {
        code = linear_backward(&qkv, t->wide, b->ln1.y, io->params[QKV_W], t->narrow,
                               io->grads[QKV_W], io->grads[QKV_B], err);
    }
    if (!code) {
        code = norm_backward(s, io, t->narrow, io->x, io->params[LN1_W], &b->ln1, io->dx,
                             io->grads[LN1_W], io->grads[LN1_B], err);
    }
    return code;
}

static trp_code block_backward(const void *state, const trp_unit_io *io, trp_error *err) {
    const gpt2_state *s = state;
    int64_t m = io->rows * io->columns;
    carver saved = {.base = io->saved}, scratch = {.base = io->scratch};
    block_saved b = carve_block(&saved, s, m, io->dtype);
    block_scratch t = carve_scratch(&scratch, s, m, io->dtype);

    trp_code code = mlp_backward(s, io, &b, &t, err);
    return code ? code : attention_backward(s, io, &b, &t, err);
}

static const trp_unit_type block_type = {
    .name = "gpt2_block",
    .in_place = true,
    .sizes = block_sizes,
    .forward = block_forward,
    .backward = block_backward,
    .free = free,
};

/* ---- Head: losses = cross entropy(norm(x) . wte^T) ---- */

enum { LNF_W, LNF_B, LM_HEAD };

typedef struct head_saved {
    norm lnf;
    void *logits; /* (M, V); after a training forward the loss's gradient by them */
} head_saved;

static head_saved carve_head(carver *c, const gpt2_state *s, int64_t m, trp_dtype dtype) {
    head_saved h;
    h.lnf = carve_norm(c, m, s->width, trp_dtype_size(dtype));
    h.logits = carve(c, m * s->vocabulary, trp_dtype_size(dtype));
    return h;
}

static void head_sizes(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                       trp_unit_sizes *ret_sizes) {
    const gpt2_state *s = state;
    int64_t m = rows * columns;
    carver saved = {0}, scratch = {0};
    carve_head(&saved, s, m, dtype);
    carve(&scratch, m * s->width, trp_dtype_size(dtype));
    *ret_sizes = (trp_unit_sizes){.saved = saved.used, .scratch = scratch.used};
}

static trp_code head_forward(const void *state, const trp_unit_io *io, trp_error *err) {
    const gpt2_state *s = state;
    int64_t m = io->rows * io->columns;
    carver saved = {.base = io->saved};
    head_saved h = carve_head(&saved, s, m, io->dtype);

    trp_code code = norm_forward(s, io, io->x, io->params[LNF_W], io->params[LNF_B], &h.lnf, err);
    if (!code) {
        code = trp_op_matmul(io->device,
                             &(trp_matmul_args){.m = m,
                                                .n = s->vocabulary,
                                                .k = s->width,
                                                .a = h.lnf.y,
                                                .b = io->params[LM_HEAD],
                                                .trans_b = true,
                                                .c = h.logits,
                                                .dtype = io->dtype,
                                                .dtype_c = io->dtype},
                             err);
    }
    if (!code) {
        code = trp_op_xent(io->device,
                           &(trp_xent_args){.rows = m,
                                            .vocabulary = s->vocabulary,
                                            .logits = h.logits,
                                            .targets = io->targets,
                                            .losses = io->losses,
                                            .dlogits = io->training ? h.logits : NULL,
                                            .scale = io->loss_scale,
                                            .ignore_index = TRP_IGNORE,
                                            .dtype = io->dtype},
                           err);
    }
    return code;
}

static trp_code head_backward(const void *state, const trp_unit_io *io, trp_error *err) {
    const gpt2_state *s = state;
    int64_t m = io->rows * io->columns;
    carver saved = {.base = io->saved};
    head_saved h = carve_head(&saved, s, m, io->dtype);

    trp_code code = trp_op_matmul(io->device,
                                  &(trp_matmul_args){.m = s->vocabulary,
                                                     .n = s->width,
                                                     .k = m,
                                                     .a = h.logits,
                                                     .trans_a = true,
                                                     .b = h.lnf.y,
                                                     .c = io->grads[LM_HEAD],
                                                     .accumulate = true,
                                                     .dtype = io->dtype,
                                                     .dtype_c = TRP_F32},
                                  err);
    if (!code) {
        code = trp_op_matmul(io->device,
                             &(trp_matmul_args){.m = m,
                                                .n = s->width,
                                                .k = s->vocabulary,
                                                .a = h.logits,
                                                .b = io->params[LM_HEAD],
                                                .c = io->scratch,
                                                .dtype = io->dtype,
                                                .dtype_c = io->dtype},
                             err);
    }
    if (!code) { /* norm_backward adds, and there is no residual here */
        code = trp_op_fill(
            io->device,
            &(trp_fill_args){.y = io->dx,
                             .bytes = (size_t)(m * s->width) * trp_dtype_size(io->dtype)},
            err);
    }
    if (!code) {
        code = norm_backward(s, io, io->scratch, io->x, io->params[LNF_W], &h.lnf, io->dx,
                             io->grads[LNF_W], io->grads[LNF_B], err);
    }
    return code;
}

static const trp_unit_type head_type = {
    .name = "gpt2_head",
    .sizes = head_sizes,
    .forward = head_forward,
    .backward = head_backward,
    .free = free,
};

/* ---- The list ---- */

/* Parameters of one unit while they are being listed; trp_model_add() copies them. */
typedef struct param_list {
    trp_param params[PARAMS_MAX];
    char names[PARAMS_MAX][NAME_MAX_BYTES];
    int count;
} param_list;

static trp_param *list_add(param_list *list, int64_t layer, const char *name, int64_t first,
                           int64_t second) {
    int at = list->count++;
    trp_param *param = &list->params[at];
    if (layer >= 0) {
        trpi_format(list->names[at], NAME_MAX_BYTES, "transformer.h.%lld.%s", (long long)layer,
                    name);
    } else {
        TRPI_SET(list->names[at], name);
    }
    *param = (trp_param){.name = list->names[at], .shape = {first, second}};
    param->dims = second ? 2 : 1;
    return param;
}

static void list_matrix(param_list *list, int64_t layer, const char *name, int64_t rows,
                        int64_t columns, double std) {
    trp_param *param = list_add(list, layer, name, rows, columns);
    param->init = TRP_INIT_NORMAL;
    param->std = std;
    param->decay = true;
}

static void list_vector(param_list *list, int64_t layer, const char *name, int64_t count,
                        trp_param_init init) {
    list_add(list, layer, name, count, 0)->init = init;
}

static trp_code add_unit(trp_model *model, const trp_unit_type *type, const gpt2_state *state,
                         const param_list *list, trp_error *err) {
    void *copy = state_copy(state);
    if (!copy) {
        return trpi_fail(err, TRP_ENOMEM, "gpt2");
    }
    trp_code code = trp_model_add(model, type, copy, list->params, list->count, err);
    if (code) {
        free(copy);
    }
    return code;
}

static trp_code add_embedding(trp_model *model, const gpt2_state *state,
                              const trp_gpt2_config *config, trp_error *err) {
    param_list list = {0};
    list_matrix(&list, -1, "transformer.wte.weight", state->vocabulary, state->width,
                config->init_std);
    list_matrix(&list, -1, "transformer.wpe.weight", config->positions, state->width,
                config->init_std);
    return add_unit(model, &embedding_type, state, &list, err);
}

static trp_code add_block(trp_model *model, const gpt2_state *state, const trp_gpt2_config *config,
                          int64_t layer, trp_error *err) {
    int64_t width = state->width;
    double std = config->init_std;
    /* Radford et al. 2019, section 2.3: each layer adds twice to the residual stream. */
    double residual_std = std / sqrt(2.0 * (double)config->layers);
    param_list list = {0};
    list_vector(&list, layer, "ln_1.weight", width, TRP_INIT_ONES);
    list_vector(&list, layer, "ln_1.bias", width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "attn.c_attn.weight", width, 3 * width, std);
    list_vector(&list, layer, "attn.c_attn.bias", 3 * width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "attn.c_proj.weight", width, width, residual_std);
    list_vector(&list, layer, "attn.c_proj.bias", width, TRP_INIT_ZEROS);
    list_vector(&list, layer, "ln_2.weight", width, TRP_INIT_ONES);
    list_vector(&list, layer, "ln_2.bias", width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "mlp.c_fc.weight", width, 4 * width, std);
    list_vector(&list, layer, "mlp.c_fc.bias", 4 * width, TRP_INIT_ZEROS);
    list_matrix(&list, layer, "mlp.c_proj.weight", 4 * width, width, residual_std);
    list_vector(&list, layer, "mlp.c_proj.bias", width, TRP_INIT_ZEROS);
    return add_unit(model, &block_type, state, &list, err);
}

static trp_code add_head(trp_model *model, const gpt2_state *state, trp_error *err) {
    param_list list = {0};
    list_vector(&list, -1, "transformer.ln_f.weight", state->width, TRP_INIT_ONES);
    list_vector(&list, -1, "transformer.ln_f.bias", state->width, TRP_INIT_ZEROS);
    trp_param *tied = list_add(&list, -1, "lm_head.weight", state->vocabulary, state->width);
    tied->tied_to = "transformer.wte.weight";
    return add_unit(model, &head_type, state, &list, err);
}

static int64_t or_default(int64_t value, int64_t fallback) {
    return value ? value : fallback;
}

static trp_code complete_config(const trp_gpt2_config *given, trp_gpt2_config *ret_config,
                                trp_error *err) {
    trp_gpt2_config c = *given;
    c.vocabulary = or_default(c.vocabulary, 50257);
    c.positions = or_default(c.positions, 1024);
    c.layers = or_default(c.layers, 12);
    c.heads = or_default(c.heads, 12);
    c.width = or_default(c.width, 768);
    c.init_std = c.init_std != 0 ? c.init_std : 0.02;
    c.norm_eps = c.norm_eps != 0 ? c.norm_eps : 1e-5;
    if (c.vocabulary < 1 || c.positions < 1 || c.layers < 1 || c.heads < 1 || c.width < 1) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: a size is negative");
    }
    if (c.vocabulary > INT32_MAX || c.positions > INT32_MAX || c.width > 1 << 20 ||
        c.layers > 1 << 16) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: a size is too large");
    }
    if (c.width % c.heads != 0) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: width %lld is not a multiple of heads %lld",
                         (long long)c.width, (long long)c.heads);
    }
    if (!(c.init_std > 0) || !(c.norm_eps > 0)) {
        return trpi_fail(err, TRP_EINVALID, "gpt2: init_std and norm_eps must be above 0");
    }
    *ret_config = c;
    return TRP_OK;
}

trp_code trp_gpt2_new(const trp_gpt2_config *config, trp_model **ret_model, trp_error *err) {
    trp_gpt2_config c = {0};
    trp_model *model = NULL;
    trp_code code = complete_config(config, &c, err);
    if (code) {
        return code;
    }
    gpt2_state state = {c.heads, c.width, c.vocabulary, (float)c.norm_eps};
    code = trp_model_new("gpt2", &(trp_model_limits){c.vocabulary, c.positions}, &model, err);
    if (!code) {
        code = add_embedding(model, &state, &c, err);
    }
    for (int64_t layer = 0; !code && layer < c.layers; layer++) {
        code = add_block(model, &state, &c, layer, err);
    }
    if (!code) {
        code = add_head(model, &state, err);
    }
    if (code) {
        trp_model_free(model);
        return code;
    }
    *ret_model = model;
    return TRP_OK;
}
