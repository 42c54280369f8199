#include "actors/proc/client_resources.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define UNIT 10000
#define AMOUNT_MAX 1e12
#define NAME_MAX_BYTES 128
#define MIB (1024.0 * 1024.0)

static trp_code to_fixed(const char *name, double amount, int64_t *ret_amount, trp_error *err) {
    if (!isfinite(amount) || amount < 0 || amount > AMOUNT_MAX) {
        return trpi_fail(err, TRP_EINVALID, "%s: %g is not an amount; use a number from 0 to %g",
                         name, amount, AMOUNT_MAX);
    }
    double scaled = amount * UNIT;
    double rounded = nearbyint(scaled);
    /* 0.1 is no binary fraction: what is off by less than a double can tell is what was meant. */
    if (fabs(scaled - rounded) > 1e-6 * fmax(1.0, scaled * 1e-6)) {
        return trpi_fail(err, TRP_EINVALID, "%s: %.10g is finer than 0.0001; round it", name,
                         amount);
    }
    *ret_amount = (int64_t)rounded;
    return TRP_OK;
}

static trp_code check_gpus(double gpus, trp_error *err) {
    if (gpus > 1 && gpus != floor(gpus)) {
        return trpi_fail(
            err, TRP_EINVALID,
            "gpus: %g: a share of a GPU must fit on one; ask for a whole number or for "
            "at most 1",
            gpus);
    }
    return TRP_OK;
}

static trp_code check_name(const trp_bundle *bundle, size_t index, trp_error *err) {
    const char *name = bundle->resources[index].name;
    if (name == NULL || name[0] == '\0' || strlen(name) > NAME_MAX_BYTES) {
        return trpi_fail(err, TRP_EINVALID, "resources[%zu]: its name must have 1 to %d bytes",
                         index, NAME_MAX_BYTES);
    }
    static const char *const fields[][2] = {
        {"cpu", "cpus"}, {"gpu", "gpus"}, {"memory", "memory_bytes"}};
    for (size_t i = 0; i < TRPI_COUNTOF(fields); i++) {
        if (strcmp(name, fields[i][0]) == 0) {
            return trpi_fail(err, TRP_EINVALID, "resources[%zu]: \"%s\" has a field of its own: %s",
                             index, name, fields[i][1]);
        }
    }
    for (size_t i = 0; i < index; i++) {
        if (strcmp(name, bundle->resources[i].name) == 0) {
            return trpi_fail(err, TRP_EINVALID, "resources[%zu]: \"%s\" is there twice", index,
                             name);
        }
    }
    return TRP_OK;
}

static void add(trpi_resource *list, size_t *count, const char *name, int64_t amount) {
    if (amount > 0) {
        list[(*count)++] = (trpi_resource){.name = name, .amount = amount};
    }
}

trp_code trpi_resources_of(const trp_bundle *bundle, trpi_resource **ret_list, size_t *ret_count,
                           trp_error *err) {
    trpi_resource *list = trpi_alloc((bundle->resource_count + 3) * sizeof(*list));
    size_t count = 0;
    int64_t amount = 0;
    trp_code code = to_fixed("cpus", bundle->cpus, &amount, err);
    if (code != TRP_OK) {
        goto out;
    }
    add(list, &count, "cpu", amount);
    code = check_gpus(bundle->gpus, err);
    if (code == TRP_OK) {
        code = to_fixed("gpus", bundle->gpus, &amount, err);
    }
    if (code != TRP_OK) {
        goto out;
    }
    add(list, &count, "gpu", amount);
    /* Counted in MiB; rounded up, so that what is held is never less than what was asked for. */
    add(list, &count, "memory", (int64_t)ceil((double)bundle->memory_bytes / MIB * UNIT));
    for (size_t i = 0; i < bundle->resource_count && code == TRP_OK; i++) {
        code = check_name(bundle, i, err);
        if (code == TRP_OK) {
            code = to_fixed(bundle->resources[i].name, bundle->resources[i].amount, &amount, err);
        }
        if (code == TRP_OK) {
            add(list, &count, bundle->resources[i].name, amount);
        }
    }
out:
    if (code != TRP_OK) {
        free(list);
        return code;
    }
    *ret_list = list;
    *ret_count = count;
    return TRP_OK;
}
