/* gemm_blocked.c: matrix products in plain C. C is cut into tiles; a tile's parts of A and B are
 * packed, a stretch of k at a time, into panels that the register block reads in order (Goto, van
 * de Geijn 2008, "Anatomy of high-performance matrix multiplication"). */
#include "core/base/base.h"
#include "trainer/device/cpu/gemm.h"
#include "trainer/device/cpu/rows.h"
#include "trainer/device/cpu/tile.h"

enum {
    TILE_M = 128,
    TILE_N = 256,
    TILE_K = 256,
    PANEL_M = TRPI_TILE_ROWS,
    PANEL_N = 2 * TRPI_TILE_COLUMNS,
    PACKED_A = TILE_M * TILE_K,
    PACKED_B = TILE_N * TILE_K,
    PRODUCT = TILE_M * TILE_N,
    LINE = TILE_K, /* a loaded row: TILE_K or TILE_N elements */
    PER_THREAD = PACKED_A + PACKED_B + PRODUCT + LINE,
};
_Static_assert(TILE_K >= TILE_N, "a loaded row fits in LINE");

/* One operand's piece: `lines` rows of what lies in memory, `length` contiguous elements in each.
 */
struct piece {
    const void *data;
    int64_t at, leading, lines, length;
    trp_dtype dtype;
};

/* Packs so that the element of line i, place j goes to panel i / width, depth j: for an operand
 * whose memory rows run along k. Missing lines of the last panel become zeros. */
static void pack_lines(const struct piece *p, int64_t width, float *line, float *packed) {
    for (int64_t i = 0; i < trpi_round_up(p->lines, width); i++) {
        float *to = packed + i / width * width * p->length + i % width;
        if (i >= p->lines) {
            for (int64_t j = 0; j < p->length; j++) {
                to[j * width] = 0.0f;
            }
            continue;
        }
        const float *from =
            trpi_row_load(p->data, p->at + i * p->leading, p->length, p->dtype, line);
        for (int64_t j = 0; j < p->length; j++) {
            to[j * width] = from[j];
        }
    }
}

/* The same for an operand whose memory rows run across k: line i is depth i of every panel. */
static void pack_across(const struct piece *p, int64_t width, float *line, float *packed) {
    for (int64_t i = 0; i < p->lines; i++) {
        const float *from =
            trpi_row_load(p->data, p->at + i * p->leading, p->length, p->dtype, line);
        for (int64_t j = 0; j < p->length; j += width) {
            float *to = packed + j * p->lines + i * width;
            int64_t valid = TRPI_MIN(width, p->length - j);
            for (int64_t l = 0; l < width; l++) {
                to[l] = l < valid ? from[j + l] : 0.0f;
            }
        }
    }
}

static void pack_a(const trp_matmul_args *g, const trpi_gemm_part *t, int64_t k, int64_t depth,
                   float *line, float *packed) {
    struct piece p = {.data = g->a, .leading = g->lda, .dtype = g->dtype};
    p.at = t->batch * g->stride_a + (g->trans_a ? k * g->lda + t->i : t->i * g->lda + k);
    p.lines = g->trans_a ? depth : t->m;
    p.length = g->trans_a ? t->m : depth;
    (g->trans_a ? pack_across : pack_lines)(&p, PANEL_M, line, packed);
}

static void pack_b(const trp_matmul_args *g, const trpi_gemm_part *t, int64_t k, int64_t depth,
                   float *line, float *packed) {
    struct piece p = {.data = g->b, .leading = g->ldb, .dtype = g->dtype};
    p.at = t->batch * g->stride_b + (g->trans_b ? t->j * g->ldb + k : k * g->ldb + t->j);
    p.lines = g->trans_b ? t->n : depth;
    p.length = g->trans_b ? depth : t->n;
    (g->trans_b ? pack_lines : pack_across)(&p, PANEL_N, line, packed);
}

static void multiply_panels(const trpi_gemm_part *t, int64_t depth, bool accumulate, const float *a,
                            const float *b, float *product) {
    for (int64_t j = 0; j < t->n; j += PANEL_N) {
        for (int64_t i = 0; i < t->m; i += PANEL_M) {
            trpi_tile_multiply(&(trpi_tile){
                .m = PANEL_M,
                .n = PANEL_N,
                .k = depth,
                .a = a + i * depth,
                .a_row = 1,
                .a_column = PANEL_M,
                .b = b + j * depth,
                .b_row = PANEL_N,
                .c = product + i * TILE_N + j,
                .c_row = TILE_N,
                .accumulate = accumulate,
            });
        }
    }
}

/* Rounds once: alpha, bias and what C held are added in fp32. */
static void store_tile(const trp_matmul_args *g, const trpi_gemm_part *t, float *product,
                       float *line) {
    for (int64_t i = 0; i < t->m; i++) {
        float *row = product + i * TILE_N;
        int64_t at = t->batch * g->stride_c + (t->i + i) * g->ldc + t->j;
        for (int64_t j = 0; j < t->n; j++) {
            row[j] *= g->alpha;
        }
        if (g->bias) {
            const float *bias = trpi_row_load(g->bias, t->j, t->n, g->dtype, line);
            for (int64_t j = 0; j < t->n; j++) {
                row[j] += bias[j];
            }
        }
        if (g->accumulate) {
            const float *old = trpi_row_load(g->c, at, t->n, g->dtype_c, line);
            for (int64_t j = 0; j < t->n; j++) {
                row[j] += old[j];
            }
        }
        trpi_row_write(g->c, at, t->n, g->dtype_c, row);
    }
}

static void compute_tile(const trp_matmul_args *g, const trpi_gemm_part *t, float *scratch) {
    float *a = scratch, *b = a + PACKED_A, *product = b + PACKED_B, *line = product + PRODUCT;
    for (int64_t k = 0; k < g->k; k += TILE_K) {
        int64_t depth = TRPI_MIN(TILE_K, g->k - k);
        pack_a(g, t, k, depth, line, a);
        pack_b(g, t, k, depth, line, b);
        multiply_panels(t, depth, k > 0, a, b, product);
    }
    store_tile(g, t, product, line);
}

trp_code trpi_gemm_blocked(trpi_cpu *cpu, const trp_matmul_args *args, trp_error *err) {
    trpi_gemm_grid grid = trpi_gemm_grid_of(args, TILE_M, TILE_N);
    int threads = trpi_cpu_threads(cpu, args->batch * args->m * args->n * args->k / 16);
    float *scratch;
    size_t bytes = (size_t)threads * PER_THREAD * sizeof(float);
    trp_code code = trpi_cpu_scratch(cpu, bytes, &scratch, err);
    if (code) {
        return code;
    }
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t index = 0; index < grid.parts; index++) {
        trpi_gemm_part part = trpi_gemm_part_of(args, &grid, index);
        compute_tile(args, &part, scratch + (int64_t)omp_get_thread_num() * PER_THREAD);
    }
    return TRP_OK;
}
