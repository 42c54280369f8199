/* embedding.c: rows of two tables summed; and the scatter back. Several positions may add to one
 * row of the token table, so backward splits columns, not tokens: each column's sum is then taken
 * by one thread in the order of the tokens. */
#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include "trainer/device/cpu/rows.h"

trp_code trpi_cpu_embedding(trp_device *device, const trp_embedding_args *args, trp_error *err) {
    enum { PIECE = 1024 };
    trpi_cpu *cpu = trpi_cpu_of(device);
    int64_t rows = args->batch * args->time, n = args->columns;
    trp_code code = trpi_cpu_check_ids("tokens", args->tokens, rows, args->vocabulary, NULL, err);
    if (code) {
        return code;
    }
    int threads = trpi_cpu_threads(cpu, rows * n);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float token_row[PIECE], position_row[PIECE], sum[PIECE];
        for (int64_t j = 0; j < n; j += PIECE) {
            int64_t length = TRPI_MIN(PIECE, n - j);
            const float *token = trpi_row_load(args->token_table, args->tokens[i] * n + j, length,
                                               args->dtype, token_row);
            if (!args->position_table) {
                trpi_row_write(args->out, i * n + j, length, args->dtype, token);
                continue;
            }
            const float *position = trpi_row_load(args->position_table, i % args->time * n + j,
                                                  length, args->dtype, position_row);
#pragma omp simd
            for (int64_t l = 0; l < length; l++) {
                sum[l] = token[l] + position[l];
            }
            trpi_row_write(args->out, i * n + j, length, args->dtype, sum);
        }
    }
    return TRP_OK;
}

/* Columns `from` to `from + length` of every row. */
static void backward_strip(const trp_embedding_backward_args *args, int64_t from, int64_t length,
                           float *row) {
    int64_t n = args->columns;
    for (int64_t i = 0; i < args->batch * args->time; i++) {
        const float *dout = trpi_row_load(args->dout, i * n + from, length, args->dtype, row);
        float *token = args->dtoken_table_add + args->tokens[i] * n + from;
#pragma omp simd
        for (int64_t j = 0; j < length; j++) {
            token[j] += dout[j];
        }
        if (args->dposition_table_add) {
            float *position = args->dposition_table_add + i % args->time * n + from;
#pragma omp simd
            for (int64_t j = 0; j < length; j++) {
                position[j] += dout[j];
            }
        }
    }
}

trp_code trpi_cpu_embedding_backward(trp_device *device, const trp_embedding_backward_args *args,
                                     trp_error *err) {
    enum { STRIP = 64 };
    trpi_cpu *cpu = trpi_cpu_of(device);
    int64_t rows = args->batch * args->time;
    trp_code code = trpi_cpu_check_ids("tokens", args->tokens, rows, args->vocabulary, NULL, err);
    if (code) {
        return code;
    }
    int threads = trpi_cpu_threads(cpu, rows * args->columns);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t j = 0; j < args->columns; j += STRIP) {
        float row[STRIP];
        backward_strip(args, j, TRPI_MIN(STRIP, args->columns - j), row);
    }
    return TRP_OK;
}
