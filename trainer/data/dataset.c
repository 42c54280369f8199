/* dataset.c: a text in memory, cut into samples. It is read, not mapped: a file that is changed or
 * cut while the training runs must change neither the training nor kill the process. */
#include <stdlib.h>
#include <troupe/data.h>

#include "core/base/base.h"
#include "core/sys/file.h"

struct trp_dataset {
    trp_buf text;
    int64_t columns, samples;
};

trp_code trp_dataset_open_bytes(const char *path, int64_t columns, trp_dataset **ret_dataset,
                                trp_error *err) {
    if (!path || columns < 1) {
        return trpi_fail(err, TRP_EINVALID, "a dataset needs a path and at least one column");
    }
    trp_dataset *dataset = calloc(1, sizeof *dataset);
    if (!dataset) {
        return trpi_fail(err, TRP_ENOMEM, "%s", path);
    }
    trp_code code = trpi_file_read(path, 0, &dataset->text, err);
    if (code) {
        trp_dataset_close(dataset);
        return trpi_context(err, code, "dataset");
    }
    /* The last token of all is nobody's input, only a target. */
    int64_t tokens = (int64_t)dataset->text.size;
    dataset->columns = columns;
    dataset->samples = tokens > 0 ? (tokens - 1) / columns : 0;
    if (dataset->samples == 0) {
        trp_dataset_close(dataset);
        return trpi_fail(err, TRP_EINVALID,
                         "dataset: %s has %lld bytes, one sample of %lld columns needs %llu", path,
                         (long long)tokens, (long long)columns, (unsigned long long)columns + 1);
    }
    *ret_dataset = dataset;
    return TRP_OK;
}

void trp_dataset_close(trp_dataset *dataset) {
    if (dataset) {
        trp_buf_release(&dataset->text);
        free(dataset);
    }
}

int64_t trp_dataset_samples(const trp_dataset *dataset) {
    return dataset->samples;
}

void trp_dataset_batch(const trp_dataset *dataset, trp_data_position *position, int rank, int world,
                       int64_t rows, int32_t *tokens, int32_t *targets) {
    uint64_t samples = (uint64_t)dataset->samples;
    int64_t columns = dataset->columns;
    TRP_ASSERT(rank >= 0 && rank < world && rows >= 0);
    for (int64_t row = 0; row < rows; row++) {
        uint64_t at = position->sample + (uint64_t)rank * (uint64_t)rows + (uint64_t)row;
        uint64_t epoch = position->epoch + at / samples;
        uint64_t sample = trp_shuffle(position->seed, epoch, samples, at % samples);
        const unsigned char *from = dataset->text.data + sample * (uint64_t)columns;
        for (int64_t i = 0; i < columns; i++) {
            tokens[row * columns + i] = from[i];
            targets[row * columns + i] = from[i + 1];
        }
    }
    uint64_t end = position->sample + (uint64_t)world * (uint64_t)rows;
    position->epoch += end / samples;
    position->sample = end % samples;
}
