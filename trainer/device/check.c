/* check.c: is an operation's argument struct well formed? Knows shapes and pointers, no data. */
#include "core/base/base.h"
#include "trainer/device/device.h"
#include <inttypes.h>
#include <math.h>

/* One field of a struct, as the message names it. A table of these is cheaper to read than the same
 * three lines for every field. */
struct size {
    const char *name;
    int64_t value;
};
struct pointer {
    const char *name;
    const void *value;
};
#define SIZE(field)                                                                                \
    { #field, args->field }
#define POINTER(field)                                                                             \
    { #field, args->field }
#define SIZES(...) check_sizes((struct size[]){__VA_ARGS__, {NULL, 0}}, err)
#define POINTERS(...) check_pointers((struct pointer[]){__VA_ARGS__, {NULL, NULL}}, err)
#define FLAT(...) check_flat(args->count, (struct pointer[]){__VA_ARGS__, {NULL, NULL}}, err)

/* Each size fits in 31 bits, and all of them together in what an index can count. */
static trp_code check_sizes(const struct size *sizes, trp_error *err) {
    int64_t elements = 4; /* bytes of the widest element; INT64_MAX / 4 leaves room for q, k, v */
    for (; sizes->name; sizes++) {
        if (sizes->value < 1 || sizes->value > INT32_MAX) {
            return trpi_fail(err, TRP_EINVALID, "%s is %" PRId64 ", must be 1 to %d", sizes->name,
                             sizes->value, INT32_MAX);
        }
        if (__builtin_mul_overflow(elements, sizes->value, &elements) || elements > INT64_MAX / 4) {
            return trpi_fail(err, TRP_EINVALID, "the shape has more elements than can be counted");
        }
    }
    return TRP_OK;
}

static trp_code check_pointers(const struct pointer *pointers, trp_error *err) {
    for (; pointers->name; pointers++) {
        if (!pointers->value) {
            return trpi_fail(err, TRP_EINVALID, "%s is NULL", pointers->name);
        }
    }
    return TRP_OK;
}

/* Flat operations serve shards, and a rank's shard may be empty. */
static trp_code check_flat(int64_t count, const struct pointer *pointers, trp_error *err) {
    if (count < 0) {
        return trpi_fail(err, TRP_EINVALID, "count is %" PRId64, count);
    }
    return count == 0 ? TRP_OK : check_pointers(pointers, err);
}

static trp_code check_float(trp_dtype dtype, trp_error *err) {
    if (dtype != TRP_F32 && dtype != TRP_BF16 && dtype != TRP_F16) {
        return trpi_fail(err, TRP_EINVALID, "dtype %s is not one to compute in",
                         trp_dtype_name(dtype));
    }
    return TRP_OK;
}

static trp_code check_leading(const char *name, int64_t leading, int64_t columns, trp_error *err) {
    if (leading != 0 && leading < columns) {
        return trpi_fail(err, TRP_EINVALID, "%s is %" PRId64 ", rows have %" PRId64 " elements",
                         name, leading, columns);
    }
    if (leading > INT32_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%s is %" PRId64 ", must fit in 31 bits", name,
                         leading);
    }
    return TRP_OK;
}

/* Matrices of c that overlap would be a race. */
static trp_code check_batch(const trp_matmul_args *args, trp_error *err) {
    if (args->batch < 0 || args->batch > INT32_MAX) {
        return trpi_fail(err, TRP_EINVALID, "batch is %" PRId64, args->batch);
    }
    int64_t ldc = args->ldc ? args->ldc : args->n;
    if (args->batch > 1 && args->stride_c < (args->m - 1) * ldc + args->n) {
        return trpi_fail(err, TRP_EINVALID, "stride_c is %" PRId64 ", matrices of c overlap",
                         args->stride_c);
    }
    if (args->stride_a < 0 || args->stride_b < 0) {
        return trpi_fail(err, TRP_EINVALID, "stride_a or stride_b is negative");
    }
    return TRP_OK;
}

trp_code trpi_check_matmul(const trp_matmul_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(m), SIZE(n), SIZE(k));
    if (!code) {
        code = POINTERS(POINTER(a), POINTER(b), POINTER(c));
    }
    if (!code) {
        code = check_float(args->dtype, err);
    }
    if (!code && args->dtype_c != args->dtype && args->dtype_c != TRP_F32) {
        code = trpi_fail(err, TRP_EINVALID, "dtype_c must be dtype or F32");
    }
    if (!code) {
        code = check_leading("lda", args->lda, args->trans_a ? args->m : args->k, err);
    }
    if (!code) {
        code = check_leading("ldb", args->ldb, args->trans_b ? args->k : args->n, err);
    }
    if (!code) {
        code = check_leading("ldc", args->ldc, args->n, err);
    }
    return code ? code : check_batch(args, err);
}

trp_code trpi_check_layernorm(const trp_layernorm_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(rows), SIZE(columns));
    if (!code) {
        code = POINTERS(POINTER(x), POINTER(weight), POINTER(bias), POINTER(y), POINTER(mean),
                        POINTER(rstd));
    }
    if (!code && !(args->eps >= 0.0f && isfinite(args->eps))) {
        code = trpi_fail(err, TRP_EINVALID, "eps is %g", (double)args->eps);
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_layernorm_backward(const trp_layernorm_backward_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(rows), SIZE(columns));
    if (!code) {
        code = POINTERS(POINTER(dy), POINTER(x), POINTER(weight), POINTER(mean), POINTER(rstd),
                        POINTER(dx_add), POINTER(dweight_add), POINTER(dbias_add));
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_gelu(const trp_gelu_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(x), POINTER(y));
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_gelu_backward(const trp_gelu_backward_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(dy), POINTER(x), POINTER(dx));
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_tanh(const trp_tanh_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(x), POINTER(y));
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_tanh_backward(const trp_tanh_backward_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(dy), POINTER(y), POINTER(dx));
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_dropout(const trp_dropout_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(x), POINTER(y));
    if (!code && !(args->rate >= 0.0f && args->rate < 1.0f)) {
        code = trpi_fail(err, TRP_EINVALID, "rate is %g, must be 0 to less than 1",
                         (double)args->rate);
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_add(const trp_add_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(a), POINTER(b), POINTER(y));
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_column_sum(const trp_column_sum_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(rows), SIZE(columns));
    if (!code) {
        code = POINTERS(POINTER(x), POINTER(out_add));
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_attention(const trp_attention_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(batch), SIZE(time), SIZE(heads), SIZE(head_size));
    if (!code) {
        code = POINTERS(POINTER(qkv), POINTER(out), POINTER(lse));
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_attention_backward(const trp_attention_backward_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(batch), SIZE(time), SIZE(heads), SIZE(head_size));
    if (!code) {
        code = POINTERS(POINTER(dout), POINTER(qkv), POINTER(out), POINTER(lse), POINTER(dqkv));
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_embedding(const trp_embedding_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(batch), SIZE(time), SIZE(columns), SIZE(vocabulary));
    if (!code) {
        code = POINTERS(POINTER(tokens), POINTER(token_table), POINTER(out));
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_embedding_backward(const trp_embedding_backward_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(batch), SIZE(time), SIZE(columns), SIZE(vocabulary));
    if (!code) {
        code = POINTERS(POINTER(tokens), POINTER(dout), POINTER(dtoken_table_add));
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_xent(const trp_xent_args *args, trp_error *err) {
    trp_code code = SIZES(SIZE(rows), SIZE(vocabulary));
    if (!code) {
        code = POINTERS(POINTER(logits), POINTER(targets), POINTER(losses));
    }
    return code ? code : check_float(args->dtype, err);
}

trp_code trpi_check_adamw(const trp_adamw_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(master), POINTER(m), POINTER(v), POINTER(grad));
    if (!code && args->t < 1) {
        code = trpi_fail(err, TRP_EINVALID, "t is %" PRId64 ", steps count from 1", args->t);
    }
    if (!code &&
        !(args->beta1 >= 0.0f && args->beta1 < 1.0f && args->beta2 >= 0.0f && args->beta2 < 1.0f)) {
        code = trpi_fail(err, TRP_EINVALID, "betas are %g and %g, must be 0 to less than 1",
                         (double)args->beta1, (double)args->beta2);
    }
    return code || !args->param ? code : check_float(args->param_dtype, err);
}

trp_code trpi_check_sum_squares(const trp_sum_squares_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(x));
    return code ? code : POINTERS(POINTER(sum_add));
}

trp_code trpi_check_axpy(const trp_axpy_args *args, trp_error *err) {
    return FLAT(POINTER(x), POINTER(y));
}

trp_code trpi_check_cast(const trp_cast_args *args, trp_error *err) {
    trp_code code = FLAT(POINTER(x), POINTER(y));
    if (!code) {
        code = check_float(args->from, err);
    }
    return code ? code : check_float(args->to, err);
}

trp_code trpi_check_fill(const trp_fill_args *args, trp_error *err) {
    return args->bytes && !args->y ? trpi_fail(err, TRP_EINVALID, "y is NULL") : TRP_OK;
}
