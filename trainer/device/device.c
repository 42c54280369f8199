#include "trainer/device/device.h"

#include "core/base/base.h"
#include "trainer/device/cpu/cpu.h"
#include <string.h>

/* A name is "<backend>" or "<backend>:<index>". A backend that this build lacks has a row too, so
 * that asking for it is told from a typing error. */
static const struct backend {
    const char *name;
    trpi_device_open open;
    const char *missing;
} backends[] = {
    {"cpu", trpi_cpu_open, NULL},
    {"cuda", NULL, "this build has no CUDA plug-in"},
};

static const struct {
    const char *name;
    size_t size;
} dtypes[TRP_DTYPE_COUNT] = {
    [TRP_F32] = {"F32", 4},
    [TRP_BF16] = {"BF16", 2},
    [TRP_F16] = {"F16", 2},
    [TRP_I32] = {"I32", 4},
};

size_t trp_dtype_size(trp_dtype dtype) {
    TRP_ASSERT((unsigned)dtype < TRP_DTYPE_COUNT);
    return dtypes[dtype].size;
}

const char *trp_dtype_name(trp_dtype dtype) {
    return (unsigned)dtype < TRP_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

static const struct backend *find_backend(const char *name) {
    size_t length = strcspn(name, ":");
    for (size_t i = 0; i < TRPI_COUNTOF(backends); i++) {
        if (strlen(backends[i].name) == length && !strncmp(backends[i].name, name, length)) {
            return &backends[i];
        }
    }
    return NULL;
}

trp_code trp_device_open(const char *name, const trp_device_options *options,
                         trp_device **ret_device, trp_error *err) {
    static const trp_device_options none;
    if (!name || !name[0]) {
        return trpi_fail(err, TRP_EINVALID, "device name is empty; \"cpu\" is one");
    }
    const struct backend *backend = find_backend(name);
    if (!backend) {
        return trpi_fail(err, TRP_EUNSUPPORTED, "no device \"%s\"; known are cpu and cuda:N", name);
    }
    if (!backend->open) {
        return trpi_fail(err, TRP_EUNSUPPORTED, "device %s: %s", name, backend->missing);
    }
    trp_code code = backend->open(name, options ? options : &none, ret_device, err);
    return code ? trpi_context(err, code, "device %s", name) : TRP_OK;
}

void trp_device_close(trp_device *device) {
    if (device) {
        device->table->close(device);
    }
}

const char *trp_device_name(const trp_device *device) {
    return device->name;
}

bool trp_device_native(const trp_device *device, trp_dtype dtype) {
    return device->table->native(device, dtype);
}

trp_code trp_device_alloc(trp_device *device, size_t bytes, void **ret_data, trp_error *err) {
    return device->table->alloc(device, bytes, ret_data, err);
}

void trp_device_free(trp_device *device, void *data) {
    if (data) {
        device->table->free(device, data);
    }
}

size_t trp_device_bytes(const trp_device *device, size_t *ret_peak) {
    return device->table->bytes(device, ret_peak);
}

trp_code trp_device_upload(trp_device *device, void *to, const void *from_host, size_t bytes,
                           trp_error *err) {
    return device->table->upload(device, to, from_host, bytes, err);
}

trp_code trp_device_download(trp_device *device, void *to_host, const void *from, size_t bytes,
                             trp_error *err) {
    return device->table->download(device, to_host, from, bytes, err);
}

trp_code trp_device_sync(trp_device *device, trp_error *err) {
    return device->table->sync(device, err);
}

#define OP(name, text)                                                                             \
    trp_code trp_op_##name(trp_device *device, const trp_##name##_args *args, trp_error *err) {    \
        trp_code code = trpi_check_##name(args, err);                                              \
        if (!code) {                                                                               \
            code = device->table->name(device, args, err);                                         \
        }                                                                                          \
        return code ? trpi_context(err, code, #name) : TRP_OK;                                     \
    }
#include <troupe/ops.def>
#undef OP
