/* gpt2_block.c: x2 = x + attention(norm(x)); y = x2 + mlp(norm(x2)). */
#include <stdlib.h>

#include "trainer/model/gpt2.h"
#include "trainer/model/layers.h"

/* One block in one micro-batch: what is kept from forward to backward, and the linear layers. */
typedef struct block {
    const trp_unit_io *io;
    int64_t m, width, heads;
    trpi_norm ln1, ln2;
    void *qkv;      /* (M, 3, H, C / H) */
    float *lse;     /* (rows, H, columns) */
    void *attended; /* (M, C) */
    void *x2;       /* (M, C) */
    void *fc, *act; /* (M, 4 C), before and after GELU */
    void *wide;     /* scratch: (M, 4 C) */
    void *narrow;   /* scratch: (M, C) */
    trpi_linear to_qkv, proj, up, down;
} block;

/* With io->saved NULL only sizes come out of it, through the carvers. */
static block block_of(const trpi_gpt2_state *s, const trp_unit_io *io, trpi_carver *saved,
                      trpi_carver *scratch) {
    int64_t m = io->rows * io->columns, c = s->width;
    size_t e = trp_dtype_size(io->dtype);
    trpi_norm norm = {io->device, io->dtype, m, c, s->norm_eps, NULL, NULL, NULL};
    block b = {.io = io, .m = m, .width = c, .heads = s->heads, .ln1 = norm, .ln2 = norm};
    trpi_norm_carve(&b.ln1, saved);
    trpi_norm_carve(&b.ln2, saved);
    b.qkv = trpi_carve(saved, 3 * m * c, e);
    b.lse = trpi_carve(saved, m * s->heads, sizeof(float));
    b.attended = trpi_carve(saved, m * c, e);
    b.x2 = trpi_carve(saved, m * c, e);
    b.fc = trpi_carve(saved, 4 * m * c, e);
    b.act = trpi_carve(saved, 4 * m * c, e);
    b.wide = trpi_carve(scratch, 4 * m * c, e);
    b.narrow = trpi_carve(scratch, m * c, e);
    b.to_qkv = (trpi_linear){io->device, io->dtype, m, c, 3 * c};
    b.proj = (trpi_linear){io->device, io->dtype, m, c, c};
    b.up = (trpi_linear){io->device, io->dtype, m, c, 4 * c};
    b.down = (trpi_linear){io->device, io->dtype, m, 4 * c, c};
    return b;
}

static void block_sizes(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                        trp_unit_sizes *ret_sizes) {
    const trpi_gpt2_state *s = state;
    trp_unit_io io = {.dtype = dtype, .rows = rows, .columns = columns};
    trpi_carver saved = {0}, scratch = {0};
    (void)block_of(s, &io, &saved, &scratch);
    *ret_sizes = (trp_unit_sizes){
        .output = (size_t)(rows * columns * s->width) * trp_dtype_size(dtype),
        .saved = saved.used,
        .scratch = scratch.used,
    };
}

/* ---- Forward ---- */

static trp_code add(const block *b, const void *x, void *y, trp_error *err) {
    trp_add_args args = {.count = b->m * b->width, .a = x, .b = y, .y = y, .dtype = b->io->dtype};
    return trp_op_add(b->io->device, &args, err);
}

static trp_code attend(const block *b, trp_error *err) {
    trp_attention_args args = {
        .batch = b->io->rows,
        .time = b->io->columns,
        .heads = b->heads,
        .head_size = b->width / b->heads,
        .qkv = b->qkv,
        .out = b->attended,
        .lse = b->lse,
        .causal = true,
        .lengths = b->io->lengths,
        .dtype = b->io->dtype,
    };
    return trp_op_attention(b->io->device, &args, err);
}

static trp_code attention_forward(const block *b, trp_error *err) {
    const void *const *p = b->io->params;
    trp_code code =
        trpi_norm_forward(&b->ln1, b->io->x, p[TRPI_GPT2_LN1_W], p[TRPI_GPT2_LN1_B], err);
    if (!code) {
        code = trpi_linear_forward(&b->to_qkv, b->ln1.y, p[TRPI_GPT2_QKV_W], p[TRPI_GPT2_QKV_B],
                                   b->qkv, err);
    }
    if (!code) {
        code = attend(b, err);
    }
    if (!code) {
        code = trpi_linear_forward(&b->proj, b->attended, p[TRPI_GPT2_PROJ_W], p[TRPI_GPT2_PROJ_B],
                                   b->x2, err);
    }
    return code ? code : add(b, b->io->x, b->x2, err);
}

static trp_code mlp_forward(const block *b, trp_error *err) {
    const void *const *p = b->io->params;
    trp_gelu_args gelu = {
        .count = 4 * b->m * b->width, .x = b->fc, .y = b->act, .dtype = b->io->dtype};
    trp_code code = trpi_norm_forward(&b->ln2, b->x2, p[TRPI_GPT2_LN2_W], p[TRPI_GPT2_LN2_B], err);
    if (!code) {
        code =
            trpi_linear_forward(&b->up, b->ln2.y, p[TRPI_GPT2_FC_W], p[TRPI_GPT2_FC_B], b->fc, err);
    }
    if (!code) {
        code = trp_op_gelu(b->io->device, &gelu, err);
    }
    if (!code) {
        code = trpi_linear_forward(&b->down, b->act, p[TRPI_GPT2_FC2_W], p[TRPI_GPT2_FC2_B],
                                   b->io->y, err);
    }
    return code ? code : add(b, b->x2, b->io->y, err);
}

static trp_code block_forward(const void *state, const trp_unit_io *io, trp_error *err) {
    trpi_carver saved = {.base = io->saved}, scratch = {.base = io->scratch};
    block b = block_of(state, io, &saved, &scratch);
    trp_code code = attention_forward(&b, err);
    return code ? code : mlp_forward(&b, err);
}

/* ---- Backward: io->dx is the gradient by y on entry, by x2 after the MLP, by x on return ---- */

static trp_code mlp_backward(const block *b, trp_error *err) {
    const void *const *p = b->io->params;
    float *const *g = b->io->grads;
    trp_gelu_backward_args gelu = {.count = 4 * b->m * b->width,
                                   .dy = b->wide,
                                   .x = b->fc,
                                   .dx = b->wide,
                                   .dtype = b->io->dtype};
    trp_code code = trpi_linear_backward(&b->down, b->io->dx, b->act, p[TRPI_GPT2_FC2_W], b->wide,
                                         g[TRPI_GPT2_FC2_W], g[TRPI_GPT2_FC2_B], err);
    if (!code) {
        code = trp_op_gelu_backward(b->io->device, &gelu, err);
    }
    if (!code) {
        code = trpi_linear_backward(&b->up, b->wide, b->ln2.y, p[TRPI_GPT2_FC_W], b->narrow,
                                    g[TRPI_GPT2_FC_W], g[TRPI_GPT2_FC_B], err);
    }
    if (!code) {
        code = trpi_norm_backward(&b->ln2, b->narrow, b->x2, p[TRPI_GPT2_LN2_W], b->io->dx,
                                  g[TRPI_GPT2_LN2_W], g[TRPI_GPT2_LN2_B], err);
    }
    return code;
}

/* narrow holds the gradient by what attention gave; wide gets that by q, k and v. */
static trp_code attend_backward(const block *b, trp_error *err) {
    trp_attention_backward_args args = {
        .batch = b->io->rows,
        .time = b->io->columns,
        .heads = b->heads,
        .head_size = b->width / b->heads,
        .dout = b->narrow,
        .qkv = b->qkv,
        .out = b->attended,
        .lse = b->lse,
        .dqkv = b->wide,
        .causal = true,
        .lengths = b->io->lengths,
        .dtype = b->io->dtype,
    };
    return trp_op_attention_backward(b->io->device, &args, err);
}

static trp_code attention_backward(const block *b, trp_error *err) {
    const void *const *p = b->io->params;
    float *const *g = b->io->grads;
    trp_code code = trpi_linear_backward(&b->proj, b->io->dx, b->attended, p[TRPI_GPT2_PROJ_W],
                                         b->narrow, g[TRPI_GPT2_PROJ_W], g[TRPI_GPT2_PROJ_B], err);
    if (!code) {
        code = attend_backward(b, err);
    }
    if (!code) {
        code = trpi_linear_backward(&b->to_qkv, b->wide, b->ln1.y, p[TRPI_GPT2_QKV_W], b->narrow,
                                    g[TRPI_GPT2_QKV_W], g[TRPI_GPT2_QKV_B], err);
    }
    if (!code) {
        code = trpi_norm_backward(&b->ln1, b->narrow, b->io->x, p[TRPI_GPT2_LN1_W], b->io->dx,
                                  g[TRPI_GPT2_LN1_W], g[TRPI_GPT2_LN1_B], err);
    }
    return code;
}

static trp_code block_backward(const void *state, const trp_unit_io *io, trp_error *err) {
    trpi_carver saved = {.base = io->saved}, scratch = {.base = io->scratch};
    block b = block_of(state, io, &saved, &scratch);
    trp_code code = mlp_backward(&b, err);
    return code ? code : attention_backward(&b, err);
}

const trp_unit_type trpi_gpt2_block = {
    .name = "gpt2_block",
    .in_place = true,
    .sizes = block_sizes,
    .forward = block_forward,
    .backward = block_backward,
    .free = free,
};
