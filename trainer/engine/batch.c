/* batch.c: the batch triple, train = micro * accumulation * world, as DeepSpeed resolves it. */
#include "trainer/engine/config.h"

/* "-" for what was not given, so that a message shows what the user wrote. */
static void show(char out[32], bool given, int64_t value) {
    if (given) {
        trpi_format(out, 32, "%lld", (long long)value);
    } else {
        trpi_format(out, 32, "not given");
    }
}

static trp_code refuse(const trpi_batch_triple *given, int world, const char *why, trp_error *err) {
    char train[32], micro[32], accumulation[32];
    show(train, given->has_train, given->train);
    show(micro, given->has_micro, given->micro);
    show(accumulation, given->has_accumulation, given->accumulation);
    return trpi_fail(err, TRP_EINVALID,
                     "%s (train_batch_size %s, train_micro_batch_size_per_gpu %s, "
                     "gradient_accumulation_steps %s, world size %d)",
                     why, train, micro, accumulation, world);
}

trp_code trpi_batch_resolve(trpi_batch_triple *triple, int world, trp_error *err) {
    trpi_batch_triple t = *triple;
    if ((t.has_train && t.train < 1) || (t.has_micro && t.micro < 1) ||
        (t.has_accumulation && t.accumulation < 1)) {
        return refuse(triple, world, "a batch size is below 1", err);
    }
    if (!t.has_train && !t.has_micro) {
        return refuse(triple, world,
                      "train_batch_size or train_micro_batch_size_per_gpu must be given", err);
    }
    /* Far above any use, and small enough that no product below overflows. */
    const int64_t limit = 1 << 30;
    if (t.train > limit || t.micro > limit || t.accumulation > limit) {
        return refuse(triple, world, "a batch size is above 2^30", err);
    }
    if (!t.has_accumulation) {
        t.accumulation = t.has_train && t.has_micro ? t.train / t.micro / world : 1;
    }
    if (!t.has_micro) {
        t.micro = t.train / t.accumulation / world;
    }
    if (!t.has_train) {
        if (t.micro > limit / t.accumulation / world) {
            return refuse(triple, world, "the batch of a step is above 2^30", err);
        }
        t.train = t.micro * t.accumulation * world;
    }
    if (t.micro < 1 || t.accumulation < 1 || t.train / t.micro / t.accumulation != world ||
        t.train != t.micro * t.accumulation * world) {
        return refuse(triple, world,
                      "train_batch_size must be train_micro_batch_size_per_gpu * "
                      "gradient_accumulation_steps * world size",
                      err);
    }
    t.has_train = t.has_micro = t.has_accumulation = true;
    *triple = t;
    return TRP_OK;
}
