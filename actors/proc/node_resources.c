#include "actors/proc/node_resources.h"

#include <math.h>
#include <string.h>

#include "core/sys/host.h"

#define UNIT 10000.0
#define AMOUNT_MAX 1e12 /* in units; far below what a double counts exactly */
#define MIB ((uint64_t)1 << 20)

static trp_code fixed_point(const char *name, double amount, int64_t *ret_amount, trp_error *err) {
    double units = amount * UNIT;
    double whole = nearbyint(units);
    if (!(amount >= 0) || !(units <= AMOUNT_MAX) || fabs(units - whole) > 1e-6 * fmax(1, whole)) {
        return trpi_fail(err, TRP_EINVALID,
                         "resource %s=%g: amounts are multiples of 0.0001, from 0 to 100000000",
                         name, amount);
    }
    *ret_amount = (int64_t)whole;
    return TRP_OK;
}

static trp_code add(trpi_node_resources *r, const char *name, double amount, trp_error *err) {
    int64_t fixed = 0;
    trp_code code = fixed_point(name, amount, &fixed, err);
    if (code != TRP_OK || fixed == 0) {
        return code;
    }
    if (r->count == TRPI_RESOURCES_MAX) {
        return trpi_fail(err, TRP_EINVALID, "a node has at most %d resources", TRPI_RESOURCES_MAX);
    }
    r->list[r->count++] = (trpi_resource){.name = name, .amount = fixed};
    return TRP_OK;
}

static trp_code add_devices(const trpi_node_options *options, trpi_node_resources *r,
                            trp_error *err) {
    if (options->gpus < 0) {
        r->device_count = (size_t)trpi_host_gpus(r->device_ids, TRPI_DEVICES_MAX);
    } else if (options->gpus != floor(options->gpus) || options->gpus > TRPI_DEVICES_MAX) {
        return trpi_fail(err, TRP_EINVALID, "resource gpu=%g: a node has 0 to %d whole gpus",
                         options->gpus, TRPI_DEVICES_MAX);
    } else {
        r->device_count = (size_t)options->gpus;
        for (size_t i = 0; i < r->device_count; i++) {
            trpi_format(r->device_ids[i], sizeof r->device_ids[i], "%zu", i);
        }
    }
    for (size_t i = 0; i < r->device_count; i++) {
        r->devices[i].value = r->device_ids[i];
    }
    return add(r, "gpu", (double)r->device_count, err);
}

static trp_code add_customs(const trpi_node_options *options, trpi_node_resources *r,
                            trp_error *err) {
    for (size_t i = 0; i < options->resource_count; i++) {
        const char *name = options->resources[i].name;
        if (!name || !*name || strcmp(name, "cpu") == 0 || strcmp(name, "gpu") == 0 ||
            strcmp(name, "memory") == 0) {
            return trpi_fail(err, TRP_EINVALID,
                             "resource \"%s\": cpu, gpu and memory have options of their own",
                             name ? name : "");
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(options->resources[k].name, name) == 0) {
                return trpi_fail(err, TRP_EINVALID, "resource %s is given twice", name);
            }
        }
        trp_code code = add(r, name, options->resources[i].amount, err);
        if (code != TRP_OK) {
            return code;
        }
    }
    return TRP_OK;
}

trp_code trpi_node_resources_init(const trpi_node_options *options, trpi_node_resources *r,
                                  trp_error *err) {
    memset(r, 0, sizeof *r);
    double cpus = options->cpus < 0 ? trpi_host_cpus() : options->cpus;
    uint64_t memory =
        options->memory_bytes ? options->memory_bytes : trpi_host_memory_bytes() / 10 * 7;
    trp_code code = add(r, "cpu", cpus, err);
    if (code == TRP_OK) {
        code = add_devices(options, r, err);
    }
    if (code == TRP_OK) {
        code = add(r, "memory", (double)(memory / MIB), err);
    }
    return code == TRP_OK ? add_customs(options, r, err) : code;
}
