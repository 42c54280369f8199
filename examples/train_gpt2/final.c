#include "examples/train_gpt2/final.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

trp_code final_write(rank_state *r, const char *dir, const trp_step_stats *stats, trp_error *err) {
    char hex[33], path[4096];
    trp_code code = trp_zero_weights_hash(r->engine, hex, err);
    if (code != TRP_OK || trp_session_rank(r->session) != 0) {
        return code;
    }
    snprintf(path, sizeof(path), "%s/final.txt", dir);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return fail(err, TRP_EIO, path, strerror(errno));
    }
    int written = fprintf(file, "%s %.17g %" PRIu64 "\n", hex, stats->loss, stats->step);
    if (fclose(file) != 0 || written < 0) {
        return fail(err, TRP_EIO, path, "cannot be written");
    }
    return TRP_OK;
}

bool final_read(const char *checkpoint, final_state *ret_final) {
    char path[4096];
    if (checkpoint == NULL) {
        return false;
    }
    snprintf(path, sizeof(path), "%s/final.txt", checkpoint);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        return false;
    }
    int got =
        fscanf(file, "%32s %lf %" SCNu64, ret_final->weights, &ret_final->loss, &ret_final->step);
    fclose(file);
    return got == 3;
}
