/* gpt2_ends.c: the first unit and the last: x = wte[tokens] + wpe[positions], and losses = cross
 * entropy of norm(x) . wte^T. */
#include <stdlib.h>

#include "trainer/model/gpt2.h"
#include "trainer/model/layers.h"

/* ---- Embedding ---- */

static void embedding_sizes(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                            trp_unit_sizes *ret_sizes) {
    const trpi_gpt2_state *s = state;
    size_t output = (size_t)(rows * columns * s->width) * trp_dtype_size(dtype);
    *ret_sizes = (trp_unit_sizes){.output = output};
}

static trp_code embedding_forward(const void *state, const trp_unit_io *io, trp_error *err) {
    const trpi_gpt2_state *s = state;
    trp_embedding_args args = {
        .batch = io->rows,
        .time = io->columns,
        .columns = s->width,
        .vocabulary = s->vocabulary,
        .tokens = io->tokens,
        .token_table = io->params[TRPI_GPT2_WTE],
        .position_table = io->params[TRPI_GPT2_WPE],
        .out = io->y,
        .dtype = io->dtype,
    };
    return trp_op_embedding(io->device, &args, err);
}

static trp_code embedding_backward(const void *state, const trp_unit_io *io, trp_error *err) {
    const trpi_gpt2_state *s = state;
    trp_embedding_backward_args args = {
        .batch = io->rows,
        .time = io->columns,
        .columns = s->width,
        .vocabulary = s->vocabulary,
        .tokens = io->tokens,
        .dout = io->dy,
        .dtoken_table_add = io->grads[TRPI_GPT2_WTE],
        .dposition_table_add = io->grads[TRPI_GPT2_WPE],
        .dtype = io->dtype,
    };
    return trp_op_embedding_backward(io->device, &args, err);
}

const trp_unit_type trpi_gpt2_embedding = {
    .name = "gpt2_embedding",
    .backward_without_params = true,
    .sizes = embedding_sizes,
    .forward = embedding_forward,
    .backward = embedding_backward,
    .free = free,
};

/* ---- Head ---- */

typedef struct head {
    int64_t m, width, vocabulary;
    trpi_norm lnf;
    void *logits; /* (M, V); after a training forward the loss's gradient by them */
    void *dnorm;  /* scratch: (M, C) */
} head;

static head head_of(const trpi_gpt2_state *s, const trp_unit_io *io, trpi_carver *saved,
                    trpi_carver *scratch) {
    int64_t m = io->rows * io->columns;
    head h = {.m = m, .width = s->width, .vocabulary = s->vocabulary};
    h.lnf = (trpi_norm){io->device, io->dtype, m, s->width, s->norm_eps, NULL, NULL, NULL};
    trpi_norm_carve(&h.lnf, saved);
    h.logits = trpi_carve(saved, m * s->vocabulary, trp_dtype_size(io->dtype));
    h.dnorm = trpi_carve(scratch, m * s->width, trp_dtype_size(io->dtype));
    return h;
}

static void head_sizes(const void *state, int64_t rows, int64_t columns, trp_dtype dtype,
                       trp_unit_sizes *ret_sizes) {
    trp_unit_io io = {.dtype = dtype, .rows = rows, .columns = columns};
    trpi_carver saved = {0}, scratch = {0};
    (void)head_of(state, &io, &saved, &scratch);
    *ret_sizes = (trp_unit_sizes){.saved = saved.used, .scratch = scratch.used};
}

static trp_code head_forward(const void *state, const trp_unit_io *io, trp_error *err) {
    trpi_carver saved = {.base = io->saved}, scratch = {.base = io->scratch};
    head h = head_of(state, io, &saved, &scratch);
    trp_matmul_args product = {
        .m = h.m,
        .n = h.vocabulary,
        .k = h.width,
        .a = h.lnf.y,
        .b = io->params[TRPI_GPT2_LM_HEAD],
        .trans_b = true,
        .c = h.logits,
        .dtype = io->dtype,
        .dtype_c = io->dtype,
    };
    trp_xent_args xent = {
        .rows = h.m,
        .vocabulary = h.vocabulary,
        .logits = h.logits,
        .targets = io->targets,
        .losses = io->losses,
        .dlogits = io->training ? h.logits : NULL,
        .scale = io->loss_scale,
        .ignore_index = TRP_IGNORE,
        .dtype = io->dtype,
    };
    trp_code code = trpi_norm_forward(&h.lnf, io->x, io->params[TRPI_GPT2_LNF_W],
                                      io->params[TRPI_GPT2_LNF_B], err);
    if (!code) {
        code = trp_op_matmul(io->device, &product, err);
    }
    return code ? code : trp_op_xent(io->device, &xent, err);
}

static trp_code head_backward(const void *state, const trp_unit_io *io, trp_error *err) {
    trpi_carver saved = {.base = io->saved}, scratch = {.base = io->scratch};
    head h = head_of(state, io, &saved, &scratch);
    trp_matmul_args by_table = {
        .m = h.vocabulary,
        .n = h.width,
        .k = h.m,
        .a = h.logits,
        .trans_a = true,
        .b = h.lnf.y,
        .c = io->grads[TRPI_GPT2_LM_HEAD],
        .accumulate = true,
        .dtype = io->dtype,
        .dtype_c = TRP_F32,
    };
    trp_matmul_args by_norm = {
        .m = h.m,
        .n = h.width,
        .k = h.vocabulary,
        .a = h.logits,
        .b = io->params[TRPI_GPT2_LM_HEAD],
        .c = h.dnorm,
        .dtype = io->dtype,
        .dtype_c = io->dtype,
    };
    /* The norm's backward adds to dx, and there is no residual here. */
    trp_fill_args zero = {.y = io->dx,
                          .bytes = (size_t)(h.m * h.width) * trp_dtype_size(io->dtype)};
    trp_code code = trp_op_matmul(io->device, &by_table, err);
    if (!code) {
        code = trp_op_matmul(io->device, &by_norm, err);
    }
    if (!code) {
        code = trp_op_fill(io->device, &zero, err);
    }
    if (!code) {
        code = trpi_norm_backward(&h.lnf, h.dnorm, io->x, io->params[TRPI_GPT2_LNF_W], io->dx,
                                  io->grads[TRPI_GPT2_LNF_W], io->grads[TRPI_GPT2_LNF_B], err);
    }
    return code;
}

const trp_unit_type trpi_gpt2_head = {
    .name = "gpt2_head",
    .sizes = head_sizes,
    .forward = head_forward,
    .backward = head_backward,
    .free = free,
};
