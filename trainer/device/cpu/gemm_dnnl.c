/* gemm_dnnl.c: matrix products by oneDNN's C API (2.x).
 *
 * oneDNN picks blocking and the order of sums by the number of threads it finds. So it never gets
 * more than one here: a product is cut into parts by its shape, and each part is a product of its
 * own on one thread. That costs nothing (a part is as fast per thread as the whole) and makes
 * results independent of the number of threads.
 *
 * A made product (a "primitive": code generated for one shape) takes 0.3 ms to make and
 * microseconds to run, so they are kept by shape. Scratch memory is ours: oneDNN's own belongs to
 * the thread that made the primitive. */
#include "trainer/device/cpu/gemm.h"

#include "core/base/base.h"

#ifdef TROUPE_HAVE_DNNL

#include <dnnl.h>
#include <stdlib.h>
#include <string.h>

#if DNNL_VERSION_MAJOR != 2
#error "this file is written for oneDNN 2.x; configure without it for the plain C products"
#endif

enum { BUCKETS = 256, KEPT_MAX = 1024 };

/* What makes two products the same code. No padding between fields: it is hashed as bytes. */
struct key {
    int64_t m, n, k, lda, ldb, ldc;
    uint32_t trans_a, trans_b, accumulate, bias;
    uint32_t dtype, dtype_c, alpha_bits, unused;
};

struct product {
    struct key key;
    struct product *next;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t a, b, c, bias, scratch;
    bool
        bias_last; /* added by a post-operation, since oneDNN's bias would be multiplied by alpha */
    size_t scratch_bytes;
};

struct trpi_gemm {
    dnnl_engine_t engine;
    dnnl_stream_t *streams; /* one per thread */
    struct product *buckets[BUCKETS];
    int kept;
};

#define TRY(call)                                                                                  \
    do {                                                                                           \
        status = (call);                                                                           \
        if (status != dnnl_success) {                                                              \
            goto out;                                                                              \
        }                                                                                          \
    } while (0)

static trp_code report(dnnl_status_t status, const char *what, trp_error *err) {
    if (status == dnnl_success) {
        return TRP_OK;
    }
    trp_code code = status == dnnl_out_of_memory ? TRP_ENOMEM : TRP_EDEVICE;
    return trpi_fail(err, code, "oneDNN cannot %s (status %d)", what, (int)status);
}

/* ---- Opening ---- */

trp_code trpi_gemm_open(trpi_cpu *cpu, trp_error *err) {
    dnnl_status_t status = dnnl_out_of_memory;
    cpu->gemm = calloc(1, sizeof(*cpu->gemm));
    if (!cpu->gemm) {
        goto out;
    }
    cpu->gemm->streams = calloc((size_t)cpu->threads, sizeof(dnnl_stream_t));
    if (!cpu->gemm->streams) {
        goto out;
    }
    TRY(dnnl_engine_create(&cpu->gemm->engine, dnnl_cpu, 0));
    for (int i = 0; i < cpu->threads; i++) {
        TRY(dnnl_stream_create(&cpu->gemm->streams[i], cpu->gemm->engine,
                               dnnl_stream_default_flags));
    }
out:
    if (status) {
        trpi_gemm_close(cpu);
    }
    return report(status, "start", err);
}

static void forget_products(struct trpi_gemm *gemm) {
    for (int i = 0; i < BUCKETS; i++) {
        while (gemm->buckets[i]) {
            struct product *product = gemm->buckets[i];
            gemm->buckets[i] = product->next;
            dnnl_primitive_destroy(product->primitive);
            free(product);
        }
    }
    gemm->kept = 0;
}

void trpi_gemm_close(trpi_cpu *cpu) {
    struct trpi_gemm *gemm = cpu->gemm;
    if (!gemm) {
        return;
    }
    forget_products(gemm);
    for (int i = 0; gemm->streams && i < cpu->threads; i++) {
        if (gemm->streams[i]) {
            dnnl_stream_destroy(gemm->streams[i]);
        }
    }
    if (gemm->engine) {
        dnnl_engine_destroy(gemm->engine);
    }
    free(gemm->streams);
    free(gemm);
    cpu->gemm = NULL;
}

/* Instruction sets are bit sets: a larger one contains the smaller one's bits. */
bool trpi_gemm_native(const trpi_cpu *cpu, trp_dtype dtype) {
    unsigned have = (unsigned)dnnl_get_effective_cpu_isa();
    unsigned need = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    return dtype == TRP_F32 || (dtype == TRP_BF16 && cpu->gemm && (have & need) == need);
}

/* ---- Making a product ---- */

static dnnl_data_type_t data_type(uint32_t dtype) {
    return dtype == TRP_BF16 ? dnnl_bf16 : dnnl_f32;
}

static dnnl_status_t describe(dnnl_memory_desc_t *desc, int64_t rows, int64_t columns,
                              int64_t leading, bool transposed, uint32_t dtype) {
    dnnl_dims_t dims = {rows, columns};
    dnnl_dims_t strides = {transposed ? 1 : leading, transposed ? leading : 1};
    return dnnl_memory_desc_init_by_strides(desc, 2, dims, data_type(dtype), strides);
}

static dnnl_status_t describe_attributes(const struct key *key, dnnl_primitive_attr_t attributes,
                                         dnnl_post_ops_t after) {
    dnnl_status_t status = dnnl_success;
    float alpha;
    memcpy(&alpha, &key->alpha_bits, sizeof(alpha));
    TRY(dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user));
    if (alpha != 1.0f) {
        TRY(dnnl_primitive_attr_set_output_scales(attributes, 1, 0, &alpha));
    }
    if (key->accumulate) {
        TRY(dnnl_post_ops_append_sum(after, 1.0f));
    }
    TRY(dnnl_primitive_attr_set_post_ops(attributes, after));
out:
    return status;
}

static dnnl_status_t make_primitive(const struct trpi_gemm *gemm, struct product *p) {
    const struct key *key = &p->key;
    dnnl_status_t status = dnnl_success;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_post_ops_t after = NULL;
    dnnl_primitive_desc_t desc = NULL;
    dnnl_matmul_desc_t operation;
    TRY(describe(&p->a, key->m, key->k, key->lda, key->trans_a, key->dtype));
    TRY(describe(&p->b, key->k, key->n, key->ldb, key->trans_b, key->dtype));
    TRY(describe(&p->c, key->m, key->n, key->ldc, false, key->dtype_c));
    TRY(describe(&p->bias, 1, key->n, key->n, false, key->dtype));
    TRY(dnnl_primitive_attr_create(&attributes));
    TRY(dnnl_post_ops_create(&after));
    TRY(describe_attributes(key, attributes, after));
    TRY(dnnl_matmul_desc_init(&operation, &p->a, &p->b, key->bias ? &p->bias : NULL, &p->c));
    TRY(dnnl_primitive_desc_create(&desc, &operation, attributes, gemm->engine, NULL));
    p->scratch = *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    p->scratch_bytes = dnnl_memory_desc_get_size(&p->scratch);
    TRY(dnnl_primitive_create(&p->primitive, desc));
out:
    if (desc) {
        dnnl_primitive_desc_destroy(desc);
    }
    if (after) {
        dnnl_post_ops_destroy(after);
    }
    if (attributes) {
        dnnl_primitive_attr_destroy(attributes);
    }
    return status;
}

static struct product **find_bucket(struct trpi_gemm *gemm, const struct key *key) {
    uint64_t words[sizeof(*key) / 8], hash = 0;
    memcpy(words, key, sizeof(*key));
    for (size_t i = 0; i < TRPI_COUNTOF(words); i++) {
        hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return &gemm->buckets[hash % BUCKETS];
}

/* The product for parts of m x n. The caller has set OpenMP's number of threads to 1. */
static trp_code find_product(struct trpi_gemm *gemm, const trp_matmul_args *args, int64_t m,
                             int64_t n, struct product **ret_product, trp_error *err) {
    struct key key = {
        .m = m,
        .n = n,
        .k = args->k,
        .lda = args->lda,
        .ldb = args->ldb,
        .ldc = args->ldc,
        .trans_a = args->trans_a,
        .trans_b = args->trans_b,
        .accumulate = args->accumulate,
        .bias = args->bias != NULL,
        .dtype = args->dtype,
        .dtype_c = args->dtype_c,
    };
    memcpy(&key.alpha_bits, &args->alpha, sizeof(key.alpha_bits));
    struct product **bucket = find_bucket(gemm, &key);
    for (struct product *p = *bucket; p; p = p->next) {
        if (!memcmp(&p->key, &key, sizeof(key))) {
            *ret_product = p;
            return TRP_OK;
        }
    }
    struct product *fresh = calloc(1, sizeof(*fresh));
    if (!fresh) {
        return report(dnnl_out_of_memory, "make a product", err);
    }
    fresh->key = key;
    dnnl_status_t status = make_primitive(gemm, fresh);
    if (status) {
        free(fresh);
        return report(status, "make a product", err);
    }
    fresh->next = *bucket;
    *bucket = fresh;
    gemm->kept++;
    *ret_product = fresh;
    return TRP_OK;
}

/* ---- Running ---- */

/* Parts differ only at the right and the lower edge, so four products serve them all. */
struct products {
    struct product *at[2][2]; /* [last row][last column] */
};

static trp_code find_products(struct trpi_gemm *gemm, const trp_matmul_args *args,
                              const trpi_gemm_grid *grid, struct products *ret, size_t *ret_scratch,
                              trp_error *err) {
    int64_t last_m = args->m - (grid->down - 1) * grid->tile_m;
    int64_t last_n = args->n - (grid->across - 1) * grid->tile_n;
    size_t scratch = 0;
    if (gemm->kept > KEPT_MAX) {
        forget_products(gemm);
    }
    for (int row = grid->down > 1 ? 0 : 1; row < 2; row++) {
        for (int column = grid->across > 1 ? 0 : 1; column < 2; column++) {
            struct product *p = NULL;
            trp_code code = find_product(gemm, args, row ? last_m : grid->tile_m,
                                         column ? last_n : grid->tile_n, &p, err);
            if (code) {
                return code;
            }
            ret->at[row][column] = p;
            scratch = TRPI_MAX(scratch, p->scratch_bytes);
        }
    }
    *ret_scratch = scratch;
    return TRP_OK;
}

static dnnl_status_t run_part(const struct trpi_gemm *gemm, const struct product *p,
                              const trp_matmul_args *args, const trpi_gemm_part *part,
                              void *scratch) {
    int64_t a = part->batch * args->stride_a + part->i * (args->trans_a ? 1 : args->lda);
    int64_t b = part->batch * args->stride_b + part->j * (args->trans_b ? args->ldb : 1);
    int64_t c = part->batch * args->stride_c + part->i * args->ldc + part->j;
    size_t size = args->dtype == TRP_F32 ? 4 : 2, size_c = args->dtype_c == TRP_F32 ? 4 : 2;
    const char *bias = args->bias ? (const char *)args->bias + part->j * (int64_t)size : NULL;
    /* oneDNN's handles are not const, though it only writes to C and scratch. */
    const struct {
        int argument;
        const dnnl_memory_desc_t *desc;
        const void *data;
    } operands[] = {
        {DNNL_ARG_SRC, &p->a, (const char *)args->a + a * (int64_t)size},
        {DNNL_ARG_WEIGHTS, &p->b, (const char *)args->b + b * (int64_t)size},
        {DNNL_ARG_DST, &p->c, (char *)args->c + c * (int64_t)size_c},
        {DNNL_ARG_SCRATCHPAD, &p->scratch, scratch},
        {DNNL_ARG_BIAS, &p->bias, bias},
    };
    int count = args->bias ? 5 : 4, made = 0;
    dnnl_exec_arg_t list[5];
    dnnl_status_t status = dnnl_success;
    for (; made < count; made++) {
        list[made].arg = operands[made].argument;
        TRY(dnnl_memory_create(&list[made].memory, operands[made].desc, gemm->engine,
                               (void *)(uintptr_t)operands[made].data));
    }
    TRY(dnnl_primitive_execute(p->primitive, gemm->streams[omp_get_thread_num()], count, list));
    TRY(dnnl_stream_wait(gemm->streams[omp_get_thread_num()]));
out:
    while (made > 0) {
        dnnl_memory_destroy(list[--made].memory);
    }
    return status;
}

/* Parts enough for many cores, but none so small that packing its operands shows: a product of
 * 192 x 192 x 1024 in bf16 loses half its speed when it is cut in four. */
static trpi_gemm_grid choose_grid(const trp_matmul_args *args) {
    const int64_t parts_wanted = 32, work_min = 64 << 20, side_min = 64;
    int64_t m = TRPI_MIN(args->m, 256), n = TRPI_MIN(args->n, 256);
    trpi_gemm_grid grid = trpi_gemm_grid_of(args, m, n);
    while (grid.parts < parts_wanted && m * n * args->k >= work_min && TRPI_MAX(m, n) > side_min) {
        if (m >= n) {
            m = trpi_ceil_div(m, 2);
        } else {
            n = trpi_ceil_div(n, 2);
        }
        grid = trpi_gemm_grid_of(args, m, n);
    }
    return grid;
}

static trp_code multiply(trpi_cpu *cpu, const trp_matmul_args *args, trp_error *err) {
    trpi_gemm_grid grid = choose_grid(args);
    int threads = trpi_cpu_threads(cpu, args->batch * args->m * args->n * args->k / 16);
    struct products products;
    size_t each;
    float *scratch = NULL;
    trp_code code = find_products(cpu->gemm, args, &grid, &products, &each, err);
    if (!code) {
        each = (each + 63) / 64 * 64;
        code = trpi_cpu_scratch(cpu, (size_t)threads * each, &scratch, err);
    }
    if (code) {
        return code;
    }
    dnnl_status_t status = dnnl_success;
#pragma omp parallel for num_threads(threads) schedule(dynamic) reduction(max : status)
    for (int64_t index = 0; index < grid.parts; index++) {
        trpi_gemm_part part = trpi_gemm_part_of(args, &grid, index);
        bool last_row = part.i + part.m == args->m, last_column = part.j + part.n == args->n;
        char *own = (char *)scratch + (size_t)omp_get_thread_num() * each;
        dnnl_status_t got =
            run_part(cpu->gemm, products.at[last_row][last_column], args, &part, own);
        status = got > status ? got : status;
    }
    return report(status, "multiply", err);
}

trp_code trpi_gemm_library(trpi_cpu *cpu, const trp_matmul_args *args, trp_error *err) {
    int before = omp_get_max_threads();
    omp_set_num_threads(1); /* of this thread, and of those that it starts */
    trp_code code = multiply(cpu, args, err);
    omp_set_num_threads(before);
    return code;
}

#else

trp_code trpi_gemm_open(trpi_cpu *cpu, trp_error *err) {
    return TRP_OK;
}

void trpi_gemm_close(trpi_cpu *cpu) {
}

bool trpi_gemm_native(const trpi_cpu *cpu, trp_dtype dtype) {
    return dtype == TRP_F32;
}

trp_code trpi_gemm_library(trpi_cpu *cpu, const trp_matmul_args *args, trp_error *err) {
    return trpi_fail(err, TRP_EUNSUPPORTED, "this build has no oneDNN");
}

#endif
